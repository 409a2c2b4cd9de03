"""The record of a model: its data, options, plan and figures. Typed, and checked when it is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from owlmine.metrics.propensity import PropensityConstants
from owlmine.rank.probabilities import Calibration


@dataclass(frozen=True)
class Record:
    """Everything about a model that is not a tensor, a word or a judge."""

    data: str
    """The name of the training data."""
    checksum: str | None
    """The checksum of the training data, if there is one."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """The options as given; None where the plan chose."""
    plan: Mapping[str, Any] = field(default_factory=dict)
    """What the plan chose for this data and machine."""
    history: tuple[Mapping[str, Any], ...] = ()
    """A line per epoch and model."""
    figures: Mapping[str, float] = field(default_factory=dict)
    """P@1, P@3 and P@5 on validation points, in percent; empty without any."""
    rehearsal: float | None = None
    """The share of the training points held out in the rehearsal, from which the figures come; the model itself was
    trained on all points."""
    calibration: Calibration | None = None
    """None if there were no validation points: the model then has no probabilities."""
    propensity: PropensityConstants = field(default_factory=PropensityConstants)
    """The constants by which rare classes are weighted."""
    added: tuple[Mapping[str, Any], ...] = ()
    """One entry for each time that classes were added."""
    estimator: Mapping[str, Any] | None = None
    """Additional attributes for the scikit-learn interface."""

    def to_dict(self) -> dict[str, Any]:
        """As a JSON object."""
        return asdict(self) | {
            "calibration": None if self.calibration is None else self.calibration.to_dict(),
            "history": [dict(line) for line in self.history],
            "added": [dict(line) for line in self.added],
        }

    @classmethod
    def from_dict(cls, record: Any) -> Record:
        """The inverse of ``to_dict``. Raises ValueError for anything else."""
        names = {field.name for field in fields(cls)}
        if not isinstance(record, dict) or set(record) != names:
            found = sorted(record) if isinstance(record, dict) else record
            raise ValueError(f"the record has {found!r}; wanted {', '.join(sorted(names))}")
        kinds: tuple[tuple[str, type | tuple[type, ...]], ...] = (
            ("data", str),
            ("checksum", (str, type(None))),
            ("options", dict),
            ("plan", dict),
            ("history", list),
            ("figures", dict),
            ("rehearsal", (float, int, type(None))),
            ("propensity", dict),
            ("added", list),
            ("estimator", (dict, type(None))),
        )
        for name, kind in kinds:
            if not isinstance(record[name], kind) or isinstance(record[name], bool):
                raise ValueError(f"{name} of the record is {record[name]!r}; wanted {_in_words(kind)}")
        for name in ("history", "added"):
            if not all(isinstance(line, dict) for line in record[name]):
                raise ValueError(f"{name} of the record is {record[name]!r}; wanted a list of objects")
        for name, value in record["figures"].items():
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise ValueError(f"{name} of the figures is {value!r}; wanted a number")
        calibration = record["calibration"]
        return cls(
            **{
                **record,
                "history": tuple(record["history"]),
                "added": tuple(record["added"]),
                "calibration": None if calibration is None else Calibration.from_dict(calibration),
                "propensity": _constants(record["propensity"]),
            }
        )


def _constants(record: dict[str, Any]) -> PropensityConstants:
    if set(record) != {"a", "b"} or not all(type(value) in (int, float) for value in record.values()):
        raise ValueError(f"propensity of the record is {record!r}; wanted numbers a and b")
    return PropensityConstants(**record)


def _in_words(kind: type | tuple[type, ...]) -> str:
    words = {str: "text", dict: "an object", list: "a list", float: "a number", int: "a number", type(None): "null"}
    kinds = kind if isinstance(kind, tuple) else (kind,)
    return " or ".join(dict.fromkeys(words[one] for one in kinds))

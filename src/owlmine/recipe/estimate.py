"""What a plan will take: time, memory and disk, told before the first step.

Every stage of the recipe has a count of its work, such as steps or pairs, and a time per unit. ``probe`` measures the
units on this machine, with these points; constants fitted on finished runs relate the stages to them.
``benchmarks/estimates.py`` shows how true the sums are. Nothing that is learned depends on an estimate.
"""

from __future__ import annotations

import os
import resource
import shutil
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from pathlib import Path

import torch

from owlmine.data.store import Dataset, SparseTable, Store
from owlmine.dense.settings import DenseSettings
from owlmine.dense.side_by_side import run_side_by_side
from owlmine.dense.validation import ValidationPart
from owlmine.recipe import probe
from owlmine.recipe.plan import NEIGHBOURS, Facts, Plan

_GIB, _GB, _MB = 1 << 30, 1e9, 1e6
# The time of a step without gradients and updates, as a share of it: of a warm start, and of encoding points.
_WARM_SHARE, _ENCODE_SHARE = 0.2, 0.15
# Passes over the classifiers' pairs, as a share of those of the probe, whose made-up classes are harder.
_PAIR_SHARE = 0.8
# Work that is no product, in sorted numbers: of a number drawn, of a byte written with its checksum, of a pair put in
# order, of a feature of a point indexed, of a name or word compared, of a point answered, and of a point while the mix
# is fitted, and adjusted if there are enough points.
_DRAWING, _WRITING, _PAIRING, _INDEXING, _NAMING = 1.0, 0.2, 3.0, 3.0, 400.0
_ANSWERING, _MIXING, _CLIMBING = 20_000.0, 30_000.0, 50_000.0
# Of answers, names and files, the share that takes as long with one thread as with more; the other numbers above were
# fitted with two threads.
_ALONE_SHARE, _FITTED_THREADS = 0.25, 2
_POINTS_TO_CLIMB = 2_000
# An approximate index, in products with class vectors: of building it, for each class and number of its vector, and
# the share of all codes that a search for training points reads.
_BUILDING, _SEARCHED_SHARE = 3_000.0, 1 / 64
# Around an epoch of a model on a GPU, where steps are short: validation, metrics and curves.
_GPU_EPOCH_SECONDS = 0.01
# Everything before and after the stages.
_SECONDS_AROUND = 0.5

# Bytes: of a number while training, and in a coded model; of a weight of the classifiers, and of a feature of a point
# that votes, in the folder, and in memory while points are indexed; of a pair while pairs are put in order, and after
# that.
TRAINING_BYTES, CODED_BYTES = 4, 1
WEIGHT_BYTES, SAVED_WEIGHT_BYTES, SAVED_POINT_BYTES = 8, 3, 3
_INDEXING_BYTES, _ORDERING_BYTES, _PAIR_BYTES = 36, 24, 21
# Weights of the classifiers that are large enough to stay, for each feature of a point and label.
_WEIGHTS_PER_FEATURE = 0.7
# Strings of words, keys and names.
_STRING_BYTES = 20
# What libraries and buffers take besides; on a GPU, also as a share of the models.
_MEMORY_AROUND = 200 << 20
_GPU_SHARE_AROUND = 0.3
# Larger tables are not built for a probe.
_MOST_PROBED_BYTES = 2 << 30


@dataclass(frozen=True)
class Estimate:
    """What a run takes, from here to its end."""

    seconds: float
    memory_bytes: float
    """Of the process, at its peak."""
    gpu_bytes: float
    """On a GPU, at its peak; 0 on a CPU."""
    disk_bytes: float
    """Of the folder, at its largest: with checkpoints, if the model is trained into a folder."""

    def to_dict(self) -> dict[str, float]:
        """As JSON."""
        return {name: round(value, 1) for name, value in asdict(self).items()}

    def __str__(self) -> str:
        gpu = f", {in_gib(self.gpu_bytes)} on the GPU" if self.gpu_bytes else ""
        return f"{in_time(self.seconds)}, {in_gib(self.memory_bytes)} of memory{gpu}, {in_gb(self.disk_bytes)} on disk"


def in_time(seconds: float) -> str:
    """With two digits: seconds, minutes or hours."""
    if seconds < 99.5:
        return f"{max(seconds, 1):.0f} s"
    if seconds < 99.5 * 60:
        return f"{_two_digits(seconds / 60)} min"
    return f"{_two_digits(seconds / 3600)} h"


def in_gib(num_bytes: float) -> str:
    return f"{_two_digits(num_bytes / _GIB)} GiB"


def in_gb(num_bytes: float) -> str:
    return f"{_two_digits(num_bytes / _GB)} GB" if num_bytes >= 0.095 * _GB else f"{max(num_bytes / _MB, 1):.0f} MB"


def _two_digits(number: float) -> str:
    return f"{number:.0f}" if number >= 9.95 else f"{number:.1f}"


def memory_in_use() -> int:
    """Of this process."""
    try:
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return peak_memory()
    return pages * os.sysconf("SC_PAGE_SIZE")


def peak_memory() -> int:
    """Of this process, since it started."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def free_memory() -> int | None:
    """Of the machine; None if that is unknown."""
    try:
        lines = Path("/proc/meminfo").read_text("ascii").splitlines()
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    except (OSError, ValueError, IndexError, StopIteration):
        return None


# Of the minutes that are given, the share that an estimate may fill: it can be too low.
_BUDGET_SHARE = 0.9


def fits(estimate: Estimate, *, minutes: float | None) -> bool:
    """Whether a run fits into these minutes, and into the memory of the machine."""
    free = free_memory()
    in_memory = free is None or estimate.memory_bytes - memory_in_use() <= free
    return in_memory and (minutes is None or estimate.seconds <= _BUDGET_SHARE * 60 * minutes)


def announcement(plan: Plan, estimate: Estimate, folder: Path, *, minutes: float | None) -> list[str]:
    """The plan, what it takes, and what is missing for it."""
    lines = [f"plan: {plan_in_words(plan)}: about {estimate}"]
    if minutes is not None and estimate.seconds > 60 * minutes:
        lines.append(f"this is the fastest plan; it does not fit into --minutes {minutes:g}")
    free = free_memory()
    if free is not None and estimate.memory_bytes - memory_in_use() > free:
        lines.append(f"warning: only {in_gib(free + memory_in_use())} of memory are free; {_SMALLER}")
    with suppress(OSError):
        free = shutil.disk_usage(next(place for place in (folder, *folder.absolute().parents) if place.exists())).free
        if estimate.disk_bytes > free:
            lines.append(f"warning: only {in_gb(free)} are free on the disk of {folder}; {_SMALLER}")
    return lines


_SMALLER = "--effort fast, --heads or --dim make the model smaller"


def plan_in_words(plan: Plan) -> str:
    """The sizes that an effort chooses."""
    model, judges = plan.model, plan.judges
    dim = f" of {model.dim} dimensions" if model.kind == "embedding" else ""
    words = [f"{plan.heads} model{'s' if plan.heads > 1 else ''}{dim}", f"{model.epochs:g} epochs"]
    if judges.neighbours and len(judges.neighbour_kinds) > 1:
        words.append("neighbours by features and vectors")
    if plan.rehearsal:
        words.append("trained twice, first as a rehearsal")
    return ", ".join(words)


class Estimator:
    """Estimates of plans for one dataset on one device. What is measured for one plan serves the next."""

    def __init__(self, data: Dataset, facts: Facts, device: torch.device, *, checkpoint_seconds: float) -> None:
        self._data, self._facts, self._device, self._checkpoint_seconds = data, facts, device, checkpoint_seconds
        self._train = data["train"]
        # Before probes take memory, which is free again when they end.
        self._memory_before = memory_in_use()
        self._num_labels = len(self._train.labels.indices)
        queries = self._train.queries
        self._num_entries = len(queries.indices) if isinstance(queries, SparseTable) else queries.size
        self._steps: dict[tuple[DenseSettings, int], float] = {}
        self._lists: dict[tuple[int, int], float] = {}
        self._held_out_parts: dict[tuple[float, int], ValidationPart] = {}

    def __call__(self, plan: Plan) -> Estimate:
        if self._facts.on_gpu and not self._steps:
            self._compile(plan)
        seconds = self.seconds(plan)  # first, because it loads the libraries of a GPU
        return Estimate(seconds, self.memory(plan), self.gpu_memory(plan), self.disk(plan))

    # Time.

    def seconds(self, plan: Plan) -> float:
        if not plan.rehearsal:
            return _SECONDS_AROUND + self._saving(plan) + self._fit(plan, chooses=True)
        rehearsal = self._fit(plan.holding_out(plan.rehearsal), chooses=True)
        return _SECONDS_AROUND + self._saving(plan) + rehearsal + self._fit(plan.holding_out(0.0), chooses=False)

    def _fit(self, plan: Plan, *, chooses: bool) -> float:
        """``chooses``: whether there are variants to try, and points to try them on."""
        held_out = self._held_out(plan)
        num_rows, num_held_out = len(held_out.train_rows), len(held_out) if chooses else 0
        seconds = self._members(plan, held_out)
        if plan.index:
            seconds += self._facts.num_classes * plan.heads * plan.model.dim * _BUILDING * self._product
        if plan.judges.shortlist:
            seconds += self._judges(plan, num_rows, chooses=num_held_out > 0)
            if num_held_out >= _POINTS_TO_CLIMB:
                seconds += num_held_out * _CLIMBING * self._number
        return seconds + num_held_out * self._answer(plan, chooses=plan.judges.shortlist > 0)

    def _members(self, plan: Plan, held_out: ValidationPart) -> float:
        model, step = plan.model, self._step(plan)
        per_epoch = -(-len(held_out.train_rows) // model.batch_size)
        num_looks = -(-len(held_out) // (1 if model.patience else held_out.brief_step(self._facts.num_classes)))
        look = num_looks * self._facts.num_classes * self._width(plan) * self._product
        # A GPU draws its numbers in no time, and its models are written while others train.
        if self._facts.on_gpu:
            new = model.epochs * _GPU_EPOCH_SECONDS
        else:
            new = self._numbers(plan) * (_DRAWING + TRAINING_BYTES * _WRITING) * self._number
        steps = (model.epochs + _WARM_SHARE * model.warm_start) * per_epoch * step
        return steps + plan.heads * (model.epochs * look + new)

    def _judges(self, plan: Plan, num_rows: int, *, chooses: bool) -> float:
        sizes, num_pairs = plan.judges, self._num_pairs(plan, num_rows)
        if plan.index:
            codes = self._facts.num_classes * plan.heads * plan.model.dim * _SEARCHED_SHARE
            search = codes * self._product
        else:
            search = self._list(plan)
        encode = self._step(plan) * _ENCODE_SHARE / plan.model.batch_size
        num_costs = len(sizes.costs) if chooses and num_pairs <= sizes.most_pairs_of_choice else 1
        seconds = num_rows * (search + encode) + num_pairs * _PAIRING * self._number
        seconds += num_pairs * num_costs * _PAIR_SHARE * self._pair
        seconds += self._num_entries * _INDEXING * self._number * (sizes.neighbours > 0)
        seconds += num_rows * encode * ("dense" in sizes.neighbour_kinds and sizes.neighbours > 0)
        return seconds + self._num_strings(plan) * _NAMING * self._shared_number

    def _answer(self, plan: Plan, *, chooses: bool) -> float:
        """Of one validation point: its candidates and their scores, for the mix and then for probabilities."""
        sizes = plan.judges
        search = self._facts.num_classes * plan.heads * self._width(plan) * self._product
        if plan.index:
            search *= 6 * _SEARCHED_SHARE
        numbers = _ANSWERING * (2 if chooses else 1)
        if chooses:
            numbers += _MIXING
        neighbours = 2 * self._neighbours if sizes.neighbours else 0.0
        if sizes.neighbours and "dense" in sizes.neighbour_kinds:
            neighbours += 2 * self._facts.num_points * plan.model.dim * self._product
        return (2 if chooses else 1) * search + neighbours + numbers * self._shared_number

    def _saving(self, plan: Plan) -> float:
        return self._model_bytes(plan) * _WRITING * self._shared_number

    # Measured when first needed.

    def _compile(self, plan: Plan) -> None:
        """So that probes measure kernels, and not their compiler."""
        lists = (plan.heads * self._width(plan), plan.judges.confusable) if plan.judges.shortlist else None
        probe.compile_kernels(self._train, plan.shape(self._facts), plan.model, lists, self._device)

    def _step(self, plan: Plan) -> float:
        """Of all members, side by side or one after the other. Tables that would take too much memory are measured at
        a smaller dimension."""
        key, factor = replace(plan.model, epochs=1.0, seed=0, patience=0), 1
        at_once = plan.heads if plan.trains_side_by_side(self._facts) else 1
        while key.kind == "embedding" and key.dim > 1 and self._numbers_of(key) * TRAINING_BYTES > _MOST_PROBED_BYTES:
            key, factor = replace(key, dim=key.dim // 2), 2 * factor
        if (key, at_once) not in self._steps:
            shape = replace(plan.shape(self._facts), dim=key.dim)
            rows = self._held_out(plan).train_rows
            measure = partial(probe.seconds_per_step, self._train, rows, shape, key, self._device)
            together = partial(run_side_by_side, [measure] * at_once, lambda: None, device=self._device)
            self._steps[key, at_once] = max(together() if at_once > 1 else [measure()])
        return factor * self._steps[key, at_once] * (plan.heads // at_once)

    def _list(self, plan: Plan) -> float:
        key = plan.heads * self._width(plan), plan.judges.confusable
        if key not in self._lists:
            self._lists[key] = probe.seconds_per_list(self._facts.num_classes, *key, self._device)
        return self._lists[key]

    @cached_property
    def _product(self) -> float:
        return probe.seconds_per_product(self._device)

    @cached_property
    def _number(self) -> float:
        return probe.seconds_per_number()

    @property
    def _shared_number(self) -> float:
        """Of work that threads share in part."""
        return (_ALONE_SHARE + (1 - _ALONE_SHARE) * _FITTED_THREADS / torch.get_num_threads()) * self._number

    @cached_property
    def _pair(self) -> float:
        return probe.seconds_per_pair(self._train, num_features=self._facts.num_features)

    @cached_property
    def _neighbours(self) -> float:
        return probe.seconds_per_neighbours(self._train, num_features=self._facts.num_features, count=NEIGHBOURS)

    # Counts.

    def _held_out(self, plan: Plan) -> ValidationPart:
        key = plan.validation, plan.validation_block
        if key not in self._held_out_parts:
            self._held_out_parts[key] = ValidationPart(self._data, share=key[0], block=key[1])
        return self._held_out_parts[key]

    def _width(self, plan: Plan) -> int:
        """Of a class vector of one member."""
        return plan.model.dim if plan.model.kind == "embedding" else self._facts.num_features

    def _numbers(self, plan: Plan) -> int:
        """Of one member."""
        return self._numbers_of(plan.model)

    def _numbers_of(self, model: DenseSettings) -> int:
        facts = self._facts
        if model.kind == "linear":
            return facts.num_classes * facts.num_features
        return (facts.num_classes + facts.num_features + model.depth * model.dim) * model.dim

    def _num_pairs(self, plan: Plan, num_rows: int) -> int:
        """Labels and classes of lists; about half of the labels are in their list, if it has not all classes."""
        labels = self._num_labels / self._facts.num_points
        length = plan.judges.confusable
        return int(num_rows * min(length + labels / 2, max(length, self._facts.num_classes)))

    def _num_strings(self, plan: Plan) -> int:
        """Names and words to compare."""
        data = self._data
        return len(data.vocabulary) + data.num_classes if plan.judges.names and data.vocabulary is not None else 0

    # Memory and disk.

    def _num_weights(self, plan: Plan) -> float:
        """Of the linear classifiers, for one cost."""
        mean = self._num_entries / max(self._facts.num_points, 1)
        return _WEIGHTS_PER_FEATURE * self._num_labels * mean * (plan.judges.shortlist > 0)

    def memory(self, plan: Plan) -> float:
        """The process at its peak: while models are joined, pairs are put in order, or classifiers are trained."""
        if self._facts.on_gpu:
            members = joined = 0.0
        else:
            members = float(plan.heads * self._numbers(plan) * TRAINING_BYTES)
            joined = float(plan.heads * self._numbers(plan) * (CODED_BYTES if plan.coded else TRAINING_BYTES))
        # Files of a store are mapped, and count as memory once they are read.
        data = 8.0 * (self._num_entries + self._num_labels) if isinstance(self._data, Store) else 0.0
        peaks = [members + (joined if plan.heads > 1 or plan.coded else 0.0)]
        sizes = plan.judges
        if sizes.shortlist:
            num_pairs = self._num_pairs(plan, self._facts.num_points)
            num_costs = len(sizes.costs) if num_pairs <= sizes.most_pairs_of_choice else 1
            points = 8.0 * self._num_entries
            # A byte for each number, which a coded model already has.
            lists = 0 if plan.coded else plan.heads * self._facts.num_classes * self._width(plan)
            weights = num_costs * self._num_weights(plan) * WEIGHT_BYTES
            voters = _INDEXING_BYTES * self._num_entries * (sizes.neighbours > 0)
            peaks.append(joined + lists + points + num_pairs * (TRAINING_BYTES + _ORDERING_BYTES))
            peaks.append(joined + lists + points + num_pairs * _PAIR_BYTES + weights)
            peaks.append(joined + lists + points + weights + voters)
        before = memory_in_use() if self._facts.on_gpu else self._memory_before
        return before + _MEMORY_AROUND + data + max(peaks)

    def gpu_memory(self, plan: Plan) -> float:
        """The same on a GPU, where members are, and the data while they train."""
        if not self._facts.on_gpu:
            return 0.0
        members = float(plan.heads * self._numbers(plan) * TRAINING_BYTES)
        data = 8.0 * (self._num_entries + self._num_labels)
        return _MEMORY_AROUND + data + (3 + _GPU_SHARE_AROUND) * members

    def disk(self, plan: Plan) -> float:
        """The model, and the checkpoints of its members beside it."""
        per_member = self._numbers(plan) * TRAINING_BYTES
        held_out = self._held_out(plan)
        seconds = self._members(plan, held_out) / (1 if plan.trains_side_by_side(self._facts) else plan.heads)
        num_kept = 1 if seconds < self._checkpoint_seconds else 2
        num_kept += plan.model.patience > 0
        num_members = plan.heads * (2 if plan.rehearsal else 1)
        return self._model_bytes(plan) + num_members * num_kept * per_member

    def _model_bytes(self, plan: Plan) -> float:
        sizes, facts = plan.judges, self._facts
        rows = plan.heads * self._numbers(plan) * (CODED_BYTES if plan.coded else TRAINING_BYTES)
        points = SAVED_POINT_BYTES * self._num_entries * (sizes.neighbours > 0)
        if "dense" in sizes.neighbour_kinds and sizes.neighbours:
            points += CODED_BYTES * facts.num_points * plan.model.dim
        strings = _STRING_BYTES * (2 * facts.num_classes + facts.num_features * (self._data.vocabulary is not None))
        return rows + points + strings + self._num_weights(plan) * SAVED_WEIGHT_BYTES

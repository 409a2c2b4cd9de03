"""A split that lies on the device whole, so that a batch is nothing but row numbers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from owlmine.data.store import SparseTable, Split
from owlmine.kernels.bags import DeviceRows


@dataclass(frozen=True, eq=False)
class DeviceSplit:
    queries: DeviceRows
    labels: DeviceRows
    most_labels: int
    """Of one point."""

    @classmethod
    def of(cls, split: Split, device: torch.device) -> DeviceSplit:
        assert isinstance(split.queries, SparseTable)
        counts = np.diff(split.labels.offsets)
        most = int(counts.max()) if len(counts) else 0
        return cls(_on_device(split.queries, device), _on_device(split.labels, device), most)

    @property
    def num_bytes(self) -> int:
        parts = [part for rows in (self.queries, self.labels) for part in (rows.offsets, rows.ids, rows.values)]
        return sum(part.nbytes for part in parts if part is not None)


def num_bytes(split: Split) -> int:
    """What ``DeviceSplit.of`` takes."""
    assert isinstance(split.queries, SparseTable)
    return sum(
        part.nbytes
        for table in (split.queries, split.labels)
        for part in (table.offsets, table.indices, table.values)
        if part is not None
    )


def _on_device(table: SparseTable, device: torch.device) -> DeviceRows:
    rows = table.slice(0, len(table))
    values = None if rows.values is None else torch.from_numpy(rows.values).to(device)
    return DeviceRows(torch.from_numpy(rows.offsets).to(device), torch.from_numpy(rows.indices).to(device), values)

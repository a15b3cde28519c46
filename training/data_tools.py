"""What `passwright data` asks for: numbers about a data set, a check of it, and one file of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from passwright.scheduler.commands.console import progress
from passwright.training import data_replay, data_stats, store


def stats(path: Path | None) -> Mapping[str, Any]:
    """`data_stats.Stats` as JSON. Raises StoreError."""
    return data_stats.stats_at(path).to_json()


def check(path: Path | None, *, share: float, seed: int, device: torch.device) -> Mapping[str, Any]:
    """`data_replay.Checked` of a share of the records as JSON; progress on stderr. Raises StoreError."""
    drawn = data_replay.draw(data_stats.records_at(path), share, seed)
    total = len({(record.workload, data_replay.on_gpu(record)) for record in drawn})
    with progress(total) as reporter:
        return data_replay.check(drawn, device, done=reporter.finished).to_json()


def pack(sources: Sequence[Path], file: Path) -> int:
    """`store.pack`. Raises StoreError."""
    return store.pack(sources, file)

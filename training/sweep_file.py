"""A file of measured rows that a command fills in several goes: `{"device", "torch", "rows"}`.

A row is a list that begins with its case and its form. What is there already is not measured again, and
nothing of another device or another torch is added.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from passwright.scheduler.cuda_timing import device_runs
from passwright.scheduler.device import describe

#: Calls in one CUDA graph, and how often it is replayed.
_CALLS, _REPEATS = 20, 9

Row = list[Any]
#: (case, form).
Key = tuple[str, str]


def load(path: Path) -> dict[str, Any]:
    """What was measured before, on whatever device."""
    if path.exists():
        data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return data
    return {"device": "", "torch": "", "rows": []}


def save(path: Path, data: dict[str, Any]) -> None:
    """One row a line."""
    text = json.dumps(data).replace("], [", "],\n[")
    path.write_text(text + "\n", encoding="utf-8")


def fill(
    path: Path,
    wanted: Iterable[Key],
    measure: Callable[[set[Key], float], Iterator[Row]],
    *,
    seconds: float,
) -> tuple[Sequence[Row], int]:
    """Measures what the file lacks, for as long as there is time. Returns all rows, and how many are left.

    `measure` gets the known keys and the deadline by `time.monotonic()`, and yields rows. Raises
    SystemExit with the reason where rows are missing that cannot be measured here.
    """
    data = load(path)
    known = {(name, form) for name, form, *_ in data["rows"]}
    missing = set(wanted) - known
    if missing:
        if not _sees_gpu():
            raise SystemExit(
                f"{path} lacks rows, and measuring needs a CUDA device; torch sees none"
            )
        now = {"device": describe(torch.device("cuda")).name, "torch": torch.__version__}
        if known and {key: data[key] for key in now} != now:
            raise SystemExit(f"{path} was measured with {data['torch']} on {data['device']}")
        data |= now
        for row in measure(known, time.monotonic() + seconds):
            data["rows"].append(row)
            missing.discard((row[0], row[1]))
            save(path, data)
    return data["rows"], len(missing)


def report(
    path: Path,
    wanted: Iterable[Key],
    measure: Callable[[set[Key], float], Iterator[Row]],
    table: Callable[[Sequence[Row]], list[str]],
    *,
    seconds: float,
) -> None:
    """`fill`, and then prints the file and what is left."""
    rows, left = fill(path, wanted, measure, seconds=seconds)
    lines = table(rows) + ([f"{left} rows left: run again to go on"] if left else [])
    sys.stdout.write("\n".join(lines) + "\n")


def _sees_gpu() -> bool:
    return torch.cuda.is_available()


def microseconds(call: Callable[[], object]) -> float:
    """Of one call."""

    def calls() -> None:
        for _ in range(_CALLS):
            call()

    method, runs, notes = device_runs({"calls": calls})
    if method != "cuda-graph":
        raise RuntimeError(f"no CUDA graph: {notes[0]}")
    runs["calls"](1)
    times = [runs["calls"](1) * 1e6 / _CALLS for _ in range(_REPEATS)]
    return round(statistics.median(times), 2)

"""The clocks of a probe: how long one call takes, and how even its tries are."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from passwright.scheduler.cuda_timing import replayed

#: Seconds for the tries of one trial, and how many there are at least.
_PATIENCE, _FEWEST = 0.12, 4
#: A replayed CUDA graph lasts about so many seconds, by holding several calls, so many at most: its own
#: launch then hardly counts.
_REPLAY_SECONDS, _MOST_CALLS = 1e-3, 200
#: Replays that follow one another in one try; the quickest counts, as in `cuda_timing.py`.
_REPLAYS = 4


@dataclass(frozen=True)
class Trial:
    """One call to be timed, and what it does: `moved` bytes are read and written, and `work` operations
    done in a precision, by a kernel of a library or by one such as Inductor generates."""

    call: Callable[[], object]
    moved: float = 0.0
    work: float = 0.0
    precision: str = ""
    library: bool = False


@dataclass(frozen=True)
class Tries:
    """Seconds of one call: the shortest, and by what part of it the median is longer."""

    best: float
    spread: float


#: Times a trial.
Timer = Callable[[Trial], Tries]


def _tries(times: Sequence[float]) -> Tries:
    best = min(times)
    return Tries(best, statistics.median(times) / best - 1)


def cpu_tries(trial: Trial) -> Tries:
    """Of calls from Python, as many at a time as the clock needs."""
    trial.call()
    end = time.perf_counter() + _PATIENCE
    times: list[float] = []
    calls = 1
    while True:
        begin = time.perf_counter()
        for _ in range(calls):
            trial.call()
        now = time.perf_counter()
        if now - begin < 5e-5 and calls < 1 << 20:  # too short for the clock
            calls *= 2
            continue
        times.append((now - begin) / calls)
        if now > end and len(times) >= _FEWEST:
            return _tries(times)


def gpu_tries(trial: Trial) -> Tries:
    """Within CUDA graphs, so that launching from Python does not count."""
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    once = replayed(trial.call, side)(1)
    calls = min(_MOST_CALLS, max(1, math.ceil(_REPLAY_SECONDS / once)))

    def many() -> None:
        for _ in range(calls):
            trial.call()

    run = replayed(many, side)
    replays = _REPLAYS if once < _REPLAY_SECONDS else 1
    end = time.perf_counter() + _PATIENCE
    times: list[float] = []
    while time.perf_counter() < end or len(times) < _FEWEST:
        times.append(run(replays) / replays / calls)
    return _tries(times)

"""Measures compiled callables against a baseline so that the result can be believed.

All variants run in one process in interleaved blocks (A B C A', then A' C B A), so that whatever
drifts, drifts for all of them. The baseline runs twice in each round: how far it seems to differ
from itself is the noise floor of this very run. The figure is the median over rounds of
log(baseline / variant), with a 95 % bootstrap interval.

A variant that raises, or is hopelessly slow, becomes a censored entry with its reason. What never
returns cannot be stopped from inside its own process: isolate that in one of its own.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from enum import StrEnum

import torch

from passwright.scheduler.comparison import (
    BOOTSTRAP_FROM,
    Comparison,
    Gain,
    Timing,
    median_interval,
)
from passwright.scheduler.cuda_timing import Run, device_runs, reason
from passwright.scheduler.steps import graph_step, inference_step, peak_memory, training_step

__all__ = [
    "Comparison",
    "Gain",
    "StopReason",
    "Timing",
    "compare",
    "graph_step",
    "inference_step",
    "peak_memory",
    "training_step",
]


class StopReason(StrEnum):
    """Why measuring ended."""

    CLEAR = "every interval is clear of zero"
    BLOCKS = "all blocks measured"
    TIME_LIMIT = "time limit"
    NO_VARIANT = "no variant is left"
    BASELINE_FAILED = "the baseline failed"


@dataclass(frozen=True)
class _Rules:
    """What holds for the whole of one comparison."""

    baseline: str
    blocks: int
    minimum_blocks: int
    block_seconds: float
    timeout_factor: float
    seed: int
    progress: Callable[[str, int, int], None] | None
    clock: Callable[[], int]


@dataclass
class _Lane:
    """One variant on its way through the blocks."""

    run: Run
    calls: int
    blocks: list[float] = field(default_factory=list)

    def measure(self) -> None:
        self.blocks.append(self.run(self.calls) / self.calls)

    def timing(self, name: str, method: str) -> Timing:
        return Timing(name, method, tuple(self.blocks), self.calls)


def compare(
    variants: Mapping[str, Callable[[], object]],
    *,
    baseline: str,
    device: torch.device,
    blocks: int = 15,
    block_seconds: float = 0.02,
    time_limit: float | None = None,
    seed: int = 0,
    progress: Callable[[str, int, int], None] | None = None,
    minimum_blocks: int = BOOTSTRAP_FROM,
    timeout_factor: float = 2.0,
    wall: bool = True,
    wall_only: Collection[str] = (),
    clock: Callable[[], int] = time.perf_counter_ns,
) -> Comparison:
    """Measures `variants`, callables without arguments by name, against the one named `baseline`.

    Each is called once first, which may compile; then blocks of calls that last about
    `block_seconds` each are interleaved. It ends after `blocks` rounds, or after `minimum_blocks`
    when every interval is clear of zero by more than the noise floor, or before a round that would
    end beyond `time_limit` seconds (from the end of the first calls; one round is always made). A
    variant that takes more than `timeout_factor` times the baseline's time is censored.

    On the CPU, times are wall times by `clock` (nanoseconds). On CUDA, each variant is captured as
    a CUDA graph, which holds several calls of what is short, and its replays are timed on the
    device. If one cannot be captured, all are timed by events around eager launches, for only like
    compares with like, and `notes` says so. With `wall`, half of the time goes to wall times with
    eager launches. Those named in `wall_only`, which have no part in the comparison on the device, are
    compared by wall time alone: what replays CUDA graphs of its own cannot be captured in another.

    The callables must keep what they read alive, and be safe to call any number of times. To
    measure with cold caches, let a callable rotate through its inputs (a CUDA graph replays one
    call only).

    `progress` is told (name, round, rounds) after each block. Raises ValueError when `baseline` is
    not among the variants, or when nothing is to be measured; what a variant raises is never passed
    on, except KeyboardInterrupt and the like.
    """
    if baseline not in variants:
        raise ValueError(f"no variant is named {baseline!r}; there are {sorted(variants)}")
    if baseline in wall_only:
        raise ValueError(f"{baseline!r} is the baseline, so it needs a time on the device")
    if blocks < 1 or block_seconds <= 0:
        raise ValueError("blocks must be at least 1 and block_seconds positive")
    rules = _Rules(
        baseline,
        blocks,
        minimum_blocks,
        block_seconds,
        timeout_factor,
        seed,
        progress,
        clock,
    )
    on_cuda = device.type == "cuda"
    limit = math.inf if time_limit is None else time_limit
    with torch.cuda.device(device) if on_cuda else nullcontext():
        censored: dict[str, str] = {}
        for name, variant in variants.items():
            try:
                variant()
                if on_cuda:
                    torch.cuda.synchronize()
            except Exception as error:
                censored[name] = reason(error)
        live = {name: variants[name] for name in variants if name not in censored}
        start = clock()
        walls = {name: _wall(variant, clock, on_cuda) for name, variant in live.items()}
        if not on_cuda:
            return _measure(walls, "wall", censored, rules, start, limit)
        method, runs, notes = device_runs(
            {name: variant for name, variant in live.items() if name not in wall_only}
        )
        share = limit / 2 if wall else limit
        found = _measure(runs, method, censored, rules, start, share)
        if wall:
            second = _measure(walls, "wall", censored, rules, start, limit)
            found = replace(found, wall=second)
        return replace(found, notes=notes)


def _wall(variant: Callable[[], object], clock: Callable[[], int], on_cuda: bool) -> Run:
    """Wall time of calls, up to the end of what they launched."""

    def run(calls: int) -> float:
        if on_cuda:
            torch.cuda.synchronize()
        begin = clock()
        for _ in range(calls):
            variant()
        if on_cuda:
            torch.cuda.synchronize()
        return (clock() - begin) * 1e-9

    return run


def _measure(
    runs: Mapping[str, Run],
    method: str,
    censored: Mapping[str, str],
    rules: _Rules,
    start: int,
    limit: float,
) -> Comparison:
    """Calibrates, then measures round after round until a reason to stop."""
    censored = dict(censored)
    asked = len({*runs, *censored})
    lanes = _calibrated(runs, censored, rules)
    again = f"{rules.baseline} (again)"
    stopped = StopReason.BLOCKS
    if rules.baseline in lanes:
        first = lanes[rules.baseline]
        lanes[again] = _Lane(first.run, first.calls)
    else:
        stopped = StopReason.BASELINE_FAILED
    order = list(lanes)
    failed: dict[str, _Lane] = {}
    for done in range(1, rules.blocks + 1 if again in lanes else 1):
        began = rules.clock()
        for name in order if done % 2 else reversed(order):
            if name not in lanes:
                continue
            shown = rules.baseline if name == again else name
            try:
                lanes[name].measure()
            except Exception as error:
                censored[shown] = reason(error)
                failed[name] = lanes.pop(name)
            if rules.progress is not None:
                rules.progress(shown, done, rules.blocks)
        if rules.baseline in censored:
            stopped = StopReason.BASELINE_FAILED
            break
        if asked > 1 and not lanes.keys() - {rules.baseline, again}:
            stopped = StopReason.NO_VARIANT
            break
        # Resampling takes time, of which the device is left idle.
        if done >= rules.minimum_blocks and _is_clear(lanes, rules, again):
            stopped = StopReason.CLEAR
            break
        now = rules.clock()
        if done < rules.blocks and (2 * now - began - start) * 1e-9 > limit:
            stopped = StopReason.TIME_LIMIT
            break
    gains: dict[str, Gain] = {}
    floor = math.inf
    if {rules.baseline, again} <= lanes.keys():
        gains, floor = _gains(lanes, rules.baseline, again, rules.seed)
    measured = {name: lane.timing(name, method) for name, lane in {**lanes, **failed}.items()}
    second = measured.pop(again, None)
    return Comparison(
        rules.baseline,
        measured,
        gains,
        floor,
        stopped.value,
        censored,
        second and replace(second, name=rules.baseline),
    )


def _calibrated(
    runs: Mapping[str, Run], censored: dict[str, str], rules: _Rules
) -> dict[str, _Lane]:
    """The variants with their number of calls a block, baseline first; the slow are censored."""
    lanes: dict[str, _Lane] = {}
    base = math.inf
    for name in sorted(runs, key=lambda name: name != rules.baseline):
        try:
            seconds = _seconds_per_call(runs[name], rules.block_seconds)
            if seconds > rules.timeout_factor * base:  # once more, for it may have been disturbed
                seconds = min(seconds, _seconds_per_call(runs[name], rules.block_seconds))
        except Exception as error:
            censored[name] = reason(error)
            continue
        if seconds > rules.timeout_factor * base:
            censored[name] = (
                f"time-out: {seconds / base:.3g} times the baseline's time, the limit is"
                f" {rules.timeout_factor:g}"
            )
            continue
        if name == rules.baseline:
            base = seconds
        lanes[name] = _Lane(runs[name], max(1, round(rules.block_seconds / seconds)))
    return lanes if rules.baseline in lanes else {}


def _seconds_per_call(run: Run, block_seconds: float) -> float:
    """The better of two tries with so many calls that they last a quarter of a block."""
    calls = 1
    while (seconds := min(run(calls), run(calls))) < block_seconds / 4 and calls < 1 << 20:
        calls *= 2
    return max(seconds, 1e-9) / calls


def _is_clear(lanes: Mapping[str, _Lane], rules: _Rules, again: str) -> bool:
    """Every interval lies on one side of the noise; looks no further than the first that does not."""
    pairs = _Pairs(lanes, rules.baseline, again, rules.seed)
    floor = pairs.floor()
    return bool(pairs.names) and all(pairs.gain(name).is_clear(floor) for name in pairs.names)


def _gains(
    lanes: Mapping[str, _Lane], baseline: str, again: str, seed: int
) -> tuple[dict[str, Gain], float]:
    """Gains of the variants, and the noise floor."""
    pairs = _Pairs(lanes, baseline, again, seed)
    return {name: pairs.gain(name) for name in pairs.names}, pairs.floor()


class _Pairs:
    """The rounds of a comparison, each variant's time beside the baseline's.

    A round's baseline is the geometric mean of its two appearances, first and last of the round,
    which cancels a steady drift.
    """

    def __init__(self, lanes: Mapping[str, _Lane], baseline: str, again: str, seed: int) -> None:
        self._logs = {
            name: [math.log(max(value, 1e-12)) for value in lane.blocks]
            for name, lane in lanes.items()
        }
        self._seed, self._baseline = seed, baseline
        self._rounds = list(zip(self._logs.pop(baseline), self._logs.pop(again), strict=True))

    @property
    def names(self) -> list[str]:
        return list(self._logs)

    def gain(self, name: str) -> Gain:
        values = zip(self._rounds, self._logs[name], strict=True)
        logs = [(first + second) / 2 - own for (first, second), own in values]
        return median_interval(logs, seed=f"{self._seed}:{name}")

    def floor(self) -> float:
        """How far the baseline may seem to differ from itself."""
        logs = [first - second for first, second in self._rounds]
        itself = median_interval(logs, seed=f"{self._seed}:{self._baseline}")
        return max(abs(itself.lower), abs(itself.upper))

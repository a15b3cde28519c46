"""Measuring: the statistics on a clock that we turn, and on real ones."""

import json
import math
import random
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch

from passwright.scheduler import timing
from passwright.scheduler.comparison import Comparison, Gain, Timing, median_interval
from passwright.scheduler.timing import (
    StopReason,
    compare,
)

CPU = torch.device("cpu")
cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


class Clock:
    """A clock that only moves when a variant runs."""

    def __init__(self, seed: int = 0) -> None:
        self.now = 0.0
        self.random = random.Random(seed)

    def __call__(self) -> int:
        return round(self.now * 1e9)

    def variant(self, seconds: float, noise: float = 0.0) -> Callable[[], object]:
        """Takes `seconds`, times exp of a normal deviate."""

        def run() -> None:
            self.now += seconds * math.exp(self.random.gauss(0.0, noise))

        return run


def measure(variants: dict[str, Callable[[], object]], clock: Clock, **options: Any) -> Comparison:
    return compare(variants, baseline="default", device=CPU, clock=clock, **options)


# ---- statistics


def test_finds_a_known_ratio() -> None:
    clock = Clock()
    found = measure(
        {"default": clock.variant(0.030, 0.1), "fast": clock.variant(0.020, 0.1)}, clock
    )
    gain = found.gains["fast"]
    assert gain.lower < math.log(1.5) < gain.upper
    assert gain.speedup == pytest.approx(1.5, rel=0.2)
    assert gain.speedup_interval == (math.exp(gain.lower), math.exp(gain.upper))
    assert not gain.is_tie(found.floor)
    assert found.timings["fast"].median == pytest.approx(0.020, rel=0.2)
    assert {timing.method for timing in found.timings.values()} == {"wall"}


def test_a_slower_variant_has_a_negative_gain() -> None:
    clock = Clock()
    found = measure({"default": clock.variant(0.02), "slow": clock.variant(0.03)}, clock)
    assert found.gains["slow"].median == pytest.approx(-math.log(1.5))


def test_equal_variants_are_a_tie() -> None:
    clock = Clock()
    found = measure(
        {"default": clock.variant(0.02, 0.05), "same": clock.variant(0.02, 0.05)}, clock
    )
    assert found.gains["same"].is_tie(found.floor)
    assert found.stopped == StopReason.BLOCKS
    assert len(found.timings["same"].blocks) == 15


def test_noise_floor_is_how_far_the_baseline_differs_from_itself() -> None:
    quiet, noisy = Clock(), Clock()
    without = measure({"default": quiet.variant(0.02)}, quiet)
    with_noise = measure({"default": noisy.variant(0.02, 0.05)}, noisy)
    assert without.floor == pytest.approx(0.0, abs=1e-6)
    assert 0.005 < with_noise.floor < 0.1
    assert with_noise.again is not None
    assert with_noise.again.blocks != with_noise.timings["default"].blocks


def test_steady_drift_cancels() -> None:
    clock = Clock()

    def slower_and_slower() -> None:
        clock.now += 0.02 * (1 + 0.02 * len(calls))
        calls.append(None)

    calls: list[None] = []
    found = measure({"default": slower_and_slower, "same": slower_and_slower}, clock)
    assert abs(found.gains["same"].median) < 0.001
    assert found.floor > 0.01  # without the baseline's second appearance, this would be the error


def test_order_is_interleaved() -> None:
    clock, seen = Clock(), []
    variants = {name: clock.variant(0.02) for name in ("x", "default", "y")}
    measure(variants, clock, blocks=2, progress=lambda *told: seen.append(told))
    names = [name for name, _, _ in seen]
    assert names == ["default", "x", "y", "default", "default", "y", "x", "default"]
    assert [(done, total) for _, done, total in seen] == [(1, 2)] * 4 + [(2, 2)] * 4


@pytest.mark.parametrize(("seconds", "calls"), [(0.001, 20), (0.02, 1), (3.0, 1)])
def test_calls_of_a_block(seconds: float, calls: int) -> None:
    clock = Clock()
    found = measure({"default": clock.variant(seconds)}, clock, blocks=1)
    timing = found.timings["default"]
    assert timing.calls == calls
    assert timing.blocks == (pytest.approx(seconds, rel=1e-4),)


@pytest.mark.parametrize("count", [2, 3, 5, 6, 15])
def test_intervals_cover_the_truth(count: int) -> None:
    draw = random.Random(7)
    covered = 0
    for trial in range(150):
        gain = median_interval([draw.gauss(0.1, 0.05) for _ in range(count)], seed=str(trial))
        assert gain.lower <= gain.median <= gain.upper
        covered += gain.lower <= 0.1 <= gain.upper
    assert 0.88 < covered / 150 < 1.0


def test_one_value_says_nothing() -> None:
    gain = median_interval([0.3])
    assert gain == Gain(0.3, -math.inf, math.inf)
    assert gain.is_tie()
    assert gain.speedup_interval == (0.0, math.inf)


def test_an_outlier_does_not_move_the_gain() -> None:
    values = [0.1, 0.11, 0.09, 0.1, 0.12, 0.1, 0.08, 0.1, 0.1, -5.0]
    assert median_interval(values).median == pytest.approx(0.1)
    assert median_interval(values).lower > 0.05


@pytest.mark.parametrize(
    ("gain", "floor", "tie", "clear"),
    [
        (Gain(0.1, 0.05, 0.15), 0.0, False, True),
        (Gain(0.1, 0.05, 0.15), 0.07, False, False),
        (Gain(0.1, 0.05, 0.15), 0.1, True, False),
        (Gain(0.1, -0.01, 0.2), 0.0, True, False),
        (Gain(-0.1, -0.15, -0.05), 0.02, False, True),
    ],
)
def test_ties(gain: Gain, floor: float, tie: bool, clear: bool) -> None:
    assert (gain.is_tie(floor), gain.is_clear(floor)) == (tie, clear)


def test_intervals_are_the_same_in_any_process() -> None:
    values = [random.Random(3).gauss(0, 1) for _ in range(12)]
    code = (
        "from passwright.scheduler.comparison import median_interval\n"
        f"print(repr(median_interval({values!r}, seed='4:x')))"
    )
    other = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert other.stdout.strip() == repr(median_interval(values, seed="4:x"))


def test_same_times_give_the_same_comparison() -> None:
    def once(seed: int) -> Comparison:
        clock = Clock()
        variants = {"default": clock.variant(0.02, 0.05), "b": clock.variant(0.02, 0.05)}
        return measure(variants, clock, seed=seed)

    assert once(0) == once(0)
    assert once(0).timings == once(1).timings


# ---- when it stops


def test_stops_early_when_all_is_clear() -> None:
    clock = Clock()
    variants = {
        "default": clock.variant(0.02, 0.01),
        "fast": clock.variant(0.015, 0.01),
        "slow": clock.variant(0.03, 0.01),
    }
    found = measure(variants, clock, minimum_blocks=8)
    assert found.stopped == StopReason.CLEAR
    assert len(found.timings["fast"].blocks) == 8


def test_goes_on_while_one_is_not_clear() -> None:
    clock = Clock()
    variants = {
        "default": clock.variant(0.02, 0.01),
        "fast": clock.variant(0.015, 0.01),
        "same": clock.variant(0.02, 0.01),
    }
    assert measure(variants, clock).stopped == StopReason.BLOCKS


def test_time_limit_is_kept() -> None:
    clock = Clock()
    variants = {"default": clock.variant(0.5, 0.01), "same": clock.variant(0.5, 0.01)}
    found = measure(variants, clock, time_limit=8.0)
    assert found.stopped == StopReason.TIME_LIMIT
    assert clock.now <= 8.0 + 2 * 0.5 * 1.05  # the first calls are not counted
    assert 2 <= len(found.timings["same"].blocks) < 15


def test_one_round_is_always_made() -> None:
    clock = Clock()
    found = measure({"default": clock.variant(2.0), "b": clock.variant(1.5)}, clock, time_limit=0.1)
    assert found.stopped == StopReason.TIME_LIMIT
    assert found.timings["b"].blocks == (pytest.approx(1.5),)
    assert found.gains["b"].is_tie()  # a single round proves nothing


# ---- what cannot be measured


def failing_after(calls: int, run: Callable[[], object]) -> Callable[[], object]:
    left = [calls]

    def step() -> object:
        left[0] -= 1
        if left[0] < 0:
            raise RuntimeError("out of luck\nand more lines")
        return run()

    return step


@pytest.mark.parametrize("calls", [0, 2, 10])
def test_a_variant_that_raises_is_censored(calls: int) -> None:
    clock = Clock()
    variants = {
        "default": clock.variant(0.02),
        "bad": failing_after(calls, clock.variant(0.02)),
        "good": clock.variant(0.015),
    }
    found = measure(variants, clock)
    assert found.censored == {"bad": "RuntimeError: out of luck"}
    assert set(found.gains) == {"good"}
    assert found.gains["good"].speedup == pytest.approx(4 / 3)
    # What was measured before stays in the record.
    assert len(found.timings["bad"].blocks if calls == 10 else ()) == (7 if calls == 10 else 0)


@pytest.mark.parametrize("calls", [0, 10])
def test_nothing_left_to_compare(calls: int) -> None:
    clock = Clock()
    variants = {"default": clock.variant(0.02), "bad": failing_after(calls, clock.variant(0.02))}
    found = measure(variants, clock)
    assert found.gains == {}
    assert set(found.censored) == {"bad"}
    assert found.stopped == StopReason.NO_VARIANT


@pytest.mark.parametrize("calls", [0, 2, 10])
def test_a_baseline_that_raises_ends_it(calls: int) -> None:
    clock = Clock()
    variants = {
        "default": failing_after(calls, clock.variant(0.02)),
        "good": clock.variant(0.01),
    }
    found = measure(variants, clock)
    assert found.stopped == StopReason.BASELINE_FAILED
    assert found.gains == {}
    assert found.floor == math.inf
    assert set(found.censored) == {"default"}


def test_a_hopelessly_slow_variant_is_censored() -> None:
    clock = Clock()
    variants = {"default": clock.variant(0.02), "slow": clock.variant(0.1)}
    found = measure(variants, clock)
    assert found.censored == {"slow": "time-out: 5 times the baseline's time, the limit is 2"}
    assert found.stopped == StopReason.NO_VARIANT
    assert set(measure(variants, clock, timeout_factor=6.0).gains) == {"slow"}


def test_one_hiccup_is_no_time_out() -> None:
    clock = Clock()
    taken = [0.02, 1.0, 1.0]  # the first call and the first two tries

    def step() -> None:
        clock.now += taken.pop(0) if taken else 0.02

    found = measure({"default": clock.variant(0.02), "disturbed": step}, clock)
    assert found.censored == {}


def test_keyboard_interrupt_passes_through() -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    clock = Clock()
    with pytest.raises(KeyboardInterrupt):
        measure({"default": clock.variant(0.02), "b": interrupted}, clock)


def test_what_has_no_time_on_the_device_is_compared_by_wall_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    captured: list[str] = []

    def device_runs(variants: dict[str, Callable[[], object]]) -> Any:
        captured.extend(variants)
        return "cuda-graph", {name: lambda calls: calls * 1e-3 for name in variants}, ()

    monkeypatch.setattr(timing, "device_runs", device_runs)
    monkeypatch.setattr(torch.cuda, "device", lambda _: nullcontext())
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    clock = Clock()
    variants = {name: clock.variant(0.02) for name in ("default", "other", "replays")}
    found = compare(
        variants,
        baseline="default",
        device=torch.device("cuda"),
        clock=clock,
        wall_only=["replays"],
    )
    assert captured == ["default", "other"]
    assert found.timings.keys() == {"default", "other"}
    assert found.censored == {}
    assert found.wall is not None
    assert found.wall.timings.keys() == variants.keys()
    with pytest.raises(ValueError, match="needs a time on the device"):
        measure(variants, clock, wall_only=["default"])


def test_unknown_baseline() -> None:
    with pytest.raises(ValueError, match="no variant is named 'default'"):
        measure({"a": lambda: None}, Clock())


@pytest.mark.parametrize("options", [{"blocks": 0}, {"block_seconds": 0.0}])
def test_nothing_to_measure(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        measure({"default": lambda: None}, Clock(), **options)


# ---- JSON


def test_json_round_trip() -> None:
    clock = Clock()
    variants = {
        "default": clock.variant(0.02, 0.1),
        "b": clock.variant(0.02, 0.1),
        "bad": failing_after(0, clock.variant(1.0)),
    }
    found = measure(variants, clock)
    assert Comparison.from_json(found.to_json()) == found


def test_json_round_trip_of_what_is_not_finite_and_nested() -> None:
    timing = Timing("default", "cuda-event", (0.1,), 3)
    inner = Comparison("default", {"default": timing}, {}, math.inf, "time limit")
    found = Comparison(
        "default",
        {"default": timing},
        {"b": Gain(0.1, -math.inf, math.inf)},
        math.inf,
        "time limit",
        {"c": "RuntimeError"},
        timing,
        ("timed by events",),
        inner,
    )
    text = found.to_json()
    json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert Comparison.from_json(text) == found

"""What two compiles of one graph seldom differ by."""

from __future__ import annotations

import math
import random

import pytest
from record_rows import record

from passwright.training.conformal import conformal_quantile
from passwright.training.noise import Noise, Pair, default_time, pair_of, with_floors


def pairs(count: int, *, spread: float = 0.01, time: float = 0.0, name: str = "w") -> list[Pair]:
    draw = random.Random(f"{count} {spread} {time}")
    return [Pair(f"{name}{n}", time, draw.gauss(0.0, spread)) for n in range(count)]


def test_new_pairs_lie_within_the_floor_as_often_as_it_says() -> None:
    """Also where a few pairs differ by much more than the others."""
    draw = random.Random(0)

    def difference() -> float:
        return draw.gauss(0.0, 0.1 if draw.random() < 0.1 else 0.005)

    inside = total = 0
    for _ in range(200):
        noise = Noise([Pair(f"w{n}", 0.0, difference()) for n in range(99)])
        floor = noise.floor("another", 0.0)
        inside += sum(abs(difference()) <= floor for _ in range(50))
        total += 50
    assert 0.95 < inside / total < 0.98


def test_nobody_vouches_for_himself() -> None:
    noise = Noise([*pairs(30), Pair("loud", 0.0, 0.5)])
    assert noise.floor("loud", 0.0) < 0.1
    assert noise.floor("another", 0.0) == 0.5
    assert Noise([Pair("loud", 0.0, 0.5)]).floor("loud", 0.0) == 0.0


def test_of_few_pairs_it_is_the_largest() -> None:
    noise = Noise([Pair("a", 0.0, 0.01), Pair("b", 0.0, -0.03), Pair("c", 0.0, 0.02)])
    assert noise.floor("d", 0.0) == 0.03


def test_the_quantile_is_that_of_split_conformal_prediction() -> None:
    scores = [5.0, 1.0, 4.0, 2.0, 3.0, 9.0, 7.0, 8.0, 6.0]
    assert conformal_quantile(scores, 0.5) == 5.0  # the fifth of nine, in ten places
    assert conformal_quantile(scores, 0.51) == 6.0
    assert conformal_quantile(scores, 0.99) == 9.0
    with pytest.raises(ValueError, match="no score"):
        conformal_quantile([], 0.9)
    noise = Noise([Pair(f"w{n}", 0.0, score) for n, score in enumerate(scores * 4)])
    assert noise.floor("another", 0.0) == conformal_quantile(scores * 4, 0.96)


def test_graphs_that_take_about_as_long_count() -> None:
    short = pairs(120, spread=0.1, time=math.log(5e-6), name="short")
    long = pairs(120, spread=0.001, time=math.log(5e-3), name="long")
    noise = Noise([*short, *long])
    assert noise.floor("new", math.log(6e-6)) > 0.1
    assert noise.floor("new", math.log(4e-3)) < 0.01


def test_records_get_the_floor_of_their_device() -> None:
    times = {"default_blocks": (1e-3, 2e-3, 1e-3), "again_blocks": (1e-3,)}
    there = [
        record(workload=f"w{n}", proposed_by="nothing", gain=0.04, floor=0.001, **times)
        for n in range(20)
    ]
    elsewhere = record(workload="w", device="another", gain=0.01, floor=0.002, **times)
    plan = record(workload="w", gain=0.03, floor=0.001, **times)
    noisy = record(workload="w", gain=0.03, floor=0.2, **times)
    censored = record(workload="w", status="censored", gain=None, floor=None)
    found = with_floors([*there, elsewhere, plan, noisy, censored])
    assert [r.floor for r in found[20:]] == [0.002, 0.04, 0.2, None]
    assert [r.floor for r in found[:20]] == [0.04] * 20


def test_without_raw_times_there_is_no_pair() -> None:
    assert default_time(record(default_blocks=(), again_blocks=())) is None
    assert pair_of(record(proposed_by="nothing", default_blocks=(), again_blocks=())) is None
    assert pair_of(record(proposed_by="walk", default_blocks=(1.0,))) is None

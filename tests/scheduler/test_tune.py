"""Tuning one graph when time is short: what is compiled first, what is left out, what is kept."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import fx

from passwright.passes.testing import capture
from passwright.scheduler.allowance import ROUND, Allowance
from passwright.scheduler.compiler import Compiler
from passwright.scheduler.optimize import Scheduler
from passwright.scheduler.plan import Plan
from passwright.scheduler.settings import Settings
from passwright.scheduler.tune import Tuned, tune_graph

_SECONDS = 0.3


def model(x: torch.Tensor) -> torch.Tensor:
    for _ in range(2):
        x = torch.cat([torch.sigmoid(piece) for piece in x.split(8, dim=1)], dim=1)
    return x


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[fx.GraphModule]:
    """What was compiled: eagerly, and as slowly as if it were done well."""
    found: list[fx.GraphModule] = []

    def slow(gm: fx.GraphModule, _: Sequence[Any], **__: Any) -> Callable[..., Any]:
        found.append(gm)
        time.sleep(_SECONDS)
        return gm.forward

    monkeypatch.setattr("passwright.scheduler.compiler.compile_with_inductor", slow)
    return found


def tuned(place: Path, seconds: float, parts: Sequence[int] = ()) -> Tuned:
    """Tunes the model within so many seconds; proposals are so many steps of its plan each."""
    options = {"plan_directory": str(place), "mode": "tune", "tune_seconds": "0.5"}
    scheduler = Scheduler.of(Settings.resolve(options, environment={}))
    gm, inputs = capture(model, (torch.randn(16, 64),))
    with torch.no_grad():
        _, plan = Compiler(scheduler).plan(gm, inputs)
        assert isinstance(plan, Plan)
        assert len(plan.steps) > 1
        proposals = [plan.replaced(steps=plan.steps[:count]) for count in parts]
        seen: list[Tuned] = []
        deadline = time.monotonic() + seconds
        tune_graph(
            Compiler(scheduler),
            gm,
            inputs,
            again=True,
            proposals=proposals,
            deadline=deadline,
            observe=seen.append,
        )
    return seen[0]


def test_without_a_deadline_all_are_compared(
    tmp_path: Path, compiled: list[fx.GraphModule]
) -> None:
    found = tuned(tmp_path, math.inf, parts=[1])
    names = [variant.name for variant in found.variants]
    assert names[:2] == ["default", "searched 1"]
    assert "predicted" in names


def test_when_time_is_up_default_is_still_compared_with_one_plan(
    tmp_path: Path, compiled: list[fx.GraphModule]
) -> None:
    start = time.monotonic()
    found = tuned(tmp_path, -1.0, parts=[1, 2])
    assert time.monotonic() - start < 2 * _SECONDS + 2 * ROUND + 5.0
    assert [variant.name for variant in found.variants] == ["default", "searched 1"]
    assert len(compiled) == 2
    assert found.comparison is not None
    assert found.path.is_file()


def test_without_proposals_that_plan_is_the_predicted_one(
    tmp_path: Path, compiled: list[fx.GraphModule]
) -> None:
    found = tuned(tmp_path, -1.0)
    assert [variant.name for variant in found.variants] == ["default", "predicted"]


def test_what_was_searched_is_not_compiled_again_as_predicted(
    tmp_path: Path, compiled: list[fx.GraphModule]
) -> None:
    found = tuned(tmp_path, math.inf, parts=[1000])
    labels = [tuple(step.label for step in v.plan.steps) for v in found.variants]
    assert len(set(labels)) == len(labels)
    assert "predicted" not in [variant.name for variant in found.variants]


def test_an_allowance_has_room_for_what_takes_as_long_as_the_slowest() -> None:
    allowance = Allowance(time.monotonic() + ROUND + 30.0)
    assert allowance.has_room(2)
    with allowance.spent():
        time.sleep(0.01)
    assert 0.01 <= allowance.slowest < 10.0
    assert allowance.has_room(5)
    allowance.slowest = 25.0  # less than is left, but the next one may be slower
    assert not allowance.has_room(2)
    assert allowance.has_room(1)
    assert Allowance().has_room(2)

"""Tuning one graph when time is short: what is compiled first, what is left out, what is kept."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from cli_runs import run, run_json
from torch import fx

from passwright.passes.testing import capture
from passwright.scheduler import tune
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


def tuned(
    place: Path,
    seconds: float,
    parts: Sequence[int] = (),
    now: float | None = None,
    **options: str,
) -> Tuned:
    """Tunes the model within so many seconds; proposals are so many steps of its plan each."""
    options |= {"plan_directory": str(place), "mode": "tune", "tune_seconds": "0.5"}
    scheduler = Scheduler.of(Settings.resolve(options, environment={}))
    elsewhere = options | {"plan_directory": str(place / "proposals")}
    planning = Scheduler.of(Settings.resolve(elsewhere, environment={}))
    gm, inputs = capture(model, (torch.randn(16, 64),))
    with torch.no_grad():
        _, plan = Compiler(planning).plan(gm, inputs)
        assert isinstance(plan, Plan)
        assert len(plan.steps) > 1
        proposals = [plan.replaced(steps=plan.steps[:count]) for count in parts]
        seen: list[Tuned] = []
        deadline = (time.monotonic() if now is None else now) + seconds
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


class Clock:
    """Says what the time is, and knows how long a compile takes."""

    def __init__(self, compile_seconds: float) -> None:
        self.now, self.compile_seconds = 0.0, compile_seconds

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Of the allowance: a compile takes ten seconds of it, and nothing else any."""
    clock = Clock(10.0)

    def slow(gm: fx.GraphModule, _: Sequence[Any], **__: Any) -> Callable[..., Any]:
        clock.now += clock.compile_seconds
        return gm.forward

    monkeypatch.setattr("passwright.scheduler.compiler.compile_with_inductor", slow)
    monkeypatch.setattr("passwright.scheduler.allowance.time", clock)
    return clock


@pytest.mark.parametrize(
    ("seconds", "compiled"), [(30.0, 1 + 1), (40.0, 1 + 2), (50.0, 1 + 3), (1000.0, 1 + 4)]
)
def test_no_plan_is_begun_that_may_not_be_measured_in_time(
    tmp_path: Path, clock: Clock, seconds: float, compiled: int
) -> None:
    """Half as long again as the slowest, and a second to measure."""
    found = tuned(tmp_path, seconds, parts=[1, 2, 3, 4], now=0.0, tune_choices="0")
    searched = [f"searched {number}" for number in (1, 2, 3, 4)]
    names = [variant.name for variant in found.variants]
    assert names[:compiled] == ["default", *searched][:compiled]
    assert set(searched[compiled - 1 :]) <= set(found.left_out)
    assert not set(names) & set(found.left_out)
    assert clock.now <= seconds
    assert found.kept
    assert found.comparison is not None
    assert found.path.is_file()


@pytest.mark.parametrize("seconds", [-1.0, 5.0, 20.0])
def test_without_time_for_a_plan_there_is_default_and_nothing_is_kept(
    tmp_path: Path, clock: Clock, seconds: float
) -> None:
    found = tuned(tmp_path, seconds, parts=[1, 2], now=0.0)
    assert [variant.name for variant in found.variants] == ["default"]
    assert found.left_out == ("searched 1", "searched 2", "predicted", "bold")
    assert clock.now == clock.compile_seconds
    assert (found.kept, found.comparison) == (False, None)
    assert not found.path.exists()
    assert (found.best.plan.origin, found.best.plan.measured) == ("predicted", None)


def test_what_was_kept_before_stays_where_there_is_no_time(tmp_path: Path, clock: Clock) -> None:
    kept = tuned(tmp_path, 1000.0, parts=[1], now=0.0).path.read_text(encoding="utf-8")
    found = tuned(tmp_path, clock.now + 5.0, parts=[1], now=0.0)
    assert not found.kept
    assert found.path.read_text(encoding="utf-8") == kept


def test_calls_that_take_long_are_reckoned_with(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call of a quarter of a second is made several times for each variant."""
    steps_of = tune.steps_of

    def slow(*arguments: Any) -> Any:
        steps, device = steps_of(*arguments)
        return {name: lambda: time.sleep(0.25) for name in steps}, device

    monkeypatch.setattr(tune, "steps_of", slow)
    found = tuned(tmp_path, 27.0, parts=[1], now=0.0)
    assert "searched 1" in found.left_out
    found = tuned(tmp_path, clock.now + 31.0, parts=[1], now=0.0)
    assert "searched 1" not in found.left_out


def test_inputs_that_cannot_be_made_are_no_reason_to_give_up(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing has to be called where there is nothing to compare."""

    def none(*_: Any) -> Any:
        raise RuntimeError("no input of this kind can be made")

    monkeypatch.setattr(tune, "steps_of", none)
    found = tuned(tmp_path, 20.0, now=0.0)
    assert [variant.name for variant in found.variants] == ["default"]


def test_the_command_says_what_there_was_no_time_for(
    commands_plans: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "passwright.scheduler.compiler.compile_with_inductor", lambda gm, _, **__: gm.forward
    )
    monkeypatch.setattr("passwright.training.tune_search.best_plans", lambda *_, **__: [])
    arguments = ("tune", "own:norm_branches?fields=3", "--batch", "4", "--device", "cpu")
    shown = run(*arguments, "--budget", "1s")
    assert shown.exit_code == 0
    assert "in time: predicted, bold. A longer --budget" in shown.stdout
    assert "so nothing is kept" in shown.stdout
    assert "From now on" not in shown.stdout
    (graph,) = run_json(*arguments, "--budget", "1s")["graphs"]
    assert graph["left_out"] == ["predicted", "bold"]
    assert not graph["measured_now"]
    assert graph["winner"] is None
    assert not list(commands_plans.glob("*.json"))


def test_when_there_is_no_deadline_nothing_is_timed_for_it(
    tmp_path: Path, compiled: list[fx.GraphModule], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    steps_of = tune.steps_of
    monkeypatch.setattr(
        tune, "steps_of", lambda *given: (calls.append(len(given[0])), steps_of(*given))[1]
    )
    found = tuned(tmp_path, math.inf, parts=[1])
    assert min(calls) > 1
    assert found.left_out == ()


def test_what_was_searched_is_not_compiled_again_as_predicted(
    tmp_path: Path, compiled: list[fx.GraphModule]
) -> None:
    found = tuned(tmp_path, math.inf, parts=[1000])
    labels = [tuple(step.label for step in v.plan.steps) for v in found.variants]
    assert len(set(labels)) == len(labels)
    assert "predicted" not in [variant.name for variant in found.variants]


def test_an_allowance_has_room_for_what_takes_as_long_as_the_slowest() -> None:
    allowance = Allowance(time.monotonic() + ROUND + 30.0)
    assert allowance.has_room()
    with allowance.spent():
        time.sleep(0.01)
    assert 0.01 <= allowance.slowest < 10.0
    assert allowance.has_room(measuring=5.0)
    assert not allowance.has_room(measuring=40.0)
    allowance.slowest = 25.0  # less than is left, but the next one may be slower
    assert not allowance.has_room()
    assert Allowance().has_room(measuring=1e6)

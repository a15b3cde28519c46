"""What fails is dropped, and the compile goes on: settings, choices about kernels, what takes too long."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import fx

from passwright.passes.errors import TimeLimit
from passwright.scheduler.choices import UNKNOWN, all_choices
from passwright.scheduler.guard import Guard
from passwright.scheduler.inductor import option
from passwright.scheduler.optimize import Scheduler, collect_plans
from passwright.scheduler.plan import Plan, Step
from passwright.scheduler.settings import Settings
from passwright.scheduler.time_limit import time_limit


def step(name: str) -> Step:
    return next(c for c in all_choices() if c.name == name).step(UNKNOWN)


LARGE, DEAR = step("large_fusions"), step("coordinate_descent")


class Kernels:
    """Stands in for the passes of Inductor-IR."""

    def __init__(self, made: bool) -> None:
        self.made = made
        self.refused: list[str] = []

    def begin(self) -> None: ...

    def refuse(self, reason: str) -> bool:
        self.refused.append(reason)
        return self.made


def guarded(
    inner: Callable[..., Any], *steps: Step, seconds: float = 60.0, kernels: Any = None
) -> tuple[Guard, list[tuple[str, str]]]:
    dropped: list[tuple[str, str]] = []
    guard = Guard(
        steps, seconds, lambda s, why: dropped.append((s.pattern, why)), kernels, inner=inner
    )
    return guard, dropped


@pytest.fixture
def graph() -> fx.GraphModule:
    return fx.symbolic_trace(torch.nn.ReLU())


def seen_options(*_: Any, **__: Any) -> tuple[Any, Any]:
    return option("max_fusion_size"), option("coordinate_descent_tuning")


def test_settings_hold_for_one_compile_alone(graph: fx.GraphModule) -> None:
    guard, dropped = guarded(seen_options, LARGE, DEAR)
    before = seen_options()
    assert guard.compile_one(graph, []) == (256, True)
    assert seen_options() == before
    assert dropped == []


def test_the_dearest_setting_is_dropped_first(graph: fx.GraphModule) -> None:
    def inner(*_: Any, **__: Any) -> Any:
        if option("coordinate_descent_tuning"):
            raise torch.OutOfMemoryError("no room\nfor this")
        return seen_options()

    guard, dropped = guarded(inner, LARGE, DEAR)
    assert guard.compile_one(graph, []) == (256, False)
    assert dropped == [("coordinate_descent", "OutOfMemoryError: no room")]
    # The backward that compiles later does not try it again.
    assert guard.compile_one(graph, [], is_backward=True) == (256, False)
    assert len(dropped) == 1


def test_an_error_that_no_setting_is_to_blame_for_passes(graph: fx.GraphModule) -> None:
    def inner(*_: Any, **__: Any) -> Any:
        raise RuntimeError("always")

    guard, dropped = guarded(inner, LARGE)
    with pytest.raises(RuntimeError, match="always"):
        guard.compile_one(graph, [])
    assert [name for name, _ in dropped] == ["large_fusions"]


def test_what_takes_too_long_is_dropped(graph: fx.GraphModule) -> None:
    def inner(*_: Any, **__: Any) -> Any:
        while option("coordinate_descent_tuning"):
            time.sleep(0.01)
        return "done"

    guard, dropped = guarded(inner, DEAR, seconds=0.1)
    assert guard.compile_one(graph, []) == "done"
    assert dropped == [("coordinate_descent", "TimeLimit: took longer than 0.1 s")]


def test_choices_about_kernels_are_dropped_before_settings(graph: fx.GraphModule) -> None:
    calls: list[Any] = []

    def inner(*_: Any, **__: Any) -> Any:
        calls.append(seen_options())
        if len(calls) == 1:
            raise AssertionError("buf57")
        return "done"

    kernels = Kernels(made=True)
    guard, dropped = guarded(inner, LARGE, kernels=kernels)
    assert guard.compile_one(graph, []) == "done"
    assert kernels.refused == ["AssertionError: buf57"]
    assert dropped == []
    assert calls[1][0] == 256


def test_without_choices_about_kernels_the_error_passes(graph: fx.GraphModule) -> None:
    def inner(*_: Any, **__: Any) -> Any:
        raise AssertionError("buf57")

    guard, _ = guarded(inner, kernels=Kernels(made=False))
    with pytest.raises(AssertionError, match="buf57"):
        guard.compile_one(graph, [])


def test_dynamo_is_not_held_up(graph: fx.GraphModule) -> None:
    def inner(*_: Any, **__: Any) -> Any:
        raise torch._dynamo.exc.TensorifyScalarRestartAnalysis

    guard, dropped = guarded(inner, LARGE)
    with pytest.raises(torch._dynamo.exc.RestartAnalysis):
        guard.compile_one(graph, [])
    assert dropped == []


def test_a_setting_may_fail_outside_the_inner_compile(graph: fx.GraphModule) -> None:
    def compile_graph(gm: fx.GraphModule, settings: Any, inner: Any) -> Any:
        if "coordinate_descent_tuning" in settings:
            raise RuntimeError("early")
        return dict(settings)

    guard, dropped = guarded(seen_options, LARGE, DEAR)
    assert guard.compile(compile_graph, graph) == {"max_fusion_size": 256}
    assert dropped == [("coordinate_descent", "RuntimeError: early")]


def test_a_dropped_setting_is_named_and_not_tried_again(tmp_path: Any) -> None:
    scheduler = Scheduler.of(Settings(plan_directory=str(tmp_path)))
    plan = Plan("f" * 12, context="c", steps=(LARGE, DEAR))
    left = scheduler.drop_setting(plan, DEAR, "RuntimeError: early")
    assert left.settings == (LARGE,)
    assert left.skipped == (f"{DEAR.label}: RuntimeError: early",)
    [(_, kept)] = [*scheduler.store]
    assert kept == left


@pytest.mark.parametrize("where", ["the main thread", "another thread"])
def test_time_limits(where: str) -> None:
    found: list[str] = []

    def wait() -> None:
        try:
            with time_limit(0.1):
                while True:
                    time.sleep(0.01)
        except TimeLimit as error:
            found.append(str(error))
        with time_limit(60.0):
            time.sleep(0.05)

    if where == "the main thread":
        wait()
    else:
        thread = threading.Thread(target=wait)
        thread.start()
        thread.join(20)
    assert found == ["took longer than 0.1 s"]


@pytest.mark.inductor
def test_a_plan_with_settings_compiles_with_them(tmp_path: Any) -> None:
    """A setting given in a plan file; and one that this machine does not have is named."""

    def f(x: torch.Tensor) -> torch.Tensor:
        return x.sin() + x.cos()

    x = torch.randn(8)
    directory = str(tmp_path / "plans")
    torch._dynamo.reset()
    with collect_plans() as plans:
        torch.compile(f, backend="passwright", options={"plan_directory": directory})(x)
    plan = plans[0].plan.replaced(steps=(LARGE, step("combo_kernels")), origin="predicted")
    file = tmp_path / "settings.plan"
    file.write_text(plan.to_text(), encoding="utf-8")
    torch._dynamo.reset()
    options = {"plan": str(file), "plan_directory": directory}
    with collect_plans() as plans:
        found = torch.compile(f, backend="passwright", options=options)(x)
    torch.testing.assert_close(found, f(x))
    assert [s.pattern for s in plans[0].plan.settings] == ["large_fusions", "combo_kernels"]

"""Choices about kernels inside Inductor: carried out, cached, replayed; and nothing happens if they fail.

On a CPU the shipped patterns have nothing to say, so these tests let them.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from passwright.passes.inductor.fuse_siblings import FuseSiblings
from passwright.passes.inductor.keep_cats_apart import KeepCatsApart
from passwright.passes.inductor.kernels import KernelView
from passwright.passes.inductor.pattern import KernelEditor, KernelMatch, KernelPattern, When
from passwright.scheduler import kernel_planner
from passwright.scheduler.donations import Donations
from passwright.scheduler.gain import Interval
from passwright.scheduler.inductor import cache_counters
from passwright.scheduler.kernel_counts import capture_kernels
from passwright.scheduler.optimize import Applied, Scheduler, collect_plans

pytestmark = pytest.mark.inductor
SURE = Interval(0.5, 0.4, 0.6)


class Branches(torch.nn.Module):
    """Independent pointwise kernels of one size, and a cat that a norm reads."""

    def forward(self, *xs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        rows = torch.cat([x[:, :8].sin() * n for n, x in enumerate(xs, 1)], -1)
        centred = rows - rows.mean(-1, keepdim=True)
        return (*(x.exp() + n for n, x in enumerate(xs)), centred)


class OnCpu(FuseSiblings):
    devices = frozenset({"cpu"})


class CatsOnCpu(KeepCatsApart):
    devices = frozenset({"cpu"})


@pytest.fixture
def fresh_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of Inductor's, with our plans in it."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    return tmp_path


@pytest.fixture
def inputs() -> tuple[torch.Tensor, ...]:
    torch.manual_seed(0)
    return tuple(torch.randn(32, 16) for _ in range(4))


@pytest.fixture
def with_patterns(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Lets these patterns be chosen wherever they match."""

    def use(*patterns: KernelPattern) -> None:
        plain = Scheduler.of.__func__  # type: ignore[attr-defined]
        monkeypatch.setattr(
            Scheduler,
            "of",
            classmethod(lambda cls, s: replace(plain(cls, s), kernel_patterns=patterns)),
        )
        monkeypatch.setattr(kernel_planner.KernelCost, "gain", lambda *_: SURE)

    return use


def compiled(
    inputs: tuple[torch.Tensor, ...], **options: Any
) -> tuple[list[Applied], tuple[torch.Tensor, ...], int]:
    """The plans of this level, the results, and how many loops the code has."""
    torch._dynamo.reset()
    run = torch.compile(Branches(), backend="passwright", options=options)
    with collect_plans() as plans, capture_kernels() as kernels, torch.no_grad():
        results = run(*inputs)
    of_kernels = [applied for applied in plans if applied.plan.level == "inductor"]
    return of_kernels, results, sum(graph.loops for graph in kernels)


def agree(found: tuple[torch.Tensor, ...], inputs: tuple[torch.Tensor, ...]) -> None:
    torch.testing.assert_close(found, Branches()(*inputs))


def test_kernels_are_fused_and_the_plan_is_kept(
    fresh_cache: Path, inputs: tuple[torch.Tensor, ...], with_patterns: Any
) -> None:
    _, _, before = compiled(inputs, levels="torch")
    with_patterns(OnCpu())
    [applied], results, after = compiled(inputs)
    agree(results, inputs)
    assert after < before
    assert [step.pattern for step in applied.plan.steps] == ["on_cpu", "on_cpu"]
    assert (applied.plan.ops_before, applied.plan.ops_after) == (10, 4)
    assert applied.path.exists()
    assert not applied.stored


def test_a_cat_is_not_fused_into_a_reduction(
    fresh_cache: Path, inputs: tuple[torch.Tensor, ...], with_patterns: Any
) -> None:
    def rows_and_sums(*xs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        rows = torch.cat([x.sin() for x in xs], -1)
        return rows, rows.sum(-1)

    with_patterns(CatsOnCpu())
    calls = {}
    for levels in ("torch", "torch+aten+inductor"):
        torch._dynamo.reset()
        options = {"force_pointwise_cat": True, "levels": levels}
        run = torch.compile(rows_and_sums, backend="passwright", options=options)
        with collect_plans() as plans, capture_kernels() as kernels, torch.no_grad():
            results = run(*inputs)
        torch.testing.assert_close(results, rows_and_sums(*inputs))
        calls[levels] = sum(graph.loops for graph in kernels)
    steps = [s.pattern for applied in plans for s in applied.plan.steps]
    assert steps == ["cats_on_cpu"]
    assert calls["torch+aten+inductor"] > calls["torch"]


def test_caches_hit_and_a_kept_plan_is_replayed(
    fresh_cache: Path, inputs: tuple[torch.Tensor, ...], with_patterns: Any
) -> None:
    with_patterns(OnCpu())
    [first], _, _ = compiled(inputs)
    before = cache_counters()
    compiled(inputs)
    after = cache_counters()
    assert after["fx_bypass"] == before["fx_bypass"]
    assert after["aot_hit"] + after["fx_hit"] > before["aot_hit"] + before["fx_hit"]
    # Without the compiled code the kept plan is found again.
    for entry in fresh_cache.iterdir():
        if entry.name != "passwright":
            shutil.rmtree(entry)
    [again], results, _ = compiled(inputs)
    agree(results, inputs)
    assert again.stored
    assert [s.label for s in again.plan.steps] == [s.label for s in first.plan.steps]


def test_a_pattern_that_raises_costs_a_warning(
    fresh_cache: Path,
    inputs: tuple[torch.Tensor, ...],
    with_patterns: Any,
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Broken(KernelPattern):
        """Raises."""

        when = When.AFTER_FUSION
        devices = frozenset({"cpu"})

        def matches(self, view: KernelView) -> Iterator[KernelMatch]:
            raise RuntimeError("broken")

        def apply(self, m: KernelMatch, edit: KernelEditor) -> None: ...

    with_patterns(Broken())
    with caplog.at_level(logging.WARNING, "passwright"):
        _, results, _ = compiled(inputs)
    agree(results, inputs)
    assert "Inductor's kernels left as they were: broken" in caplog.text


def test_without_the_level_nothing_is_planned(
    fresh_cache: Path, inputs: tuple[torch.Tensor, ...], with_patterns: Any
) -> None:
    with_patterns(OnCpu())
    plans, _, _ = compiled(inputs, levels="torch+aten")
    assert plans == []


@pytest.mark.gpu
def test_small_kernels_share_launches_on_a_gpu(fresh_cache: Path) -> None:
    torch.manual_seed(0)
    inputs = tuple(torch.randn(64 + 32 * n, 48, device="cuda") for n in range(6))

    class Small(torch.nn.Module):
        def forward(self, *xs: torch.Tensor) -> list[torch.Tensor]:
            return [x.softmax(-1) * n for n, x in enumerate(xs)] + [x.exp() for x in xs]

    counts = {}
    for levels in ("torch+aten", "torch+aten+inductor"):
        torch._dynamo.reset()
        run = torch.compile(Small(), backend="passwright", options={"levels": levels})
        with collect_plans() as plans, capture_kernels() as kernels, torch.no_grad():
            results = run(*inputs)
        torch.testing.assert_close(results, Small()(*inputs))
        counts[levels] = sum(graph.kernels for graph in kernels)
    assert any(step.pattern == "combine_kernels" for p in plans for step in p.plan.steps)
    assert counts["torch+aten+inductor"] < counts["torch+aten"]


@pytest.mark.gpu
def test_caches_hit_on_a_gpu_forward_and_backward(fresh_cache: Path) -> None:
    torch.manual_seed(0)
    layers = torch.nn.ModuleList(torch.nn.LayerNorm(32 + 16 * n) for n in range(6)).cuda()
    inputs = [torch.randn(64, 32 + 16 * n, device="cuda") for n in range(6)]

    def step(*xs: torch.Tensor) -> torch.Tensor:
        found = [layer(x).softmax(-1).sum() for layer, x in zip(layers, xs, strict=True)]
        return torch.stack(found).sum()

    gradients, levels, counts = [], [], []
    for _ in range(2):
        torch._dynamo.reset()
        layers.zero_grad()
        with collect_plans() as plans:
            torch.compile(step, backend="passwright", dynamic=False)(*inputs).backward()
        gradients.append([p.grad for p in layers.parameters()])
        levels.append({applied.plan.level for applied in plans if applied.plan.steps})
        counts.append(cache_counters())
    first, second = counts
    assert "inductor" in levels[0]
    assert "inductor" not in levels[1]  # nothing is planned where the cache knows the code
    assert second["fx_bypass"] == first["fx_bypass"]
    assert second["aot_hit"] + second["fx_hit"] > first["aot_hit"] + first["fx_hit"]
    torch.testing.assert_close(gradients[0], gradients[1])


def test_a_plan_shows_all_levels_without_compiling(
    fresh_cache: Path, inputs: tuple[torch.Tensor, ...], with_patterns: Any
) -> None:
    from passwright.scheduler.commands.models import Subject
    from passwright.scheduler.commands.plan import plan_model
    from passwright.scheduler.settings import Settings

    with_patterns(OnCpu())
    with capture_kernels() as kernels:
        [graph] = plan_model(Subject("branches", Branches(), inputs, False), Settings())
    assert graph.below_error == ""
    assert [applied.plan.level for applied in graph.below] == ["aten", "inductor"]
    assert [step.pattern for step in graph.below[1].plan.steps] == ["on_cpu", "on_cpu"]
    assert kernels == []
    # The compile that comes later finds this plan.
    [applied], results, _ = compiled(inputs)
    agree(results, inputs)
    assert applied.stored


def test_as_passes_in_stock_inductor_it_stops_at_aten() -> None:
    from passwright.scheduler import passwright_options

    aten = {"pre_grad_custom_pass", "post_grad_custom_pre_pass"}
    assert passwright_options().keys() == aten | Donations().passes().keys()


def test_what_was_chosen_can_be_taken_back(
    fresh_cache: Path,
    inputs: tuple[torch.Tensor, ...],
    with_patterns: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Inductor fails on kernels that were put together: they stay as they were, and are not tried again."""
    from torch._inductor.codegen.cpp import CppScheduling

    codegen = CppScheduling.codegen_node

    def fails_once_fused(self: Any, node: Any) -> Any:
        # Four kernels of one size are in one node only where we put them there.
        if len(node.get_nodes()) >= 4:
            raise AssertionError("buf57")
        return codegen(self, node)

    with_patterns(OnCpu())
    monkeypatch.setattr(CppScheduling, "codegen_node", fails_once_fused)
    with caplog.at_level(logging.WARNING, "passwright"):
        [first], results, _ = compiled(inputs)
    agree(results, inputs)
    assert first.plan.steps
    assert "choices about kernels are dropped from the plan" in caplog.text
    assert "buf57" in caplog.text
    caplog.clear()
    for entry in fresh_cache.iterdir():
        if entry.name != "passwright":
            shutil.rmtree(entry)
    with caplog.at_level(logging.WARNING, "passwright"):
        [again], results, _ = compiled(inputs)
    agree(results, inputs)
    assert again.stored
    assert again.plan.steps == ()
    assert caplog.text == ""

"""Measuring plans: records with blocks, equal code without any, and failures that cost one record each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import fx

from passwright.passes.graph import GraphView
from passwright.scheduler.device import describe_gpu
from passwright.scheduler.gain import Interval
from passwright.training import measure as measuring
from passwright.training.judge import Judge
from passwright.training.late_tuning import Known
from passwright.training.measure import Measuring, measure
from passwright.training.model_plan import NOTHING, ModelPlan
from passwright.training.plan_text import plans_of
from passwright.training.proposals import Graphs, propose
from passwright.training.recording import About
from passwright.training.records import Record, Status
from passwright.training.workloads import build
from passwright.training.workloads.capture import captured

CPU = torch.device("cpu")
NAME = "own:norm_branches?fields=3"


@pytest.fixture
def plans() -> list[ModelPlan]:
    """Doing nothing, and two plans."""
    module, inputs = build(NAME, batch=16)
    graphs = Graphs(captured(module, inputs, train=False), describe_gpu("NVIDIA H200"), False)
    return propose(graphs, count=3)


@pytest.fixture
def inductor(monkeypatch: pytest.MonkeyPatch) -> list[fx.GraphModule]:
    """Stands in for Inductor: runs the graph as it is, and keeps it. `refuses` says what it cannot."""
    seen: list[fx.GraphModule] = []

    def compile_graph(gm: fx.GraphModule, inputs: Sequence[Any], **_: Any) -> Callable[..., Any]:
        seen.append(gm)
        return gm.forward

    monkeypatch.setattr(measuring, "compile_with_inductor", compile_graph)
    return seen


def records(plans: Sequence[ModelPlan], **how: Any) -> list[Record]:
    module, inputs = build(NAME, batch=16)
    about = About(NAME, "branches", batch=16)
    # Times of so small a model are mostly noise.
    return measure(module, inputs, plans, CPU, about=about, timeout_factor=1e6, **how)


def unlike(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every compile makes other code."""
    made = measuring._Compiler.made
    count = iter(range(100))

    def numbered(self: Any, plan: ModelPlan, *, cold: bool) -> Any:
        run, facts = made(self, plan, cold=cold)
        return run, {**facts, "codes": [str(next(count))]}

    monkeypatch.setattr(measuring._Compiler, "made", numbered)


def test_a_record_for_each_plan(
    plans: list[ModelPlan], inductor: list[fx.GraphModule], monkeypatch: pytest.MonkeyPatch
) -> None:
    unlike(monkeypatch)
    found = records(plans, seconds=1.0)
    assert [r.status for r in found] == [Status.MEASURED] * 3
    assert [r.result for r in found] == [plan.key for plan in plans]
    assert [r.proposed_by for r in found] == [plan.by for plan in plans]
    for record, plan in zip(found, plans, strict=True):
        assert record.gain is not None
        assert record.lower is not None
        assert record.upper is not None
        assert record.lower <= record.gain <= record.upper
        assert len(record.blocks) == len(record.default_blocks) == len(record.again_blocks) > 0
        assert all(seconds > 0 for seconds in record.blocks)
        assert record.method == "wall"
        assert record.steps == plan.steps
        assert record.patterns
        assert record.date
    module, inputs = build(NAME, batch=16)
    [graph] = captured(module, inputs, train=False)
    assert {r.graph for r in found} == {GraphView(graph.graph).fingerprint}
    assert [p.steps for p in map(plan_of, found)] == [plan.steps for plan in plans]


def plan_of(record: Record) -> ModelPlan:
    return ModelPlan(tuple(plans_of(record.plan)))


def test_doing_nothing_is_tuned_anew_and_plans_by_what_is_known(
    plans: list[ModelPlan], inductor: list[fx.GraphModule], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each first run, and whether it may use what is known of kernels."""
    unlike(monkeypatch)
    using: list[Known | None] = []
    runs: list[Known | None] = []

    @contextmanager
    def tuned(known: Known | None = None) -> Iterator[None]:
        using.append(known)
        yield
        using.pop()

    compared = measuring.Variants.compared

    def counted(made: Any, **how: Any) -> Any:
        runs.append(using[-1])
        return compared(made, **how)

    anew = measuring._tune_anew

    def called(step: Callable[[], object]) -> None:
        anew(lambda: runs.append(using[-1]))

    monkeypatch.setattr(measuring, "tuned_by_replays", tuned)
    monkeypatch.setattr(measuring.Variants, "compared", counted)
    monkeypatch.setattr(measuring, "_tune_anew", called)
    known: Known = {"a kernel": [1e-6]}
    records(plans, seconds=0.5, known=known)
    assert runs == [None, known]
    assert sum(plan.by == NOTHING for plan in plans) == 1


def test_one_default_compile_serves_for_several_calls(
    plans: list[ModelPlan], inductor: list[fx.GraphModule], monkeypatch: pytest.MonkeyPatch
) -> None:
    unlike(monkeypatch)
    module, inputs = build(NAME, batch=16)
    on = Measuring(module, inputs, CPU, about=About(NAME, "branches", batch=16))
    for plan in (plans[1], plans[2], plans[1]):
        [record] = on.records([plan], seconds=0.5, timeout_factor=1e6)
        assert record.status == Status.MEASURED
        assert record.result == plan.key
        assert record.default_blocks
    assert len(inductor) == 4
    [twice] = on.records(plans[1:2], seconds=0.5, timeout_factor=1e6)
    assert (twice.graph, twice.default_kernels) == (record.graph, record.default_kernels)


def test_what_fails_leaves_nothing_behind(
    plans: list[ModelPlan], inductor: list[fx.GraphModule], monkeypatch: pytest.MonkeyPatch
) -> None:
    unlike(monkeypatch)
    module, inputs = build(NAME, batch=16)
    on = Measuring(module, inputs, CPU, about=About(NAME, "branches", batch=16))

    def fails(*_: object, **__: object) -> None:
        raise RuntimeError("no clock")

    with monkeypatch.context() as broken:
        broken.setattr(measuring.Variants, "compared", fails)
        with pytest.raises(RuntimeError, match="no clock"):
            on.records(plans, seconds=0.5)
    [record] = on.records(plans[1:2], seconds=0.5, timeout_factor=1e6)
    assert record.status == Status.MEASURED
    assert on._made is not None
    assert [*on._made.steps] == ["default"]


def test_equal_code_is_an_exact_zero_and_takes_no_timing(
    plans: list[ModelPlan], inductor: list[fx.GraphModule]
) -> None:
    # The stand-in makes no code at all, so that all of it is equal.
    nothing, *others = records(plans, seconds=1.0)
    assert nothing.status == Status.MEASURED  # how far two compiles of one graph differ
    for record in others:
        assert record.status == Status.SAME_CODE
        assert record.gain == record.lower == record.upper == 0.0
        assert record.blocks == ()


def test_what_does_not_compile_or_is_wrong_costs_one_record(
    plans: list[ModelPlan], monkeypatch: pytest.MonkeyPatch
) -> None:
    unlike(monkeypatch)
    calls: list[int] = []

    def broken(gm: fx.GraphModule, inputs: Sequence[Any], **_: Any) -> Callable[..., Any]:
        calls.append(1)
        if len(calls) == 3:
            raise RuntimeError("no code for this")
        if len(calls) == 4:
            return lambda *a: tuple(1.5 * y for y in gm.forward(*a))
        return gm.forward

    monkeypatch.setattr(measuring, "compile_with_inductor", broken)
    nothing, refused, wrong = records(plans, seconds=1.0)
    assert nothing.status == Status.MEASURED
    assert refused.status == wrong.status == Status.CENSORED
    assert "no code for this" in refused.why
    assert wrong.why.startswith("wrong: ")
    assert refused.gain is wrong.gain is None
    assert refused.plan == plans[1].text


def test_where_default_compile_is_off_a_plan_may_be_about_as_far() -> None:
    def verdict(ok: bool, outputs: float = 0.0, gradients: float = 0.0) -> dict[str, Any]:
        return {"ok": ok, "output_error": outputs, "gradient_error": gradients}

    off = verdict(False, 0.1, 0.2)
    assert measuring._is_right(verdict(True), verdict(True))
    assert measuring._is_right(verdict(True), off)
    assert measuring._is_right(verdict(False, 0.15, 0.3), off)
    assert not measuring._is_right(verdict(False, 0.15, 0.9), off)
    assert not measuring._is_right(verdict(False, float("nan"), 0.1), off)
    assert not measuring._is_right(verdict(False), off)  # another shape: nothing to compare
    assert not measuring._is_right(verdict(False, 1e-6), verdict(True))


def test_a_plan_of_another_model_is_no_zero(
    plans: list[ModelPlan], inductor: list[fx.GraphModule]
) -> None:
    module, inputs = build("own:norm_branches?fields=4", batch=16)
    [record] = measure(module, inputs, plans[1:2], CPU, timeout_factor=1e6)
    assert record.status == Status.CENSORED
    assert "other graphs of this model" in record.why


def test_gradients_of_inputs_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cut of a model may have no parameter of its own."""

    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(_: Any, x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        @staticmethod
        def backward(_: Any, *grads: torch.Tensor) -> torch.Tensor:
            return 2 * grads[0]

    x = torch.randn(4, 3, requires_grad=True)
    judge = Judge(torch.nn.Tanh(), (x,), train=True)
    assert judge.verdict(torch.tanh)["ok"]
    wrong = judge.verdict(lambda y: torch.tanh(Doubled.apply(y)))
    assert not wrong["ok"]
    assert "input" in wrong["sentence"]


def test_default_compile_that_fails_is_passed_on(
    plans: list[ModelPlan], monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(gm: fx.GraphModule, inputs: Sequence[Any], **_: Any) -> Callable[..., Any]:
        raise RuntimeError("never")

    monkeypatch.setattr(measuring, "compile_with_inductor", never)
    with pytest.raises(Exception, match="never"):
        records(plans)


def test_more_plans_than_dynamo_keeps_versions(
    plans: list[ModelPlan], inductor: list[fx.GraphModule], monkeypatch: pytest.MonkeyPatch
) -> None:
    unlike(monkeypatch)
    many = [replace(plans[0], by="walk", key=str(n)) for n in range(12)]
    found = records(many, seconds=0.5)
    assert len(inductor) == 13  # each was compiled, and none run as it is
    assert [r.result for r in found] == [str(n) for n in range(12)]


def test_it_says_what_it_does(
    plans: list[ModelPlan], inductor: list[fx.GraphModule], tmp_path: Path
) -> None:
    notes: list[str] = []
    records(plans, seconds=0.5, note=notes.append)
    assert notes == ["default", *(plan.key for plan in plans), ""]


@pytest.mark.inductor
def test_with_inductor_and_gradients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    module, inputs = build(NAME, batch=16, train=True)
    graphs = Graphs(captured(module, inputs, train=True), describe_gpu("NVIDIA H200"), True)
    plans = [plan for plan in propose(graphs, count=3) if plan.steps][:1]
    [record] = measure(module, inputs, plans, CPU, train=True, seconds=1.0, timeout_factor=1e6)
    assert record.status == Status.MEASURED
    assert record.train
    assert record.kernels != record.default_kernels
    assert record.predicted == plans[0].predicted.mean  # type: ignore[union-attr]
    assert isinstance(plans[0].predicted, Interval)

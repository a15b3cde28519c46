"""Records replayed on workloads that are built again, and what is said of those that are not true."""

from __future__ import annotations

import importlib.util
import json
import random
from collections.abc import Callable
from dataclasses import replace
from importlib import resources
from typing import Any

import pytest
import torch
from record_rows import record
from torch import nn

from passwright.passes.graph import GraphView
from passwright.passes.matching import Rewriter
from passwright.passes.table import default_table
from passwright.scheduler.inductor import clone_for_compile
from passwright.scheduler.plan import Plan, Step
from passwright.training import data_replay, workloads
from passwright.training.agreement import without_dropout
from passwright.training.data_replay import Checked, check, draw, on_gpu
from passwright.training.model_plan import ModelPlan, fingerprints, settled
from passwright.training.plan_text import graphs_key, plan_key, plans_of
from passwright.training.records import Record
from passwright.training.workloads.capture import captured
from passwright.training.workloads.cuts import cuts_of
from passwright.training.workloads.exact import build_exact
from passwright.training.workloads.spec import Spec

CPU = torch.device("cpu")
NAME = "own:norm_branches?fields=3@batch=4,precision=fp32,mode={mode},seed=0"


class Branches(nn.Module):
    """What a workload could be; makes a tensor on a device of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pieces = [layer(x) for layer in self.layers]
        return torch.cat([*pieces, torch.ones(4, 8, device=x.device)], dim=1)


def make_record(
    name: str, *, train: bool = False, gpu: bool = False, build: Any = build_exact
) -> Record:
    """A true record of the plan that does the first candidate."""
    graphs = data_replay._graphs(build, name, CPU, train=train, gpu=gpu)
    plans = []
    with torch.set_grad_enabled(train):
        for graph in graphs:
            view = GraphView(clone_for_compile(graph).graph)
            [first, *_] = Rewriter(view, default_table()).candidates(cleanup=False)
            step = Step(first.pattern.name(), first.anchor, first.key, first.shown_parameters)
            plans.append(Plan(view.fingerprint, training=train, steps=(step,)))
        wanted, _ = settled(graphs, ModelPlan(tuple(plans)))
    return record(
        workload=name,
        graph=graphs_key(fingerprints(graphs)),
        plan=wanted.text,
        plan_key=plan_key(wanted.plans),
        steps=wanted.steps,
        result=wanted.key,
        train=train,
        driver="13000" if gpu else "",
    )


@pytest.fixture(scope="module")
def true() -> Record:
    return make_record(NAME.format(mode="infer"))


@pytest.mark.parametrize("train", [False, True])
def test_true_records_pass(train: bool) -> None:
    found = make_record(NAME.format(mode="train" if train else "infer"), train=train)
    assert found.steps == 1
    nothing = replace(found, plan="", plan_key=plan_key([]), steps=0, result=found.graph)
    lines: list[str] = []
    checked = check([found, nothing], CPU, done=lines.append)
    assert checked == Checked(2, 1, steps=1, patterns=default_table().version)
    assert lines == [f"{found.workload}: 2 records"]


@pytest.mark.parametrize("train", [False, True])
def test_records_of_a_gpu_pass_without_one(train: bool) -> None:
    def build(_name: str, device: torch.device) -> tuple[nn.Module, Any]:
        torch.manual_seed(0)
        return Branches().to(device), (torch.randn(4, 8, device=device),)

    there = make_record("branches", train=train, gpu=True, build=build)
    here = make_record("branches", train=train, build=build)
    assert there.graph != here.graph
    assert on_gpu(there)
    assert not on_gpu(here)
    assert check([there, here], CPU, build=build).mismatches == ()
    moved = replace(there, driver="")
    assert [wrong.what for wrong in check([moved], CPU, build=build).mismatches] == ["graph"]


@pytest.mark.skipif(
    torch.version.cuda is not None,
    reason="a torch built for CUDA replays such plans without a GPU, so there is nothing to count",
)
def test_what_takes_a_gpu_is_counted() -> None:
    """Torch without CUDA cannot say what a batch norm in training makes of fake tensors on a GPU."""

    class Normed(Branches):
        def __init__(self) -> None:
            super().__init__()
            self.norms = nn.ModuleList(nn.BatchNorm1d(8) for _ in range(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            pieces = [norm(layer(x)) for layer, norm in zip(self.layers, self.norms, strict=True)]
            return torch.cat(pieces, dim=1)

    def build(_name: str, device: torch.device) -> tuple[nn.Module, Any]:
        return Normed().to(device), (torch.randn(4, 8, device=device),)

    [graph] = data_replay._graphs(build, "normed", CPU, train=True, gpu=True)
    view = GraphView(clone_for_compile(graph).graph)
    candidates = Rewriter(view, default_table()).candidates(cleanup=False)
    norms = next(c for c in candidates if "norm" in c.pattern.name())
    step = Step(norms.pattern.name(), norms.anchor, norms.key)
    plan = Plan(view.fingerprint, training=True, steps=(step,))
    found = record(
        workload="normed",
        graph=view.fingerprint,
        plan=plan.to_text(),
        plan_key=plan_key([plan]),
        steps=1,
        train=True,
        driver="13000",
    )
    checked = check([found], CPU, build=build)
    assert (checked.need_gpu, checked.mismatches) == (1, ())
    other = check([replace(found, graph="another")], CPU, build=build)
    assert (other.need_gpu, len(other.mismatches)) == (0, 1)


@pytest.mark.parametrize("model", ["zoo:rechub/AITM", "zoo:deepctr/MMOE"])
def test_graphs_are_as_they_were_on_a_gpu(model: str) -> None:
    """Fingerprints that a run on an H200 noted are found without one. One of the models makes a tensor
    on the CPU wherever it is, the other names its device."""
    package = {"rechub": "torch_rechub", "deepctr": "deepctr_torch"}[model[4:].split("/")[0]]
    if importlib.util.find_spec(package) is None:
        pytest.skip("the public models are not installed: pip install 'passwright[zoo]'")
    file = resources.files("passwright.data") / "reports" / "headroom-h200.json"
    rows = json.loads(file.read_text(encoding="utf-8"))["rows"]
    [row] = [row for row in rows if row["model"] == model and not row["train"]]

    def build(name: str, device: torch.device) -> tuple[nn.Module, Any]:
        module, inputs = workloads.build(name, batch=row["batch"], device=device)
        return without_dropout(module), inputs

    graphs = data_replay._graphs(build, model, CPU, train=False, gpu=True)
    assert fingerprints(graphs) == [plan["fingerprint"] for plan in row["plans"]]


def with_anchor(plan: str) -> str:
    """Another anchor, where nothing matches."""
    head, at, rest = plan.partition(" @ ")
    return f"{head}{at}{'0' * 12}{rest[12:]}"


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda r: replace(r, graph="another"), ["graph"]),
        (lambda r: replace(r, steps=2), ["steps"]),
        (lambda r: replace(r, plan_key="another"), ["plan key"]),
        (lambda r: replace(r, result="another"), ["result"]),
        (lambda r: replace(r, plan=with_anchor(r.plan)), ["step", "plan key"]),
        (lambda r: replace(r, plan="no plan"), ["plan"]),
        (lambda r: replace(r, plan=r.plan.replace(r.graph, "0" * 24)), ["plan", "plan key"]),
        (lambda r: replace(r, workload="own:nothing@batch=4"), ["workload"]),
    ],
)
def test_what_is_not_true_is_named(
    change: Callable[[Record], Record], what: list[str], true: Record
) -> None:
    checked = check([change(true)], CPU)
    assert [wrong.what for wrong in checked.mismatches] == what
    assert all(wrong.recorded != wrong.found for wrong in checked.mismatches)
    assert all(wrong.torch == true.torch for wrong in checked.mismatches)


def test_a_skipped_step_is_named_with_its_reason(true: Record) -> None:
    [step, _] = check([replace(true, plan=with_anchor(true.plan))], CPU).mismatches
    assert step.recorded.endswith(" @ " + "0" * 12 + step.recorded[-13:])
    assert step.found == "not found in this graph"


def test_other_inputs_make_another_graph(true: Record) -> None:
    other = replace(true, workload=true.workload.replace("batch=4", "batch=5"))
    assert [wrong.what for wrong in check([other], CPU).mismatches] == ["graph"]


def test_one_bad_workload_does_not_end_the_check(true: Record) -> None:
    def build(name: str, device: torch.device) -> tuple[nn.Module, Any]:
        if "batch=7" in name:
            raise RuntimeError("cannot be built")
        return build_exact(name, device)

    broken = replace(true, workload=true.workload.replace("batch=4", "batch=7"))
    checked = check([broken, true], CPU, build=build)
    [wrong] = checked.mismatches
    assert (wrong.workload, wrong.found) == (broken.workload, "RuntimeError: cannot be built")
    assert (checked.records, checked.workloads, checked.steps) == (2, 2, 1)


def test_lower_levels_are_counted_only(true: Record) -> None:
    lower = Plan("f" * 24, level="aten", steps=(Step("a", "b", "c"),)).to_text()
    text = true.plan + lower
    below = replace(true, plan=text, steps=2, plan_key=plan_key(plans_of(text)))
    checked = check([below], CPU)
    assert (checked.steps, checked.not_replayed, checked.mismatches) == (1, 1, ())


def test_a_draw_is_fair_and_repeatable() -> None:
    records = [record(plan_key=f"{number:04d}") for number in range(200)]
    first = draw(records, 0.1, seed=0)
    assert len(first) == 20
    shuffled = records[:]
    random.Random(1).shuffle(shuffled)
    assert draw(shuffled, 0.1, seed=0) == first
    assert draw(records, 0.1, seed=1) != first
    assert len(draw(records, 0.0, seed=0)) == 1
    assert draw(records, 1.0, seed=0) == records
    assert draw([], 0.5, seed=0) == []


def test_names_of_other_kinds_go_to_who_builds_them() -> None:
    [name] = cuts_of(Spec("own:norm_branches?fields=3", 4), count=1)
    module, inputs = build_exact(name, CPU)
    assert len(captured(module, inputs, train=False)) == 1
    module, inputs = build_exact("random:1@batch=4", CPU)
    assert len(captured(module, inputs, train=False)) == 1

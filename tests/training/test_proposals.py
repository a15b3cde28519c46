"""Plans worth measuring: of every kind, each making other graphs, and the same each time."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import fx

from passwright.passes.errors import PlanFormatError
from passwright.passes.graph import GraphView
from passwright.passes.table import default_table
from passwright.scheduler.device import describe_gpu
from passwright.scheduler.plan import Plan
from passwright.training import proposals
from passwright.training.model_plan import ModelPlan, applied, fingerprints, settled
from passwright.training.plan_text import graphs_key, plans_of
from passwright.training.proposals import Graphs, propose
from passwright.training.workloads import build
from passwright.training.workloads.capture import captured


@pytest.fixture(scope="module")
def graphs() -> Sequence[fx.GraphModule]:
    module, inputs = build("own:norm_branches?fields=4", batch=32)
    return captured(module, inputs, train=False)


@pytest.fixture(scope="module")
def found(graphs: Sequence[fx.GraphModule]) -> list[ModelPlan]:
    return propose(Graphs(graphs, describe_gpu("NVIDIA H200"), training=False), count=20)


def test_there_are_proposals_of_every_kind(found: list[ModelPlan]) -> None:
    assert len(found) == 20
    assert found[0].by == "nothing"
    assert {plan.by for plan in found} >= {"nothing", "predicted", "stock", "walk", "ablation"}
    assert len({plan.key for plan in found}) == len(found)
    assert all(plan.steps for plan in found[1:])
    assert all(plan.predicted is not None for plan in found)


def test_the_same_again_and_others_by_another_seed(
    graphs: Sequence[fx.GraphModule], found: list[ModelPlan]
) -> None:
    here = Graphs(graphs, describe_gpu("NVIDIA H200"), training=False)
    assert [p.key for p in propose(here, count=20)] == [p.key for p in found]
    others = propose(here, count=20, seed=1)
    assert {p.key for p in others} != {p.key for p in found}


def test_each_applies_to_the_graphs_from_its_text(
    graphs: Sequence[fx.GraphModule], found: list[ModelPlan]
) -> None:
    for plan in found:
        read = ModelPlan(tuple(plans_of(plan.text)))
        again, after = settled(graphs, read)
        assert again.key == plan.key == graphs_key(fingerprints(after))
        assert again.steps == plan.steps
        assert not any(p.skipped for p in again.plans)


@pytest.mark.parametrize("model", ["own:mmoe", "own:norm_branches?fields=4"])
def test_steps_of_macros_in_a_row_find_their_places_again(model: str) -> None:
    module, inputs = build(model, batch=32)
    [graph] = captured(module, inputs, train=False)
    here = Graphs([graph], describe_gpu("NVIDIA H200"), training=False)
    for order in (lambda m: (m,), lambda m: tuple(-ord(c) for c in m.pattern)):
        [plan] = proposals._everywhere(here, default_table(), order)
        assert len(plan.steps) >= 2
        again, _ = settled([graph], ModelPlan((plan,)))
        assert again.steps == len(plan.steps)


def test_the_graphs_stay_as_they_were(
    graphs: Sequence[fx.GraphModule], found: list[ModelPlan]
) -> None:
    assert graphs_key(fingerprints(graphs)) == found[0].key


def test_what_no_longer_fits_is_left_out(graphs: Sequence[fx.GraphModule]) -> None:
    fingerprint = GraphView(graphs[0].graph).fingerprint
    text = Plan(fingerprint).to_text() + "batch_linears @ 000000000000:000000000000\n"
    plan, after = settled(graphs, ModelPlan(tuple(plans_of(text))))
    assert plan.steps == 0
    assert plan.key == graphs_key(fingerprints(graphs))
    assert plan.text == ""
    assert len(after) == 1
    with pytest.raises(PlanFormatError):
        plans_of("# passwright plan 1\nnonsense")


def test_a_rewritten_copy_computes_the_same(
    graphs: Sequence[fx.GraphModule], found: list[ModelPlan]
) -> None:
    module, inputs = build("own:norm_branches?fields=4", batch=32)
    parameters = dict(module.named_parameters())
    [graph] = graphs
    given = [p for p in graph.graph.nodes if p.op == "placeholder"]
    assert len(given) == len(parameters) + len(inputs)
    values = [node.meta["example_value"] for node in given]
    real = [
        torch.randn(v.shape, generator=torch.Generator().manual_seed(n))
        for n, v in enumerate(values)
    ]
    expected = graph(*real)
    for plan in found[1:6]:
        there, _ = applied(graph, plan.plans[0])
        torch.testing.assert_close(there(*real), expected, rtol=1e-4, atol=1e-5)

"""What a step changes of an estimate is what two walks over the whole graph differ by."""

from __future__ import annotations

import pytest
import torch
from torch import fx

from passwright.passes.errors import IllegalRewrite
from passwright.passes.graph import GraphView
from passwright.passes.matching import Rewriter
from passwright.passes.pattern import Candidate
from passwright.passes.random_graphs import random_graph
from passwright.passes.sketch import Sketch
from passwright.passes.table import default_table
from passwright.scheduler.cost import GraphCost
from passwright.scheduler.device import DeviceDescriptor
from passwright.scheduler.estimate import gain_between
from passwright.scheduler.inductor import clone_for_compile
from passwright.scheduler.rehearsal_cost import RehearsalCost

TRAINING = pytest.mark.parametrize("training", [False, True], ids=["inference", "training"])


def rewriter_of(graph: fx.Graph) -> Rewriter:
    return Rewriter(GraphView(graph), default_table())


def check(
    rewriter: Rewriter, device: DeviceDescriptor, *, training: bool, folds: bool = False
) -> list[Candidate]:
    """Compares all candidates on the graph as it is; those that could be done."""
    view, done = rewriter.view, []
    found = RehearsalCost(view, device, training=training, folds=folds)
    for candidate in rewriter.candidates():
        plain = GraphCost(view, device, training=training, folds=folds)
        before = plain.estimate()
        assert (before.parts, before.kernels) == (found.before.parts, found.before.kernels)
        with rewriter.rehearsal(), view.noted() as touched:
            try:
                rewriter.apply(candidate)
            except IllegalRewrite:
                continue
            was, is_now = found.compared(touched)
            after = plain.estimate()
        assert gain_between(was, is_now) == gain_between(before, after), candidate.label
        assert (was.kernels, is_now.kernels) == (before.kernels, after.kernels), candidate.label
        assert was.seconds == pytest.approx(before.seconds, rel=1e-9)
        assert is_now.seconds == pytest.approx(after.seconds, rel=1e-9)
        done.append(candidate)
    return done


@TRAINING
@pytest.mark.parametrize("seed", range(8))
def test_random_graphs_after_random_steps(
    seed: int, training: bool, device: DeviceDescriptor
) -> None:
    rewriter = rewriter_of(random_graph(seed).module.graph)
    for _ in range(3):
        done = check(rewriter, device, training=training)
        if not done:
            return
        rewriter.apply(done[seed % len(done)])


@TRAINING
@pytest.mark.parametrize("name", ["case:D3", "own:norm_branches?fields=5"])
def test_workloads(built, name: str, training: bool, device: DeviceDescriptor) -> None:
    rewriter = rewriter_of(clone_for_compile(built(name, training)[0]).graph)
    rewriter.apply(rewriter.sweep())
    done = check(rewriter, device, training=training)
    assert done
    rewriter.apply(max(done, key=lambda candidate: len(candidate.match.nodes)))
    check(rewriter, device, training=training)


def test_folded_parameters(built, h200: DeviceDescriptor) -> None:
    """What depends on parameters alone costs nothing, wherever it is."""
    rewriter = rewriter_of(clone_for_compile(built("case:D3", False)[0]).graph)
    assert check(rewriter, h200, training=False, folds=True)


def two_columns() -> Sketch:
    """Pointwise chains over different numbers of elements, side by side."""
    s = Sketch()
    ends = []
    for rows in (4, 16):
        x = s.input(rows, 8)
        left, right = (s.call(torch.tanh, s.call(torch.add, x, n)) for n in (1, 2))
        ends.append(s.call(torch.cat, [left, right], 1))
    s.output(*ends)
    return s


def test_only_what_a_step_reaches_is_walked(
    h200: DeviceDescriptor, monkeypatch: pytest.MonkeyPatch
) -> None:
    rewriter = rewriter_of(two_columns().graph)
    found = RehearsalCost(rewriter.view, h200, training=False)
    walked: list[fx.Node] = []
    walk = GraphCost.walk

    def counting(self, nodes):
        nodes = list(nodes)
        walked.extend(nodes)
        return walk(self, nodes)

    monkeypatch.setattr(GraphCost, "walk", counting)
    nodes = list(rewriter.view.nodes())
    far = [node for node in nodes if node.op == "call_function"][5:]
    candidate = min(
        (c for c in rewriter.candidates() if set(c.match.nodes).isdisjoint(far)),
        key=lambda c: c.order,
    )
    with rewriter.rehearsal(), rewriter.view.noted() as touched:
        rewriter.apply(candidate)
        found.compared(touched)
    assert walked
    assert set(walked).isdisjoint(far)


def test_nothing_touched_is_no_gain(h200: DeviceDescriptor) -> None:
    rewriter = rewriter_of(two_columns().graph)
    found = RehearsalCost(rewriter.view, h200, training=False)
    with rewriter.view.noted() as touched:
        was, is_now = found.compared(touched)
    assert was.parts == is_now.parts
    assert gain_between(was, is_now).mean == 0


def test_what_is_noted_ends_with_its_block(h200: DeviceDescriptor) -> None:
    rewriter = rewriter_of(two_columns().graph)
    [candidate, *_] = rewriter.candidates()
    with rewriter.view.noted() as outer:
        with rewriter.rehearsal(), rewriter.view.noted() as inner:
            rewriter.apply(candidate)
        assert inner.changed
    with rewriter.rehearsal():
        rewriter.apply(candidate)
    assert set(candidate.match.nodes) & inner.changed.keys()
    # The rehearsal was undone, outside of the inner block and inside the outer.
    assert all(rewriter.view.is_living(n) or n not in candidate.match.nodes for n in outer.changed)

"""Which nodes went and which came, by which step."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from passwright.passes.graph import GraphView
from passwright.passes.matching import Rewriter
from passwright.passes.table import default_table
from passwright.scheduler.inductor import clone_for_compile
from passwright.scheduler.plan import Step
from passwright.training.report.drawing import Drawn, drawn, parameters
from passwright.training.workloads.capture import Captured, capture


class Towers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.towers = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pieces = zip(self.towers, x.split(8, dim=1), strict=True)
        return torch.cat([torch.tanh(tower(piece)) for tower, piece in pieces], 1)


@pytest.fixture(scope="module")
def found() -> Captured:
    [one] = capture(Towers(), (torch.randn(4, 24),), train=False)
    return one


def draw(found: Captured, *patterns: str) -> Drawn:
    """With the first candidate of each pattern as a step."""
    graph = clone_for_compile(found.graph).graph
    rewriter = Rewriter(GraphView(clone_for_compile(found.graph).graph), default_table())
    steps = []
    for number, name in enumerate(patterns, 1):
        candidate = next(c for c in rewriter.candidates() if c.pattern.name() == name)
        steps.append((number, Step(name, candidate.anchor, candidate.key)))
        rewriter.apply(candidate)
    return drawn(graph, steps, default_table(), parameters(found))


def test_weights_are_not_drawn_and_inputs_are(found: Captured) -> None:
    before = draw(found).before
    assert [node.call for node in before.nodes].count("linear") == 3
    [x] = [node for node in before.nodes if node.is_input]
    assert x.shape == "[4, 24]"
    assert len(before.nodes) == 1 + 1 + 3 + 3 + 3 + 1
    assert len(before.edges) == 1 + 3 + 3 + 3 + 3


def test_without_steps_before_and_after_are_alike(found: Captured) -> None:
    drawing = draw(found)
    assert drawing.before == drawing.after
    assert drawing.diffs == {}


def test_what_a_step_removed_and_inserted_is_marked(found: Captured) -> None:
    drawing = draw(found, "batch_linears")
    gone = {node.call for node in drawing.before.nodes if node.mark}
    assert "linear" in gone
    assert {node.mark for node in drawing.before.nodes} == {"", "removed"}
    assert {node.mark for node in drawing.after.nodes} == {"", "inserted"}
    assert {node.step for node in drawing.after.nodes if node.mark} == {1}
    assert not any(node.call == "linear" for node in drawing.after.nodes)
    assert any(line.startswith("- ") and "linear" in line for line in drawing.diffs[1])


def test_steps_are_told_apart(found: Captured) -> None:
    drawing = draw(found, "batch_linears", "batch_unaries")
    assert {node.step for node in drawing.before.nodes if node.mark} == {1, 2}
    # What the first inserted and the second removed is in neither picture.
    assert {node.step for node in drawing.after.nodes if node.mark} <= {1, 2}


def test_a_step_that_finds_no_place_is_passed_over(found: Captured) -> None:
    graph = clone_for_compile(found.graph).graph
    drawing = drawn(graph, [(1, Step("gone", "a1", "b2"))], default_table())
    assert drawing.diffs == {}
    assert {node.mark for node in drawing.after.nodes} == {""}

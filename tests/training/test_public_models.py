"""Every public model stays right under every candidate there is, predicted to pay or not.

Each graph that Dynamo makes of a model is rewritten by one candidate after the other, whatever the
gain model thinks, and then compared with the original: outputs, strides, written buffers (running
statistics and counters of batch norms) and, in training, gradients, against a float64 oracle. Every
run starts from the same seed, so that dropouts drop the same elements.
"""

from __future__ import annotations

import copy
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import fx

from passwright.passes.errors import FaultyRewrite, IllegalRewrite
from passwright.passes.graph import GraphView
from passwright.passes.matching import Rewriter
from passwright.passes.pattern import Candidate, Direction, Exactness
from passwright.passes.table import default_table
from passwright.passes.verify import Verdict, verify
from passwright.training.workloads import find, names
from passwright.training.workloads.workload import Workload

pytest.importorskip("torch_rechub", reason="the public models are in the extra `zoo`")

PUBLIC = [name for name in names() if name.startswith("zoo:")]
#: Fields in the quick tests. The graphs have the same shape as with 39, and fewer branches.
FEW = 10
#: Steps a graph. Some models have hundreds of candidates of one kind, and some patterns undo each
#: other: such a walk has no end of its own.
STEPS = 40
MODES = pytest.mark.parametrize("train", [False, True], ids=["inference", "training"])
MODELS = pytest.mark.parametrize("name", PUBLIC)


@dataclass
class Walk:
    """A sequence of steps on one graph, and what decides the next one."""

    draw: random.Random
    steps: list[str] = field(default_factory=list)
    uses: Counter[str] = field(default_factory=Counter)

    def rank(self, candidate: Candidate) -> tuple[Any, ...]:
        """The pattern used least so far: a step of each kind comes before the second of any."""
        return (self.uses[candidate.pattern.name()], candidate.order)


Order = Callable[[Walk, list[Candidate]], Candidate]


def in_turn(walk: Walk, candidates: list[Candidate]) -> Candidate:
    """One pattern after the other."""
    return min(candidates, key=walk.rank)


def horizontal_first(walk: Walk, candidates: list[Candidate]) -> Candidate:
    """What makes many ops one comes first, the largest batch of a pattern before smaller ones."""

    def rank(candidate: Candidate) -> tuple[Any, ...]:
        vertical = candidate.pattern.direction is not Direction.HORIZONTAL
        uses, order = walk.rank(candidate)
        return (vertical, uses, order[0], -len(candidate.match.nodes), order)

    return min(candidates, key=rank)


def at_random(walk: Walk, candidates: list[Candidate]) -> Candidate:
    """Any pattern that has candidates, then any of these."""
    chosen = walk.draw.choice(sorted({c.pattern.name() for c in candidates}))
    return walk.draw.choice([c for c in candidates if c.pattern.name() == chosen])


ORDERS = pytest.mark.parametrize("order", [in_turn, horizontal_first, at_random])


def apply_everything(graph: fx.Graph, order: Order, seed: str) -> list[str]:
    """Applies a sweep, then candidates in this order, until none is left; their labels."""
    rewriter = Rewriter(GraphView(graph), default_table())
    walk = Walk(random.Random(seed))
    refused: set[tuple[str, str, str]] = set()
    rewriter.apply(rewriter.sweep())
    while len(walk.steps) < STEPS:
        found = rewriter.candidates(cleanup=False)
        exact = [c for c in found if c.pattern.exactness is not Exactness.RELAXED]
        left = [c for c in exact if c.order not in refused]
        if not left:
            break
        chosen = order(walk, left)
        walk.uses[chosen.pattern.name()] += 1
        try:
            rewriter.apply(chosen)
            walk.steps.append(chosen.label)
        except FaultyRewrite:
            raise
        except IllegalRewrite:
            refused.add(chosen.order)
    rewriter.editor.finish()
    graph.lint()
    return walk.steps


def check(
    workload: Workload, train: bool, order: Order, caplog: pytest.LogCaptureFixture
) -> list[str]:
    """Compares every graph of the workload with what is left after `apply_everything`; the steps."""
    module, inputs = workload.build(batch=8, train=train)
    verdicts: list[Verdict] = []
    steps: list[str] = []

    def backend(gm: fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
        rewritten = copy.deepcopy(gm)
        steps.extend(apply_everything(rewritten.graph, order, workload.name))
        rewritten.recompile()
        verdicts.append(verify(gm, rewritten, example_inputs, training=train))
        forward: Callable[..., Any] = gm.forward
        return forward

    torch._dynamo.reset()
    with torch.set_grad_enabled(train):
        torch.compile(module, backend=backend, dynamic=False)(*inputs)
    assert verdicts, "Dynamo made no graph"
    for verdict in verdicts:
        assert verdict.ok, f"{verdict.sentence}\n" + "\n".join(steps)
    # A pattern whose code raises is reported once, and asked no more.
    assert not [r for r in caplog.records if r.name.startswith("passwright")], caplog.text
    return steps


@MODES
@MODELS
def test_every_candidate_keeps_the_model_right(
    name: str, train: bool, caplog: pytest.LogCaptureFixture
) -> None:
    workload = find(name)
    check(workload if workload.size is None else workload.sized(fields=FEW), train, in_turn, caplog)


@pytest.mark.slow
@pytest.mark.timeout(900)
@ORDERS
@MODES
@MODELS
def test_every_order_keeps_the_model_right(
    name: str, train: bool, order: Order, caplog: pytest.LogCaptureFixture
) -> None:
    workload = find(name)
    check(workload if workload.size is None else workload.sized(fields=FEW), train, order, caplog)


@pytest.mark.slow
@pytest.mark.timeout(900)
@MODES
@MODELS
def test_every_candidate_keeps_the_whole_model_right(
    name: str, train: bool, caplog: pytest.LogCaptureFixture
) -> None:
    check(find(name), train, in_turn, caplog)


def test_there_are_thirty_six() -> None:
    assert len(PUBLIC) == 36

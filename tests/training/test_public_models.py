"""Every public model stays right under every candidate there is, predicted to pay or not.

Each graph that Dynamo makes of a model is rewritten by one candidate after the other, whatever the
gain model thinks, and then compared with the original: outputs, written buffers, strides and, in
training, gradients, against a float64 oracle.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import fx

from passwright.passes.errors import IllegalRewrite
from passwright.passes.graph import GraphView
from passwright.passes.matching import Rewriter
from passwright.passes.table import default_table
from passwright.passes.verify import Verdict, verify
from passwright.training.workloads import find, names
from passwright.training.workloads.workload import Workload

pytest.importorskip("torch_rechub", reason="the public models are in the extra `zoo`")

PUBLIC = [name for name in names() if name.startswith("zoo:")]
#: Fields in the quick tests. The graphs have the same shape as with 39, and fewer branches.
FEW = 10
#: Steps a graph; some models have hundreds of candidates of one kind.
STEPS = 40


def apply_everything(graph: fx.Graph) -> list[str]:
    """Applies a sweep, then candidates of every pattern in turn, until none is left; their labels."""
    rewriter = Rewriter(GraphView(graph), default_table())
    rewriter.apply(rewriter.sweep())
    done: list[str] = []
    refused: set[str] = set()
    uses: dict[str, int] = {}
    while len(done) < STEPS:
        candidates = [c for c in rewriter.candidates(cleanup=False) if c.key not in refused]
        if not candidates:
            break
        # The pattern used least so far: a step of each kind comes before the second of any.
        chosen = min(candidates, key=lambda c: (uses.get(c.pattern.name(), 0), c.order))
        uses[chosen.pattern.name()] = uses.get(chosen.pattern.name(), 0) + 1
        try:
            rewriter.apply(chosen)
            done.append(chosen.label)
        except IllegalRewrite:
            refused.add(chosen.key)
    rewriter.editor.finish()
    graph.lint()
    return done


def check(workload: Workload, train: bool) -> None:
    """Compares every graph of the workload with what is left after `apply_everything`."""
    module, inputs = workload.build(batch=8, train=train)
    verdicts: list[Verdict] = []
    steps: list[str] = []

    def backend(gm: fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
        rewritten = copy.deepcopy(gm)
        steps.extend(apply_everything(rewritten.graph))
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


@pytest.mark.parametrize("train", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("name", PUBLIC)
def test_every_candidate_keeps_the_model_right(name: str, train: bool) -> None:
    workload = find(name)
    check(workload if workload.size is None else workload.sized(fields=FEW), train)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("train", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("name", PUBLIC)
def test_every_candidate_keeps_the_whole_model_right(name: str, train: bool) -> None:
    check(find(name), train)


def test_there_are_thirty_six() -> None:
    assert len(PUBLIC) == 36

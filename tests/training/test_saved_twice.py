"""A batch that is saved for the backward, together with its parts."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import fx

from passwright.passes.graph import GraphView
from passwright.passes.matching import Rewriter
from passwright.passes.table import default_table
from passwright.scheduler.inductor import clone_for_compile, compile_with_inductor, fresh_cache
from passwright.scheduler.plan import Plan
from passwright.training.judge import Judge
from passwright.training.model_plan import applied
from passwright.training.workloads.exact import build_exact

#: Experts and gates in bfloat16: torch saves the converted batch of gates, and each gate for a product.
NAME = (
    "cut:zoo:deepctr/MMOE?fields=8#batch_softmaxes:c996152dc5c2:b2984d24e170,8"
    "@batch=64,precision=bf16,mode=train,seed=0"
)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.skipif(
    importlib.util.find_spec("deepctr_torch") is None,
    reason="the public models are not installed: pip install 'passwright[zoo]'",
)
def test_gradients_are_right_though_the_batch_may_be_written_over() -> None:
    """An H200 said that they were off by more than their size; so they are on a CPU, if given away."""
    module, inputs = build_exact(NAME, torch.device("cpu"))
    judge = Judge(module, inputs, train=True)
    steps: list[str] = []

    def backend(gm: fx.GraphModule, given: Sequence[Any]) -> Callable[..., Any]:
        view = GraphView(clone_for_compile(gm).graph)
        rewriter = Rewriter(view, default_table().only(["batch_softmaxes"]))
        labels = [candidate.label for candidate in rewriter.candidates()]
        empty = Plan(GraphView(gm.graph).fingerprint, training=True)
        with torch.enable_grad():
            there, plan = applied(gm, Plan.from_text(empty.to_text() + "\n".join(labels) + "\n"))
        steps.extend(step.pattern for step in plan.steps)
        return compile_with_inductor(there, given, rewritten=True)

    with fresh_cache():
        verdict = judge.verdict(torch.compile(module, backend=backend, dynamic=False))
    assert steps == ["batch_softmaxes"]
    assert verdict["sentence"] == "agrees"

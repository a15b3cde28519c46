"""Measuring on a GPU: compiled for real, tuned late, and what fills the memory costs one record."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import fx

from passwright.scheduler.device import describe
from passwright.scheduler.inductor import compile_with_inductor, fresh_cache
from passwright.training import measure as measuring
from passwright.training.measure import measure
from passwright.training.model_plan import NOTHING, ModelPlan
from passwright.training.proposals import Graphs, propose
from passwright.training.recording import About
from passwright.training.records import Status
from passwright.training.workloads import build
from passwright.training.workloads.capture import captured

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU: make gpu-test"),
]
NAME = "own:norm_branches?fields=4"


def proposed(module: Any, inputs: Any, *, train: bool) -> list[ModelPlan]:
    device = torch.device("cuda")
    graphs = Graphs(captured(module, inputs, train=train), describe(device), train)
    return propose(graphs, count=3)


@pytest.mark.parametrize("train", [False, True])
def test_plans_of_a_model(train: bool) -> None:
    device = torch.device("cuda")
    module, inputs = build(NAME, batch=256, device=device, train=train)
    plans = proposed(module, inputs, train=train)
    with fresh_cache():
        records = measure(
            module, inputs, plans, device, train=train, about=About(NAME, batch=256), seconds=3.0
        )
    assert [record.status for record in records] == [Status.MEASURED] * 3
    assert records[0].proposed_by == NOTHING
    for record in records:
        assert record.method == "cuda-graph"
        assert record.driver
        assert len(record.blocks) >= 6
        assert record.peak_bytes is not None
        # The same function in one process differs from itself by very little.
        assert record.floor is not None
        assert record.floor < 0.05


def test_what_fills_the_memory_costs_one_record(monkeypatch: pytest.MonkeyPatch) -> None:
    device = torch.device("cuda")
    module, inputs = build(NAME, batch=256, device=device)
    plans = proposed(module, inputs, train=False)
    seen: list[int] = []

    def greedy(gm: fx.GraphModule, given: Sequence[Any], **how: Any) -> Callable[..., Any]:
        seen.append(1)
        compiled = compile_with_inductor(gm, given, **how)
        if len(seen) != 3:
            return compiled

        def run(*arguments: Any) -> Any:
            kept = [torch.empty(1 << 34, dtype=torch.uint8, device=device) for _ in range(64)]
            return compiled(*arguments), kept

        return run

    monkeypatch.setattr(measuring, "compile_with_inductor", greedy)
    nothing, filled, fine = measure(module, inputs, plans, device, about=About(NAME), seconds=3.0)
    assert nothing.status == fine.status == Status.MEASURED
    assert filled.status == Status.CENSORED
    assert "OutOfMemoryError" in filled.why
    assert torch.cuda.memory_reserved(device) < 1 << 34

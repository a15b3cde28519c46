"""Batch norms side by side: undoing, replay, and whole models."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from batch_norm_graphs import NORMS, norm, used
from torch import Tensor, fx, nn

from passwright.passes.errors import IllegalRewrite
from passwright.passes.interrupted import InterruptedEditor
from passwright.passes.matching import Rewriter
from passwright.passes.patterns.counters import BatchCounters
from passwright.passes.patterns.functionalize import OutOfPlace
from passwright.passes.sketch import snapshot
from passwright.passes.table import PatternTable, default_table
from passwright.passes.testing import rewrite, rewrite_graph, text

# ---- undoing


def test_rollback_at_every_point(sketch: Any) -> None:
    s = sketch()
    used(s, *(norm(s, s.input(5, width)) for width in (4, 6)))
    view = s.view()
    rewriter = Rewriter(view, PatternTable([NORMS]))
    before, writes = snapshot(s.graph), sorted(w.node.name for w in view.writes)
    (candidate,) = rewriter.candidates()
    failures = 0
    for at in range(1, 60):
        rewriter.editor = InterruptedEditor(view, at, IllegalRewrite)
        with rewriter.rehearsal():
            try:
                rewriter.apply(candidate)
            except IllegalRewrite:
                failures += 1
            else:
                break
            assert snapshot(s.graph) == before
    else:
        pytest.fail("the step never came to its end")
    assert failures >= 20
    assert snapshot(s.graph) == before
    assert sorted(w.node.name for w in view.writes) == writes
    assert [c.label for c in rewriter.candidates()] == [candidate.label]


def test_replay_in_another_graph(sketch: Any) -> None:
    after = []
    labels: list[str] = []
    for attempt in range(2):
        s = sketch()
        used(s, *(norm(s, s.input(5, width)) for width in (4, 6)))
        rewriter = Rewriter(s.view(), PatternTable([NORMS]))
        (found,) = rewriter.candidates()
        labels.append(found.label)
        replayed = rewriter.find(found.anchor, found.key) if attempt else found
        assert replayed is not None
        rewriter.apply(replayed)
        rewriter.editor.finish()
        after.append(text(s.graph))
    assert labels[0] == labels[1]
    assert after[0] == after[1]


# ---- models


class Towers(nn.Module):
    """Towers of Linear, batch norm, ReLU in place; deep enough for two levels."""

    def __init__(self, *widths: int, shared: bool = False) -> None:
        super().__init__()
        norms = [nn.BatchNorm1d(width) for width in widths]
        if shared:
            norms[1] = norms[0]
        self.towers = nn.ModuleList(
            nn.Sequential(
                nn.Linear(6, width), one, nn.ReLU(inplace=True),
                nn.Linear(width, 4), nn.BatchNorm1d(4), nn.Sigmoid(),
            )
            for width, one in zip(widths, norms, strict=True)
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([tower(x) for tower in self.towers], -1)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("training", [False, True])
def test_modules(training: bool, dynamic: bool) -> None:
    x = torch.randn(7, 6)
    if dynamic:
        torch._dynamo.mark_dynamic(x, 0)
    model = Towers(5, 8, 8).train(training)
    result = rewrite(model, [x], NORMS, BatchCounters(), OutOfPlace(), dynamic=None)
    assert result.count("batch_norm") == 2
    assert result.count("_foreach_add_") == training
    result.check()


def test_a_module_used_twice() -> None:
    """Its statistics are overwritten in turn: that order stays."""
    model = Towers(5, 5, 5, shared=True).train()
    result = rewrite(model, [torch.randn(7, 6)], NORMS, OutOfPlace())
    assert result.count("batch_norm") == 4
    result.check()


def test_with_all_other_patterns() -> None:
    """No clean-up looks through statistics that were overwritten."""
    table = default_table()
    others = [p for p in table if p.cleanup or p.name() in ("batch_linears", "widen_linears")]
    result = rewrite(Towers(8, 8, 8).train(), [torch.randn(7, 6)], NORMS, *others)
    assert result.count("batch_norm") == 2
    assert result.count("_foreach_copy_") == 2
    result.check()


def rewriting(graph_module: fx.GraphModule, counts: list[int]) -> fx.GraphModule:
    result = rewrite_graph(graph_module, [], NORMS, BatchCounters(), OutOfPlace())
    counts.append(result.count("batch_norm"))
    return result.module


@pytest.mark.inductor
@pytest.mark.parametrize("compiler", ["eager", "aot_eager", "inductor"])
def test_two_steps_of_training(compiler: str) -> None:
    """Values, gradients and buffers after two steps are eager's."""
    torch.manual_seed(0)
    model = Towers(5, 8).train()
    twin = copy.deepcopy(model)
    counts: list[int] = []
    inner = torch._dynamo.lookup_backend(compiler)

    def backend(graph_module: fx.GraphModule, inputs: list[Any]) -> Any:
        return inner(rewriting(graph_module, counts), inputs)

    torch._dynamo.reset()
    compiled = torch.compile(twin, backend=backend, dynamic=False)
    for step in range(2):
        x = torch.randn(16, 6, generator=torch.Generator().manual_seed(step))
        for module, call in (model, model), (twin, compiled):
            module.zero_grad()
            call(x).square().sum().backward()
            with torch.no_grad():
                for parameter in module.parameters():
                    parameter -= 0.1 * parameter.grad
        for (name, one), other in zip(
            [*model.named_parameters(), *model.named_buffers()],
            [*twin.parameters(), *twin.buffers()],
            strict=True,
        ):
            torch.testing.assert_close(other, one, msg=lambda m, n=name: f"{n}: {m}")
    for one, other in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(other.grad, one.grad)
    assert counts == [2]
    for name, buffer in twin.named_buffers():
        assert not name.endswith("tracked") or buffer.item() == 2

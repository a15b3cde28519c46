"""Whole branches batched in one step."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from passwright.passes import patterns
from passwright.passes.graph import GraphView
from passwright.passes.matching import Rewriter
from passwright.passes.pattern import Pattern
from passwright.passes.patterns import BatchBranches, WidenBranches
from passwright.passes.table import PatternTable
from passwright.passes.testing import Rewritten, capture, rewrite, rewrite_graph

BATCH, WIDEN = BatchBranches(), WidenBranches()


def cleanups() -> list[Pattern]:
    shipped = (getattr(patterns, name) for name in patterns.__all__)
    return [kind() for kind in shipped if kind.cleanup]


def straightened(
    model: Any, inputs: list[Tensor], *chosen: Pattern, dynamic: bool | None = False
) -> Any:
    """The graph after clean-up alone, and then with the chosen patterns as well."""
    module, graph_inputs = capture(model, inputs, dynamic=dynamic)
    rewrite_graph(module, graph_inputs, *cleanups())
    result = rewrite_graph(module, graph_inputs, *cleanups(), *chosen)
    result.check()
    return result


def steps(result: Rewritten, pattern: Pattern) -> list[str]:
    """What was done by the pattern: `{members=3,depth=2}`."""
    shown = (label.split(" @ ")[0] for label in result.labels)
    return [label.removeprefix(pattern.name()) for label in shown if pattern.name() in label]


def tower(width: int, *hidden: int, norm: bool = True, act: type[nn.Module] = nn.ReLU) -> nn.Module:
    layers: list[nn.Module] = []
    for out in hidden:
        layers.append(nn.Linear(width, out))
        layers += [nn.BatchNorm1d(out)] if norm else []
        layers += [act(inplace=True) if act is nn.ReLU else act(), nn.Dropout(0.0)]
        width = out
    return nn.Sequential(*layers)


class Experts(nn.Module):
    """Towers over one input (or one input each), joined at the end."""

    def __init__(self, towers: list[nn.Module], shared: bool = True) -> None:
        super().__init__()
        self.towers = nn.ModuleList(towers)
        self.shared = shared

    def forward(self, x: Tensor) -> Tensor:
        inputs = [x] * len(self.towers) if self.shared else x.unbind(0)
        outputs = [tower(value) for tower, value in zip(self.towers, inputs, strict=True)]
        return torch.cat(outputs, -1)


@pytest.mark.parametrize("training", [True, False])
def test_experts_of_one_input(training: bool) -> None:
    model = Experts([tower(6, 8, 4) for _ in range(5)]).train(training)
    result = straightened(model, [torch.randn(7, 6)], BATCH)
    assert steps(result, BATCH) == ["{members=5,depth=6}"]
    assert result.count("linear") == 1
    assert result.count("baddbmm") == 1
    assert result.count("batch_norm") == 2
    assert result.count("relu") == 2


@pytest.mark.parametrize("training", [True, False])
def test_towers_with_inputs_of_their_own(training: bool) -> None:
    model = Experts([tower(6, 8, 4) for _ in range(3)], shared=False).train(training)
    result = straightened(model, [torch.randn(3, 7, 6)], BATCH)
    assert steps(result, BATCH) == ["{members=3,depth=6}"]
    assert result.count("linear") == 0
    assert result.count("baddbmm") == 2


def test_statistics_after_two_calls() -> None:
    """Running statistics are overwritten as often, and by the same numbers."""
    model = Experts([tower(6, 8, 4) for _ in range(3)]).double()
    result = straightened(model, [torch.randn(7, 6, dtype=torch.float64)], BATCH)
    assert result.count("_foreach_copy_") == 2
    finals = []
    for module in result.original, result.module:
        values = [v.detach().clone() if isinstance(v, Tensor) else v for v in result.inputs]
        module(*values)
        module(*values)
        finals.append(values)
    torch.testing.assert_close(finals[1], finals[0])


def test_parts_of_a_large_group_are_choices() -> None:
    module, inputs = capture(Experts([tower(6, 8) for _ in range(8)]).eval(), [torch.randn(7, 6)])
    rewrite_graph(module, inputs, *cleanups())
    rewriter = Rewriter(GraphView(module.graph), PatternTable([BATCH]))
    shown = [candidate.shown_parameters for candidate in rewriter.candidates()]
    assert sorted(shown) == ["{members=4,depth=3}"] * 2 + ["{members=8,depth=3}"]


def test_layer_norm_and_activation() -> None:
    class Branch(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.linear = nn.LayerNorm(6), nn.Linear(6, 5)

        def forward(self, x: Tensor) -> Tensor:
            return torch.tanh(self.linear(self.norm(x)))

    model = Experts([Branch() for _ in range(4)], shared=False)
    result = straightened(model, [torch.randn(4, 7, 6)], BATCH)
    assert steps(result, BATCH) == ["{members=4,depth=3}"]
    assert [result.count(name) for name in ("layer_norm", "tanh", "linear")] == [1, 1, 0]


def test_unequal_widths_of_one_input() -> None:
    """Experts of 8, 3 and 5 features beside one another: one wide branch."""
    model = Experts([tower(6, width) for width in (8, 3, 5)])
    result = straightened(model, [torch.randn(7, 6)], WIDEN)
    assert steps(result, WIDEN) == ["{members=3,depth=3}"]
    assert [result.count(n) for n in ("linear", "batch_norm", "relu", "split")] == [1, 1, 1, 2]


def test_a_wide_branch_ends_at_the_next_linear() -> None:
    model = Experts([tower(6, width, 4) for width in (8, 3)])
    result = straightened(model, [torch.randn(7, 6)], WIDEN)
    assert steps(result, WIDEN) == ["{members=2,depth=3}"]
    assert result.count("linear") == 3


def test_dynamic_batch() -> None:
    model, x = Experts([tower(6, 8, 4) for _ in range(3)]).eval(), torch.randn(7, 6)
    torch._dynamo.mark_dynamic(x, 0)
    result = straightened(model, [x], BATCH, dynamic=None)
    assert steps(result, BATCH) == ["{members=3,depth=6}"]


def test_other_activations_are_other_branches() -> None:
    towers = [tower(6, 8, act=act) for act in (nn.ReLU, nn.ReLU, nn.Tanh, nn.Tanh, nn.Sigmoid)]
    result = straightened(Experts(towers), [torch.randn(7, 6)], BATCH)
    assert steps(result, BATCH) == ["{members=2,depth=3}"] * 2


def test_a_value_used_twice_ends_the_branch() -> None:
    def run(x: Tensor, *weights: Tensor) -> list[Tensor]:
        hidden = [F.linear(x, w) for w in weights]
        return [torch.exp(torch.tanh(h)) + h for h in hidden]

    inputs = [torch.randn(5, 4), *(torch.randn(3, 4, requires_grad=True) for _ in range(3))]
    result = rewrite(run, inputs, BATCH)
    # And the pointwise functions behind it are no branch: they are one kernel anyway.
    assert steps(result, BATCH) == []
    assert result.count("linear") == 3


def test_branches_that_reach_each_other_stay_apart() -> None:
    def run(x: Tensor, u: Tensor, w: Tensor) -> Tensor:
        first = torch.exp(torch.tanh(F.linear(x, u)))
        return torch.exp(torch.tanh(F.linear(first, w)))

    inputs = [torch.randn(5, 4), torch.randn(4, 4), torch.randn(4, 4)]
    assert rewrite(run, inputs, BATCH).labels == []


def test_a_write_between_branches_parts_them() -> None:
    def run(x: Tensor, u: Tensor, w: Tensor) -> list[Tensor]:
        y = torch.exp(x)
        first = torch.sin(torch.tanh(F.linear(y, u)))
        y.add_(1)
        return [first, torch.sin(torch.tanh(F.linear(y, w)))]

    inputs = [torch.randn(5, 4), torch.randn(4, 4), torch.randn(4, 4)]
    result = rewrite(run, inputs, BATCH)
    assert result.labels == []


def test_a_weight_that_depends_on_another_branch_is_refused() -> None:
    def run(x: Tensor, w: Tensor) -> list[Tensor]:
        first = torch.exp(torch.tanh(F.linear(x, w)))
        return [first, torch.exp(torch.tanh(F.linear(x, torch.sin(first))))]

    inputs = [torch.randn(4, 4), torch.randn(4, 4)]
    result = rewrite(run, inputs, BATCH)
    assert result.labels == []

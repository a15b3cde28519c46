"""Stacks and cats of parts of one tensor, in captured models: spellings, symbolic sizes, batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn

from passwright.passes.dialect import Dialect
from passwright.passes.graph import GraphView
from passwright.passes.ops import Cat, Op, Select, Stack, Unbind
from passwright.passes.patterns.linears import BatchLinears
from passwright.passes.patterns.reshapes import MergePermutes, MergeReshapes
from passwright.passes.patterns.stack_unbind import (
    CatOfUnbind,
    StackOfPieces,
    StackOfUnbind,
    UnbindOfStack,
)
from passwright.passes.testing import rewrite

SLICES, PIECES, UNBIND, CAT = StackOfUnbind(), StackOfPieces(), UnbindOfStack(), CatOfUnbind()
ALL = (SLICES, PIECES, UNBIND, CAT)


def left(module: fx.GraphModule, *kinds: type[Op]) -> int:
    """How many ops of these kinds the graph has."""
    view = GraphView(module.graph)
    return sum(len(list(view.ops(kind))) for kind in kinds)


# ---- spellings


def spelled_stacks(x: Tensor) -> list[Tensor]:
    """The stack of all slices along dim 1, each time at dim 0."""
    columns = [x[:, i] for i in range(3)]
    return [
        torch.stack(x.unbind(1)),
        torch.stack(torch.unbind(x, dim=-2), dim=0),
        torch.stack(tensors=x.unbind(dim=1), dim=-3),
        torch.stack(columns, 0),
        torch.stack([x[:, i, :] for i in range(3)], axis=0),  # type: ignore[call-overload]
        torch.stack([x[..., i, :] for i in range(-3, 0)]),
        torch.stack([x.select(1, i) for i in range(3)]),
        torch.stack([torch.select(x, dim=1, index=i) for i in range(3)]),
        torch.stack([p.squeeze(1) for p in x.split(1, 1)]),
        torch.stack([p.reshape(2, 4) for p in torch.split(x, [1, 1, 1], dim=1)]),
        torch.cat([c.unsqueeze(0) for c in columns]),
        torch.cat([c[None] for c in columns], dim=0),
    ]


def spelled_pieces(x: Tensor) -> list[Tensor]:
    """The stack of two halves along dim 1, each time at dim 2."""
    return [
        torch.stack(x.split(2, 1), 2),
        torch.stack(torch.split(x, 2, dim=-1), dim=-1),
        torch.stack(torch.split(tensor=x, split_size_or_sections=[2, 2], dim=1), 2),
        torch.stack(x.chunk(2, dim=1), dim=2),
        torch.stack(torch.chunk(x, 2, -1), 2),
        torch.stack(torch.tensor_split(x, 2, dim=1), 2),
        torch.stack([x[:, :2], x[:, 2:]], 2),
        torch.stack([x.narrow(1, 0, 2), torch.narrow(x, 1, 2, 2)], -1),
        torch.cat([p.unsqueeze(2) for p in x.split(2, 1)], 2),
    ]


def behind(values: list[Tensor]) -> list[Tensor]:
    return [torch.cat([value, value]) for value in values]


@pytest.mark.parametrize(
    ("spelled", "shape", "pattern"),
    [(spelled_stacks, (2, 3, 4), SLICES), (spelled_pieces, (3, 4), PIECES)],
)
@pytest.mark.parametrize("dialect", Dialect)
def test_spellings_of_stacks(
    spelled: Callable[[Tensor], list[Tensor]], shape: Any, pattern: Any, dialect: Dialect
) -> None:
    x = torch.randn(shape, requires_grad=True)
    result = rewrite(lambda x: behind(spelled(x)), [x], pattern, dialect=dialect)
    assert left(result.original, Stack) == len(spelled(x))
    assert left(result.module, Stack) == 0
    result.check()


def test_spellings_of_unbind_and_cat() -> None:
    def unbinds(x: Tensor, y: Tensor) -> list[Tensor]:
        found = []
        for stack in (torch.stack((x, y), 1), torch.cat([x[:, None], y.unsqueeze(1)], dim=1)):
            first, second = stack.unbind(1)
            third, fourth = torch.unbind(stack, dim=-2)
            found += [first, second, third, fourth]
            found += [stack[:, 0], stack.select(1, 1), stack[:, -1, :]]
        return behind(found)

    x, y = (torch.randn(3, 4, requires_grad=True) for _ in range(2))
    result = rewrite(unbinds, [x, y], UNBIND)
    assert left(result.original, Stack, Unbind, Select) == 12
    assert left(result.module, Stack, Unbind, Select) == 0
    result.check()

    def cats(x: Tensor) -> list[Tensor]:
        return [
            torch.cat(x.unbind(0), 1),
            torch.cat(x.unbind(0), dim=-1),
            torch.concat([x[0], x[1]], dim=1),
            torch.concatenate(torch.unbind(x), axis=1),  # type: ignore[call-overload]
            torch.cat(tensors=[x.select(0, i) for i in range(2)], dim=1),
        ]

    result = rewrite(cats, [torch.randn(2, 3, 4, requires_grad=True)], CAT)
    assert (left(result.original, Cat), left(result.module, Cat)) == (5, 0)
    result.check()


# ---- symbolic sizes


def test_dynamic_batch() -> None:
    def fn(x: Tensor, y: Tensor) -> list[Tensor]:
        return behind(
            [
                torch.stack(x.split(4, 1), 0),
                torch.stack(y.unbind(1), 0),
                torch.cat(y.unbind(1), 1),
                *torch.stack([x, x * 2], 1).unbind(1),
            ]
        )

    x, y = torch.randn(6, 8, requires_grad=True), torch.randn(6, 3, 5, requires_grad=True)
    for tensor in (x, y):
        torch._dynamo.mark_dynamic(tensor, 0)
    result = rewrite(fn, [x, y], *ALL, dynamic=None)
    assert len(result.labels) == 4
    assert not {"stack", ".unbind", ".split"} & set(result.calls)
    result.check()
    rewrite(fn, [x.detach().clone(), y.detach().clone()], *ALL, dynamic=True).check()


# ---- batch, then clean up


class Branches(nn.Module):
    """x (batch, n * width) is split; every piece has a Linear of its own; cat."""

    def __init__(self, n: int, width: int, out: int) -> None:
        super().__init__()
        self.linears = nn.ModuleList(nn.Linear(width, out) for _ in range(n))
        self.width = width

    def forward(self, x: Tensor) -> Tensor:
        pieces = x.split(self.width, dim=-1)
        outputs = [linear(p) for linear, p in zip(self.linears, pieces, strict=True)]
        return torch.cat(outputs, dim=-1)


def test_batch_then_clean_up() -> None:
    x = torch.randn(6, 32, requires_grad=True)
    result = rewrite(Branches(4, 8, 5), [x], BatchLinears(), *ALL)
    assert result.labels[0].startswith("batch_linears{members=4}")
    assert len(result.labels) == 1  # the rest is clean-up, part of the step
    assert sorted(result.calls) == [
        "baddbmm",
        *["permute"] * 3,  # of x, of the weights, of the result
        *["reshape"] * 2,  # of x, of the result
        *["stack"] * 2,  # of the weights and biases: nothing else is stacked or unbound
        "unsqueeze",
    ]
    stacked = [line for line in result.after if " = stack(" in line]
    assert all("weight" in line or "bias" in line for line in stacked)
    result.check()


def test_two_layers_leave_no_stack_between_them() -> None:
    class Towers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.ModuleList(nn.Linear(4, 6) for _ in range(3))
            self.second = nn.ModuleList(nn.Linear(6, 5, bias=False) for _ in range(3))

        def forward(self, x: Tensor) -> Tensor:
            hidden = [a(p) for a, p in zip(self.first, x.chunk(3, 1), strict=True)]
            return torch.stack([b(h) for b, h in zip(self.second, hidden, strict=True)], 1)

    x = torch.randn(7, 12, requires_grad=True)
    patterns = (BatchLinears(), *ALL, MergePermutes(), MergeReshapes())
    for dialect in Dialect:
        result = rewrite(Towers(), [x], *patterns, dialect=dialect)
        assert not any("unbind" in call or "split" in call for call in result.calls)
        stacks = [line for line in result.after if "stack(" in line or "aten.cat" in line]
        assert len(stacks) == 3  # weights and biases of the first layer, weights of the second
        result.check()

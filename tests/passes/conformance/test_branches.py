"""Whole branches in one step."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from passwright.passes.conformance import Example, PatternConformance, tensor
from passwright.passes.ops import Linear, Unary
from passwright.passes.patterns import BatchBranches, WidenBranches

X, W, B = tensor("b", 6), tensor(4, 6), tensor(4)


def own_inputs(x: Tensor, y: Tensor, v: Tensor, w: Tensor, a: Tensor, b: Tensor) -> Tensor:
    return torch.tanh(F.linear(x, v, a)) * torch.tanh(F.linear(y, w, b))


class TestBatchBranches(PatternConformance):
    pattern = BatchBranches()
    examples = (
        Example(
            own_inputs, (X, X, W, W, B, B), {Linear: 2, Unary: 2}, {Linear: 0, Unary: 1}, (14, 4)
        ),
    )


def one_input(x: Tensor, v: Tensor, w: Tensor, a: Tensor, b: Tensor) -> Tensor:
    return torch.cat([torch.tanh(F.linear(x, v, a)), torch.tanh(F.linear(x, w, b))], 1)


class TestWidenBranches(PatternConformance):
    pattern = WidenBranches()
    examples = (
        Example(
            one_input,
            (X, W, tensor(3, 6), B, tensor(3)),
            {Linear: 2, Unary: 2},
            {Linear: 1, Unary: 1},
            (11, 4),
        ),
    )

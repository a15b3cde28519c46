"""Linears side by side."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from passwright.passes.conformance import Example, PatternConformance, tensor
from passwright.passes.ops import Linear, Piece, Split, Stack, Unbind
from passwright.passes.patterns import BatchLinears, TallLinears, WidenLinears

X, W, B = tensor("b", 6), tensor(4, 6), tensor(4)


def two(x: Tensor, y: Tensor, v: Tensor, w: Tensor, a: Tensor, b: Tensor) -> list[Tensor]:
    return [torch.sin(F.linear(x, v, a)), F.linear(torch.cos(y), w, b)]


class TestBatchLinears(PatternConformance):
    pattern = BatchLinears()
    examples = (
        Example(two, (X, X, W, W, B, B), {Linear: 2}, {Linear: 0, Stack: 3, Unbind: 1}, (10, 2)),
    )


def one_weight(x: Tensor, y: Tensor, w: Tensor, b: Tensor) -> list[Tensor]:
    return [torch.sin(F.linear(x, w, b)), F.linear(torch.cos(y), w, b)]


class TestTallLinears(PatternConformance):
    pattern = TallLinears()
    examples = (
        Example(one_weight, (X, X, W, B), {Linear: 2}, {Linear: 1, Stack: 1, Piece: 2}, (6, 2)),
    )


def one_input(x: Tensor, v: Tensor, w: Tensor, a: Tensor) -> list[Tensor]:
    return [torch.sin(F.linear(x, v, a)), torch.cos(F.linear(x, w))]


class TestWidenLinears(PatternConformance):
    pattern = WidenLinears()
    examples = (
        Example(one_input, (X, W, tensor(3, 6), B), {Linear: 2}, {Linear: 1, Split: 1}, (9, 2)),
    )

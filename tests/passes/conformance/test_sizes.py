"""Sizes that kernels like, and calls that are one too many."""

from __future__ import annotations

from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from passwright.passes import patterns
from passwright.passes.conformance import Example, PatternConformance, tensor
from passwright.passes.dialect import Dialect
from passwright.passes.ops import Cat, Linear, Matmul, Slice, Unary

X = tensor("b", 6)


class PadLinearOfCat(patterns.PadLinearOfCat):
    devices: ClassVar[frozenset[str]] = frozenset({"cpu"})


class PadLinearOutputs(patterns.PadLinearOutputs):
    devices: ClassVar[frozenset[str]] = frozenset({"cpu"})


def tail(x: Tensor, y: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return torch.sum(torch.tanh(F.linear(torch.cat([x, y], 1), w, b)), 0)


class TestPadLinearOfCat(PatternConformance):
    pattern = PadLinearOfCat()
    inputs = (X, tensor("b", 7), tensor(8, 13), tensor(8))
    examples = (
        Example(tail, inputs, {Linear: 1, Cat: 1}, {Linear: 1, Cat: 2}, (5, 2), dynamic=False),
    )


class TestPadLinearOutputs(PatternConformance):
    pattern = PadLinearOutputs()
    inputs = (X, tensor("b", 7), tensor(9, 13), tensor(9))
    examples = (Example(tail, inputs, {Linear: 1, Cat: 1}, {Linear: 1, Cat: 3, Slice: 1}, (6, 1)),)


def product(x: Tensor, w: Tensor) -> Tensor:
    return torch.tanh(x @ w)


class TestSmallMatmulAsPointwise(PatternConformance):
    pattern = patterns.SmallMatmulAsPointwise()
    inputs = (tensor("b", 5, 4), tensor("b", 4, 3))
    # Conversions in ATen-IR have no gradient, since autograd is over by then.
    levels = frozenset({Dialect.TORCH})
    examples = (Example(product, inputs, {Matmul: 1}, {Matmul: 0}, (4, 1), levels=levels),)


def twice(x: Tensor) -> list[Tensor]:
    return [torch.exp(torch.tanh(x)), torch.sin(x.tanh()), torch.cos(torch.cumsum(x, 1))]


class TestMergeDuplicates(PatternConformance):
    pattern = patterns.MergeDuplicates()
    examples = (Example(twice, (X,), {Unary: 5}, {Unary: 4}, (0, 1)),)

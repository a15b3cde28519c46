"""Pointwise functions: side by side, moved past cuts and joins, and no longer in place."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from passwright.passes.conformance import Example, PatternConformance, tensor
from passwright.passes.ops import (
    Binary,
    Cat,
    Identity,
    InplaceUnary,
    Piece,
    Split,
    Stack,
    Unary,
    Unbind,
)
from passwright.passes.pattern import TORCH_IR
from passwright.passes.patterns import (
    BatchBinaries,
    BatchUnaries,
    JoinUnaries,
    OutOfPlace,
    RemoveIdentity,
    UnaryAboveSplit,
    UnaryBelowCat,
)

X = tensor("b", 6)


def functions(x: Tensor, y: Tensor) -> list[Tensor]:
    return [torch.exp(torch.tanh(x)), torch.sin(torch.tanh(y))]


class TestBatchUnaries(PatternConformance):
    pattern = BatchUnaries()
    examples = (
        Example(functions, (X, X), {Unary: 4}, {Unary: 3, Stack: 1, Unbind: 1, Piece: 2}, (5, 2)),
    )


def pairs(x: Tensor, y: Tensor, z: Tensor) -> list[Tensor]:
    return [torch.sin(x + y), torch.exp(torch.tanh(z) + y)]


class TestBatchBinaries(PatternConformance):
    pattern = BatchBinaries()
    examples = (Example(pairs, (X, X, X), {Binary: 2}, {Binary: 1, Stack: 1, Piece: 2}, (5, 2)),)


def of_pieces(x: Tensor) -> Tensor:
    first, second = torch.split(x, 6, 1)
    return torch.tanh(first).sum(0) * torch.tanh(second).sum(0)


class TestUnaryAboveSplit(PatternConformance):
    pattern = UnaryAboveSplit()
    examples = (
        Example(of_pieces, (tensor("b", 12),), {Unary: 2, Split: 1}, {Unary: 1, Split: 1}, (4, 5)),
    )


def joined(x: Tensor, y: Tensor) -> Tensor:
    return torch.cat([torch.tanh(x), torch.tanh(y)], 1)


class TestUnaryBelowCat(PatternConformance):
    pattern = UnaryBelowCat()
    examples = (Example(joined, (X, X), {Unary: 2, Cat: 1}, {Unary: 1, Cat: 1}, (2, 3)),)


def overwritten(x: Tensor, w: Tensor) -> Tensor:
    return torch.sin(F.relu(F.linear(x, w), inplace=True))


class TestOutOfPlace(PatternConformance):
    pattern = OutOfPlace()
    examples = (
        Example(
            overwritten, (X, tensor(4, 6)), {InplaceUnary: 1}, {InplaceUnary: 0, Unary: 2}, (1, 1)
        ),
    )


class TestJoinUnaries(PatternConformance):
    pattern = JoinUnaries()
    examples = (
        Example(
            functions,
            (X, tensor("b", 4)),
            {Unary: 4},
            {Unary: 3, Cat: 1, Split: 1, Piece: 2},
            (7, 2),
        ),
    )


def changes_nothing(x: Tensor) -> Tensor:
    return torch.sin(F.dropout(torch.tanh(x), 0.0))


class TestRemoveIdentity(PatternConformance):
    pattern = RemoveIdentity()
    examples = (
        Example(
            changes_nothing,
            (X,),
            {Identity: 1},
            {Identity: 0},
            (0, 1),
            levels=frozenset({TORCH_IR}),
        ),
    )

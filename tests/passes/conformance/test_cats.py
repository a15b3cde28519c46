"""Cats that are cut up again, or poured into another cat, and cats of what was one tensor."""

from __future__ import annotations

import torch
from torch import Tensor

from passwright.passes.conformance import Example, PatternConformance, tensor
from passwright.passes.ops import Cat, Permute, Piece, Reshape, Slice, Split
from passwright.passes.patterns import (
    CatOfPieces,
    FlattenNestedCats,
    InterleavePieces,
    MergeConsecutivePieces,
    MergeSharedPieces,
    SplitCatIntoCats,
    SplitOfCat,
)

PAIR = (tensor("b", 4), tensor("b", 8))
FOUR = tuple(tensor("b", 3) for _ in range(4))


def nested(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    return torch.sin(torch.cat([torch.cat([a, b], 1), c], 1))


class TestFlattenNestedCats(PatternConformance):
    pattern = FlattenNestedCats()
    examples = (Example(nested, (*PAIR, tensor("b", 3)), {Cat: 2}, {Cat: 1}, (1, 2)),)


def back(a: Tensor, b: Tensor) -> Tensor:
    first, second = torch.split(torch.cat([a, b], 1), [4, 8], 1)
    return torch.sin(first).amax() + torch.cos(second).amax()


def spanning(a: Tensor, b: Tensor) -> list[Tensor]:
    return [torch.sin(part).amax() for part in torch.split(torch.cat([a, b], 1), [2, 10], 1)]


class TestSplitOfCat(PatternConformance):
    pattern = SplitOfCat()
    examples = (
        Example(back, PAIR, {Cat: 1, Split: 1}, {Cat: 0, Split: 0}, (0, 4)),
        Example(spanning, PAIR, {Cat: 1, Split: 1}, {Cat: 1, Split: 1}, (4, 4)),
    )


def halves(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> list[Tensor]:
    return [torch.sin(p).amax() for p in torch.split(torch.cat([a, b, c, d], 1), 6, 1)]


class TestSplitCatIntoCats(PatternConformance):
    pattern = SplitCatIntoCats()
    examples = (Example(halves, FOUR, {Cat: 1, Split: 1}, {Cat: 2, Split: 0}, (2, 4)),)


def whole(x: Tensor) -> Tensor:
    return torch.sin(torch.cat(torch.split(x, 4, 1), 1))


def part(x: Tensor) -> Tensor:
    pieces = torch.split(x, 4, 1)
    return torch.sin(torch.cat([pieces[1], pieces[2]], 1)) + torch.cat([x, x], 1)[:, :8]


class TestCatOfPieces(PatternConformance):
    pattern = CatOfPieces()
    examples = (
        Example(whole, (tensor("b", 12),), {Cat: 1, Split: 1}, {Cat: 0, Split: 0}, (0, 5)),
        Example(part, (tensor("b", 12),), {Cat: 2, Slice: 1}, {Cat: 1, Slice: 2}, (2, 4)),
    )


def neighbours(x: Tensor, y: Tensor) -> Tensor:
    a, b, c = torch.split(x, 4, 1)
    return torch.cat([y, b, c, a], 1)


class TestMergeConsecutivePieces(PatternConformance):
    pattern = MergeConsecutivePieces()
    examples = (
        Example(
            neighbours, (tensor("b", 12), tensor("b", 3)), {Piece: 3}, {Piece: 2, Cat: 1}, (4, 5)
        ),
    )


def shared(x: Tensor, y: Tensor) -> list[Tensor]:
    a, b, c = torch.split(x, 4, 1)
    return [torch.cat([y, a, b], 1), torch.sin(a), b * c]


class TestMergeSharedPieces(PatternConformance):
    pattern = MergeSharedPieces()
    examples = (
        Example(
            shared, (tensor("b", 12), tensor("b", 3)), {Piece: 3}, {Piece: 3, Slice: 1}, (2, 1)
        ),
    )


def transposed_grid(x: Tensor) -> Tensor:
    pieces = torch.split(x, 2, 1)
    return torch.sin(torch.cat([pieces[i] for i in (0, 3, 1, 4, 2, 5)], 1))


class TestInterleavePieces(PatternConformance):
    pattern = InterleavePieces()
    examples = (
        Example(
            transposed_grid,
            (tensor("b", 12),),
            {Cat: 1, Split: 1},
            {Cat: 0, Reshape: 2, Permute: 1},
            (3, 8),
        ),
    )

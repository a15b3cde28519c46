"""Splits that need not be, or not as they are."""

from __future__ import annotations

import torch
from torch import Tensor

from passwright.passes.conformance import Example, PatternConformance, tensor
from passwright.passes.ops import Piece, Select, Slice, Split, Unbind
from passwright.passes.patterns import (
    LonePieceToSlice,
    MergeNestedSplits,
    PiecesToSlices,
    RemoveSinglePieceSplit,
)


def nested(x: Tensor) -> list[Tensor]:
    first, second = torch.split(x, [4, 8], 1)
    return [torch.sin(first), *(torch.cos(part) for part in torch.split(second, [3, 5], 1))]


def split_of_slice(x: Tensor) -> list[Tensor]:
    return [torch.cos(part) for part in torch.split(x[:, 4:], [3, 5], 1)]


class TestMergeNestedSplits(PatternConformance):
    pattern = MergeNestedSplits()
    examples = (
        Example(nested, (tensor("b", 12),), {Split: 2, Piece: 4}, {Split: 1, Piece: 3}, (4, 6)),
        Example(split_of_slice, (tensor("b", 12),), {Slice: 1}, {Slice: 0, Split: 1}, (3, 4)),
    )


def one_piece(x: Tensor) -> Tensor:
    return torch.sin(torch.split(x, 12, 1)[0])


def one_slice(x: Tensor) -> Tensor:
    return torch.sin(torch.unbind(x, 1)[0])


class TestRemoveSinglePieceSplit(PatternConformance):
    pattern = RemoveSinglePieceSplit()
    examples = (
        Example(one_piece, (tensor("b", 12),), {Split: 1}, {Split: 0}, (0, 2)),
        Example(one_slice, (tensor("b", 1, 4),), {Unbind: 1}, {Unbind: 0}, (1, 2)),
    )


def lone(x: Tensor) -> Tensor:
    return torch.sin(torch.split(x, [4, 6, 2], 1)[1])


class TestLonePieceToSlice(PatternConformance):
    pattern = LonePieceToSlice()
    examples = (Example(lone, (tensor("b", 12),), {Split: 1}, {Split: 0, Slice: 1}, (1, 2)),)


def few(x: Tensor) -> Tensor:
    parts = torch.split(x, 2, 1)
    return torch.sin(parts[1]) * torch.cos(parts[4])


class TestPiecesToSlices(PatternConformance):
    pattern = PiecesToSlices()
    examples = (
        Example(few, (tensor("b", 12),), {Split: 1, Select: 0}, {Split: 0, Slice: 2}, (2, 3)),
    )

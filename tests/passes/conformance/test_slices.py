"""Slices and selects that follow each other, or are put together again."""

from __future__ import annotations

import torch
from torch import Tensor

from passwright.passes.conformance import Example, PatternConformance, tensor
from passwright.passes.ops import Cat, Permute, Select, Slice, Split, Stack
from passwright.passes.patterns import (
    CatOfColumns,
    MergeSlices,
    SelectOfCat,
    SliceOfCat,
    SliceOfPiece,
    StackOfSelects,
)

WIDE = (tensor("b", 12),)
PAIR = (tensor("b", 4), tensor("b", 8))


def slices(x: Tensor) -> list[Tensor]:
    return [torch.sin(x[:, 2:10][:, 1:4]), torch.cos(x[:, 1:9][:, 3])]


def full(x: Tensor) -> Tensor:
    return torch.sin(torch.narrow(x, 1, 0, 12))


class TestMergeSlices(PatternConformance):
    pattern = MergeSlices()
    examples = (
        Example(slices, WIDE, {Slice: 3, Select: 1}, {Slice: 1, Select: 1}, (2, 4), steps=2),
        Example(full, WIDE, {Slice: 1}, {Slice: 0}, (0, 1)),
    )


def sliced_piece(x: Tensor) -> list[Tensor]:
    first, second = torch.split(x, [4, 8], 1)
    return [torch.sin(first), torch.cos(second[:, 2:5])]


class TestSliceOfPiece(PatternConformance):
    pattern = SliceOfPiece()
    examples = (Example(sliced_piece, WIDE, {Split: 1, Slice: 1}, {Split: 1, Slice: 0}, (3, 4)),)


def columns(x: Tensor) -> Tensor:
    return torch.sin(torch.stack([x[:, 1], x[:, 2], x[:, 3]], 1))


class TestCatOfColumns(PatternConformance):
    pattern = CatOfColumns()
    examples = (Example(columns, WIDE, {Stack: 1, Select: 3}, {Stack: 0, Slice: 1}, (2, 4)),)


def rows_of_columns(x: Tensor) -> Tensor:
    return torch.sin(torch.stack([x[:, 1], x[:, 2]], 0)).amax()


class TestStackOfSelects(PatternConformance):
    pattern = StackOfSelects()
    examples = (
        Example(rows_of_columns, WIDE, {Stack: 1, Select: 2}, {Slice: 1, Permute: 1}, (2, 3)),
    )


def within(a: Tensor, b: Tensor) -> list[Tensor]:
    whole = torch.cat([a, b], 1)
    return [torch.sin(whole[:, 0:4]).amax(), torch.cos(whole[:, 5:7]).amax()]


def across(a: Tensor, b: Tensor) -> Tensor:
    return torch.sin(torch.cat([a, b, a], 1)[:, 2:12]).amax()


class TestSliceOfCat(PatternConformance):
    pattern = SliceOfCat()
    examples = (
        Example(within, PAIR, {Cat: 1, Slice: 2}, {Cat: 0, Slice: 1}, (1, 3), steps=2),
        Example(across, PAIR, {Cat: 1, Slice: 1}, {Cat: 1, Slice: 1}, (2, 2)),
    )


def column(a: Tensor, b: Tensor) -> Tensor:
    return torch.sin(torch.cat([a, b], 1)[:, 5]).amax()


class TestSelectOfCat(PatternConformance):
    pattern = SelectOfCat()
    examples = (Example(column, PAIR, {Cat: 1, Select: 1}, {Cat: 0, Select: 1}, (1, 2)),)

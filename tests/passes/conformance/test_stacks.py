"""Stacks and cats of parts of one tensor, and the way back."""

from __future__ import annotations

import torch
from torch import Tensor

from passwright.passes.conformance import Example, PatternConformance, tensor
from passwright.passes.ops import Cat, Permute, Piece, Reshape, Split, Stack, Unbind
from passwright.passes.patterns import CatOfUnbind, StackOfPieces, StackOfUnbind, UnbindOfStack

CUBE = (tensor("b", 4, 6),)


def all_slices(x: Tensor) -> Tensor:
    return torch.sin(torch.stack(torch.unbind(x, 1), 0)).amax()


class TestStackOfUnbind(PatternConformance):
    pattern = StackOfUnbind()
    examples = (Example(all_slices, CUBE, {Stack: 1, Unbind: 1}, {Stack: 0, Permute: 1}, (1, 6)),)


def all_pieces(x: Tensor) -> Tensor:
    return torch.sin(torch.stack(torch.split(x, 4, 1), 0)).amax()


class TestStackOfPieces(PatternConformance):
    pattern = StackOfPieces()
    examples = (
        Example(
            all_pieces,
            (tensor("b", 12),),
            {Stack: 1, Split: 1},
            {Stack: 0, Reshape: 1, Permute: 1},
            (2, 5),
        ),
    )


def there_and_back(a: Tensor, b: Tensor) -> Tensor:
    first, second = torch.unbind(torch.stack([torch.sin(a), torch.sin(b)], 1), 1)
    return torch.cos(first).amax() * torch.tanh(second).amax()


class TestUnbindOfStack(PatternConformance):
    pattern = UnbindOfStack()
    examples = (
        Example(
            there_and_back,
            (tensor("b", 6), tensor("b", 6)),
            {Stack: 1, Unbind: 1, Piece: 2},
            {Stack: 0, Unbind: 0, Piece: 0},
            (0, 4),
        ),
    )


def side_by_side(x: Tensor) -> Tensor:
    return torch.sin(torch.cat(torch.unbind(x, 1), 1)).amax()


class TestCatOfUnbind(PatternConformance):
    pattern = CatOfUnbind()
    examples = (
        Example(side_by_side, CUBE, {Cat: 1, Unbind: 1}, {Cat: 0, Unbind: 0, Reshape: 1}, (1, 6)),
    )

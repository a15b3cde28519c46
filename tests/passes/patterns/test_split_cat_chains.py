"""Layers of splits and cats in other orders collapse to one cat at most."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from passwright.passes.dialect import Dialect
from passwright.passes.patterns.cats import FlattenNestedCats, SplitOfCat
from passwright.passes.patterns.split_cat import CatOfPieces, MergeConsecutivePieces
from passwright.passes.patterns.splits import (
    LonePieceToSlice,
    MergeNestedSplits,
    RemoveSinglePieceSplit,
)
from passwright.passes.testing import Rewritten, rewrite

CLEANUPS = (
    CatOfPieces(),
    MergeConsecutivePieces(),
    FlattenNestedCats(),
    SplitOfCat(),
    LonePieceToSlice(),
    MergeNestedSplits(),
    RemoveSinglePieceSplit(),
)


def permuted(x: Tensor, orders: Sequence[Sequence[int]], width: int, dim: int) -> Tensor:
    for order in orders:
        parts = torch.split(x, width, dim)
        x = torch.cat([parts[i] for i in order], dim)
    return x


def chain(orders: Sequence[Sequence[int]], dialect: Dialect = Dialect.TORCH) -> Rewritten:
    def fn(x: Tensor) -> Tensor:
        return permuted(x, orders, 2, 1).sum()

    x = torch.arange(4 * 32.0).reshape(4, 32).requires_grad_()
    result = rewrite(fn, [x], *CLEANUPS, dialect=dialect)
    result.check()
    return result


def random_order(seed: int) -> list[int]:
    return torch.randperm(16, generator=torch.Generator().manual_seed(seed)).tolist()


@pytest.mark.parametrize("dialect", list(Dialect))
def test_three_layers_of_sixteen_pieces_become_one_cat(dialect: Dialect) -> None:
    result = chain([random_order(seed) for seed in (1, 2, 3)], dialect)
    cats = [name for name in result.calls if "cat" in name]
    splits = [name for name in result.calls if "split" in name]
    assert (len(cats), len(splits)) == (1, 1)


def test_three_layers_that_cancel_become_nothing() -> None:
    first, second = random_order(4), random_order(5)
    both = [first[i] for i in second]
    back = [both.index(i) for i in range(16)]
    assert chain([first, second, back]).calls == [".sum"]


def test_layers_with_pieces_of_other_widths_become_one_cat() -> None:
    order = random_order(6)

    def fn(x: Tensor) -> Tensor:
        x = permuted(x, [order], 2, 1)
        a, b, c = torch.split(x, [5, 20, 7], 1)
        x = torch.cat([c, a, b], 1)
        left, right = x.chunk(2, -1)
        return torch.cat([right, left], 1).sum()

    x = torch.arange(4 * 32.0).reshape(4, 32).requires_grad_()
    result = rewrite(fn, [x], *CLEANUPS)
    result.check()
    assert (result.count("cat"), result.count("split")) == (1, 1)


def test_a_layer_that_others_read_stays() -> None:
    def fn(x: Tensor) -> tuple[Tensor, Tensor]:
        y = permuted(x, [list(range(15, -1, -1))], 2, 1)
        return y, permuted(y, [list(range(15, -1, -1))], 2, 1).sum()

    x = torch.arange(4 * 32.0).reshape(4, 32).requires_grad_()
    result = rewrite(fn, [x], *CLEANUPS)
    result.check()
    assert result.count("cat") == 1
    assert any("sum(l_x_)" in line for line in result.after)

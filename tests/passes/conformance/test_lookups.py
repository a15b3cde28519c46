"""Look-ups with users of their own, bags, dense fields, and rows added into small tables."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from passwright.passes.conformance import Example, PatternConformance, index, tensor
from passwright.passes.dialect import Dialect
from passwright.passes.ops import (
    Convert,
    Embedding,
    EmbeddingBag,
    IndexAdd,
    Linear,
    Reduce,
    Split,
    Stack,
    Unbind,
)
from passwright.passes.patterns import (
    BagAsSum,
    BatchBags,
    ConvertBelowJoin,
    EmbeddingsOfManyTables,
    LinearOfOne,
    LinearsOfOne,
    LinearToOne,
    ScatterAsMaskedSum,
    ScatterAsProduct,
    SumAsBag,
    UnequalEmbeddingsOfOneTable,
    WidenEmbeddings,
)

TORCH, ATEN = frozenset({Dialect.TORCH}), frozenset({Dialect.ATEN})


def many_tables(i: Tensor, j: Tensor, t: Tensor, u: Tensor) -> list[Tensor]:
    return [torch.sin(F.embedding(i, t)), torch.cos(F.embedding(j, u))]


class TestEmbeddingsOfManyTables(PatternConformance):
    pattern = EmbeddingsOfManyTables()
    examples = (
        Example(
            many_tables,
            (index("b", rows=7), index("b", rows=5), tensor(7, 4), tensor(5, 4)),
            {Embedding: 2},
            {Embedding: 1, Stack: 1, Unbind: 1},
            (10, 2),
        ),
    )


def one_index(i: Tensor, t: Tensor, u: Tensor) -> list[Tensor]:
    return [torch.sin(F.embedding(i, t)), torch.cos(F.embedding(i, u))]


class TestWidenEmbeddings(PatternConformance):
    pattern = WidenEmbeddings()
    examples = (
        Example(
            one_index,
            (index("b", rows=7), tensor(7, 4), tensor(7, 2)),
            {Embedding: 2},
            {Embedding: 1, Split: 1},
            (7, 2),
        ),
    )


def unequal(i: Tensor, j: Tensor, t: Tensor) -> list[Tensor]:
    return [torch.sin(F.embedding(i, t)), torch.cos(F.embedding(j, t))]


class TestUnequalEmbeddingsOfOneTable(PatternConformance):
    pattern = UnequalEmbeddingsOfOneTable()
    examples = (
        Example(
            unequal,
            (index("b", 1, rows=7), index("b", 3, rows=7), tensor(7, 4)),
            {Embedding: 2},
            {Embedding: 1, Split: 1},
            (7, 2),
        ),
    )


def columns(x: Tensor) -> Tensor:
    return torch.cat([x[:, 0:1].half(), x[:, 1:2].half(), x[:, 2:3].half()], 1)


class TestConvertBelowJoin(PatternConformance):
    pattern = ConvertBelowJoin()
    examples = (Example(columns, (tensor("b", 4),), {Convert: 3}, {Convert: 1}, (2, 4)),)


def of_one(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return torch.tanh(F.linear(x, w, b))


class TestLinearOfOne(PatternConformance):
    pattern = LinearOfOne()
    examples = (
        Example(
            of_one, (tensor("b", 1), tensor(4, 1), tensor(4)), {Linear: 1}, {Linear: 0}, (3, 1)
        ),
    )


class TestLinearToOne(PatternConformance):
    pattern = LinearToOne()
    examples = (
        Example(
            of_one, (tensor("b", 4), tensor(1, 4), tensor(1)), {Linear: 1}, {Linear: 0}, (4, 1)
        ),
    )


def fields(x: Tensor, y: Tensor, v: Tensor, w: Tensor) -> list[Tensor]:
    return [torch.sin(F.linear(x, v)), torch.cos(F.linear(y, w))]


class TestLinearsOfOne(PatternConformance):
    pattern = LinearsOfOne()
    examples = (
        Example(
            fields,
            (tensor("b", 1), tensor("b", 1), tensor(4, 1), tensor(4, 1)),
            {Linear: 2},
            {Linear: 0, Unbind: 1},
            (10, 2),
        ),
    )


def bags(i: Tensor, j: Tensor, t: Tensor, u: Tensor) -> list[Tensor]:
    return [torch.sin(F.embedding_bag(i, t)), torch.cos(F.embedding_bag(j, u))]


class TestBatchBags(PatternConformance):
    pattern = BatchBags()
    examples = (
        Example(
            bags,
            (index("b", 3, rows=7), index("b", 3, rows=5), tensor(7, 4), tensor(5, 4)),
            {EmbeddingBag: 2},
            {EmbeddingBag: 1, Unbind: 1},
            (12, 2),
            levels=TORCH,
        ),
    )


def bag(i: Tensor, t: Tensor) -> Tensor:
    return torch.sin(F.embedding_bag(i, t, mode="sum"))


class TestBagAsSum(PatternConformance):
    pattern = BagAsSum()
    examples = (
        Example(
            bag,
            (index("b", 3, rows=7), tensor(7, 4)),
            {EmbeddingBag: 1},
            {EmbeddingBag: 0, Embedding: 1, Reduce: 1},
            (2, 1),
            levels=TORCH,
        ),
    )


def summed(i: Tensor, t: Tensor) -> Tensor:
    return torch.sin(torch.mean(F.embedding(i, t), 1))


class TestSumAsBag(PatternConformance):
    pattern = SumAsBag()
    examples = (
        Example(
            summed,
            (index("b", 3, rows=7), tensor(7, 4)),
            {Embedding: 1, Reduce: 1},
            {EmbeddingBag: 1, Embedding: 0},
            (1, 2),
            levels=TORCH,
        ),
    )


def scatter(i: Tensor, v: Tensor) -> Tensor:
    return torch.sin(torch.index_put(v.new_zeros(3, 4), (i,), v, True))


class TestScatterAsMaskedSum(PatternConformance):
    pattern = ScatterAsMaskedSum()
    examples = (
        Example(
            scatter,
            (index(48, rows=3), tensor(48, 4)),
            {IndexAdd: 1},
            {IndexAdd: 0, Reduce: 1},
            (14, 2),
            levels=ATEN,
        ),
    )


class TestScatterAsProduct(PatternConformance):
    pattern = ScatterAsProduct()
    examples = (
        Example(
            scatter,
            (index(48, rows=3), tensor(48, 4)),
            {IndexAdd: 1},
            {IndexAdd: 0},
            (12, 2),
            levels=ATEN,
        ),
    )

"""Matrix products, weighted sums, pairs and chains."""

from __future__ import annotations

import itertools

import torch
import torch.nn.functional as F
from torch import Tensor

from passwright.passes.conformance import Example, PatternConformance, tensor
from passwright.passes.dialect import Dialect
from passwright.passes.ops import Binary, Cat, Einsum, Linear, Matmul, Permute, Reduce, Stack
from passwright.passes.patterns import (
    BatchMatmuls,
    BatchWeightedSums,
    CatOfRepeats,
    EinsumInPairs,
    InnerProductsAsMatmul,
    LinearOfCat,
    LinearsAdded,
    MatmulAsLinear,
    MatmulAsWeightedSum,
    MergeLinears,
    PairProducts,
    PermuteBelowJoin,
    ProductsOfRuns,
    ReassociateMatmuls,
    ReshapeBelowStack,
    SumOfMany,
    TallMatmuls,
    WeightedAddsAsMatmul,
    WeightedSumAsMatmul,
    WidenMatmuls,
)

TORCH = frozenset({Dialect.TORCH})
PAIRS = list(itertools.combinations(range(5), 2))


def two_products(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> list[Tensor]:
    return [torch.sin(torch.matmul(a, c)), torch.cos(torch.matmul(b, d))]


class TestBatchMatmuls(PatternConformance):
    pattern = BatchMatmuls()
    examples = (
        Example(
            two_products,
            (*[tensor("b", 3, 4)] * 2, *[tensor("b", 4, 2)] * 2),
            {Matmul: 2},
            {Matmul: 1, Stack: 2},
            (9, 2),
        ),
        Example(
            two_products,
            (*[tensor(3, 4)] * 2, *[tensor("b", 4, 1)] * 2),
            {Matmul: 2},
            {Matmul: 1, Stack: 2},
            (11, 2),
            levels=TORCH,
        ),
    )


def one_left(a: Tensor, b: Tensor, c: Tensor) -> list[Tensor]:
    return [torch.sin(torch.bmm(a, b)), torch.cos(torch.bmm(a, c))]


class TestWidenMatmuls(PatternConformance):
    pattern = WidenMatmuls()
    examples = (
        Example(
            one_left,
            (tensor("b", 3, 4), tensor("b", 4, 2), tensor("b", 4, 5)),
            {Matmul: 2},
            {Matmul: 1, Cat: 1},
            (7, 2),
        ),
    )


def one_right(a: Tensor, b: Tensor, c: Tensor) -> list[Tensor]:
    return [torch.sin(torch.bmm(b, a)), torch.cos(torch.bmm(c, a))]


def one_matrix(a: Tensor, b: Tensor, c: Tensor) -> list[Tensor]:
    return [torch.sin(torch.matmul(b, a)), torch.cos(torch.matmul(c, a))]


class TestTallMatmuls(PatternConformance):
    pattern = TallMatmuls()
    examples = (
        Example(
            one_right,
            (tensor("b", 3, 4), tensor("b", 2, 3), tensor("b", 5, 3)),
            {Matmul: 2},
            {Matmul: 1, Cat: 1},
            (7, 2),
        ),
        Example(
            one_matrix,
            (tensor(3, 4), tensor("b", 3), tensor("b", 3)),
            {Matmul: 2},
            {Matmul: 1, Stack: 1},
            (5, 2),
            levels=TORCH,
        ),
    )


def product_and_linear(x: Tensor, v: Tensor, w: Tensor) -> list[Tensor]:
    return [torch.sin(torch.matmul(x, v)), torch.cos(F.linear(x, w))]


class TestMatmulAsLinear(PatternConformance):
    pattern = MatmulAsLinear()
    examples = (
        Example(
            product_and_linear,
            (tensor("b", 4), tensor(4, 3), tensor(2, 4)),
            {Matmul: 1, Linear: 1},
            {Linear: 2, Permute: 1},
            (2, 1),
        ),
    )


def weighted(g: Tensor, h: Tensor, x: Tensor) -> list[Tensor]:
    first, second = (torch.mul(w.unsqueeze(-1), x) for w in (g, h))
    return [torch.sin(torch.sum(first, 1)), torch.cos(torch.sum(second, 1))]


WEIGHTED = (tensor("b", 4), tensor("b", 4), tensor("b", 4, 3))


class TestBatchWeightedSums(PatternConformance):
    pattern = BatchWeightedSums()
    examples = (Example(weighted, WEIGHTED, {Reduce: 2}, {Reduce: 0, Matmul: 1}, (9, 4)),)


class TestWeightedSumAsMatmul(PatternConformance):
    pattern = WeightedSumAsMatmul()
    examples = (Example(weighted, WEIGHTED, {Reduce: 2}, {Reduce: 0, Matmul: 2}, (6, 4), steps=2),)


class TestMatmulAsWeightedSum(PatternConformance):
    pattern = MatmulAsWeightedSum()
    examples = (
        Example(
            lambda g, x: torch.sin(torch.matmul(g, x)),
            (tensor("b", 1, 4), tensor("b", 4, 3)),
            {Matmul: 1},
            {Matmul: 0, Reduce: 1},
            (3, 1),
        ),
    )


def turned(x: Tensor) -> Tensor:
    a, b, c = x.unbind(0)
    return torch.sin(torch.stack([a.transpose(0, 1), b.transpose(0, 1), c.transpose(0, 1)], 0))


class TestPermuteBelowJoin(PatternConformance):
    pattern = PermuteBelowJoin()
    examples = (
        Example(turned, (tensor(3, "b", 4),), {Permute: 3}, {Permute: 1, Stack: 1}, (3, 4)),
    )


def squeezed(x: Tensor) -> Tensor:
    a, b, c = x.unbind(0)
    return torch.sin(torch.stack([a.squeeze(2), b.squeeze(2), c.squeeze(2)], 1))


class TestReshapeBelowStack(PatternConformance):
    pattern = ReshapeBelowStack()
    examples = (Example(squeezed, (tensor(3, "b", 4, 1),), {Stack: 1}, {Stack: 1}, (2, 4)),)


def runs(x: Tensor) -> Tensor:
    a, b, c = x.split(1, 1)
    return torch.sin(torch.cat([torch.mul(a, b), torch.mul(a, c), torch.mul(b, c)], 1))


class TestProductsOfRuns(PatternConformance):
    pattern = ProductsOfRuns()
    examples = (Example(runs, (tensor("b", 3, 4),), {Binary: 3}, {Binary: 2}, (3, 3)),)


def pairs(x: Tensor) -> Tensor:
    parts = x.unbind(1)
    return torch.sin(torch.stack([torch.mul(parts[i], parts[j]) for i, j in PAIRS], 1))


class TestPairProducts(PatternConformance):
    pattern = PairProducts()
    examples = (Example(pairs, (tensor("b", 5, 4),), {Binary: 10}, {Binary: 1}, (7, 17)),)


def repeats(x: Tensor, y: Tensor) -> Tensor:
    return torch.sin(torch.cat([x, x, y, x, y, y, x, x], 1))


class TestCatOfRepeats(PatternConformance):
    pattern = CatOfRepeats()
    examples = (Example(repeats, (tensor("b", 1, 4),) * 2, {Cat: 1}, {Cat: 1}, (4, 1)),)


def inner(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    p = torch.cat([x, x, y, x, y, z, z, z], 1)
    q = torch.cat([x, y, z, y, z, x, y, z], 1)
    return torch.sin(torch.sum(torch.mul(p, q), -1))


class TestInnerProductsAsMatmul(PatternConformance):
    pattern = InnerProductsAsMatmul()
    examples = (
        Example(inner, (tensor("b", 1, 4),) * 3, {Reduce: 1}, {Reduce: 0, Matmul: 1}, (7, 4)),
    )


def attended(q: Tensor, k: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return torch.sin(F.linear(torch.cat([q.expand(-1, 5, -1), k], -1), w, b))


class TestLinearOfCat(PatternConformance):
    pattern = LinearOfCat()
    examples = (
        Example(
            attended,
            (tensor("b", 1, 3), tensor("b", 5, 2), tensor(4, 5), tensor(4)),
            {Linear: 1},
            {Linear: 2, Binary: 1},
            (5, 3),
        ),
    )


def gates(x: Tensor, h: Tensor, v: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return torch.sin(torch.add(F.linear(x, v, b), F.linear(h, w)))


class TestLinearsAdded(PatternConformance):
    pattern = LinearsAdded()
    examples = (
        Example(
            gates,
            (tensor("b", 3), tensor("b", 2), tensor(4, 3), tensor(4, 2), tensor(4)),
            {Linear: 2},
            {Linear: 1, Cat: 2},
            (3, 3),
        ),
    )


class TestReassociateMatmuls(PatternConformance):
    pattern = ReassociateMatmuls()
    examples = (
        Example(
            lambda a, b, c: torch.sin(torch.bmm(torch.bmm(a, b), c)),
            (tensor(2, 6, 5), tensor(2, 5, 6), tensor(2, 6, 1)),
            {Matmul: 2},
            {Matmul: 2},
            (2, 2),
        ),
    )


class TestMergeLinears(PatternConformance):
    pattern = MergeLinears()
    examples = (
        Example(
            lambda x, v, w, b: torch.sin(F.linear(F.linear(x, v, b), w)),
            (tensor(30, 6), tensor(5, 6), tensor(1, 5), tensor(5)),
            {Linear: 2},
            {Linear: 2, Matmul: 1},
            (5, 2),
        ),
    )


class TestEinsumInPairs(PatternConformance):
    pattern = EinsumInPairs()
    examples = (
        Example(
            lambda a, b, c: torch.sin(torch.einsum("ab,bc,cd->ad", a, b, c)),
            (tensor(6, 5), tensor(5, 6), tensor(6, 1)),
            {Einsum: 1},
            {Einsum: 2},
            (2, 1),
        ),
    )


def added(x: Tensor) -> Tensor:
    a, b, c = x.unbind(1)
    return torch.sin(torch.add(torch.add(c, a), b))


class TestSumOfMany(PatternConformance):
    pattern = SumOfMany()
    examples = (Example(added, (tensor("b", 3, 4),), {Binary: 2}, {Reduce: 1}, (2, 2)),)


def by_column(g: Tensor, x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    first, second = torch.mul(g[:, 0:1], x), torch.mul(g[:, 1:2], y)
    return torch.sin(torch.add(torch.add(first, second), torch.mul(z, g[:, 2:3])))


class TestWeightedAddsAsMatmul(PatternConformance):
    pattern = WeightedAddsAsMatmul()
    examples = (
        Example(
            by_column, (tensor("b", 3), *[tensor("b", 4)] * 3), {Binary: 5}, {Matmul: 1}, (5, 5)
        ),
    )

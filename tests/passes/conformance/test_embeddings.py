"""Embedding look-ups side by side."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from passwright.passes.conformance import Example, PatternConformance, index, tensor
from passwright.passes.ops import Cat, Embedding, Stack, Unbind
from passwright.passes.patterns import EmbeddingsOfOneTable, GatherEmbeddings


def two_tables(i: Tensor, j: Tensor, t: Tensor, u: Tensor) -> Tensor:
    return torch.cat([F.embedding(i, t), F.embedding(j, u)], 1)


class TestGatherEmbeddings(PatternConformance):
    pattern = GatherEmbeddings()
    examples = (
        Example(
            two_tables,
            (index("b", rows=7), index("b", rows=5), tensor(7, 4), tensor(5, 4)),
            {Embedding: 2, Cat: 1},
            {Embedding: 1, Stack: 1, Cat: 1},
            (7, 3),
        ),
    )


def one_table(i: Tensor, j: Tensor, t: Tensor) -> list[Tensor]:
    return [torch.sin(F.embedding(i, t)), torch.cos(F.embedding(j, t))]


class TestEmbeddingsOfOneTable(PatternConformance):
    pattern = EmbeddingsOfOneTable()
    examples = (
        Example(
            one_table,
            (index("b", rows=7), index("b", rows=7), tensor(7, 4)),
            {Embedding: 2},
            {Embedding: 1, Stack: 1, Unbind: 1},
            (5, 2),
        ),
    )

"""Calls by which look-ups of bags, and what scatters rows, are spelled."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from spellings import Arg, Case, Spelling, aten, i, sp, table, x, z

from passwright.passes.ops import EmbeddingBag, EmbeddingGradient, IndexAdd

flat = Arg("flat", sp("flatten", i))
starts = Arg("starts", sp("select", i, 1, 0))
factors = Arg("factors", sp("narrow", x, 1, 0, 3))
places = Arg("places", sp("select", i, 0, 0))
rows = Arg("rows", sp("select", z, 0, 0))
chosen = Arg("chosen", sp("gt", places, 0))
wanted = Arg("wanted", sp("unsqueeze", chosen, 1))

LOOKUPS: list[Case] = [
    (
        EmbeddingBag,
        (i, table, None, None, "mean", None),
        [
            sp(F.embedding_bag, i, table),
            sp(F.embedding_bag, input=i, weight=table, offsets=None, mode="mean"),
        ],
    ),
    (
        EmbeddingBag,
        (i, table, None, factors, "sum", 8),
        [
            sp(F.embedding_bag, i, table, mode="sum", per_sample_weights=factors, padding_idx=-1),
            sp(
                F.embedding_bag,
                *(i, table, None, None, 2.0, False, "sum", False, factors, False, 8),
            ),
        ],
    ),
    (
        EmbeddingBag,
        (flat, table, starts, None, "max", None),
        [
            sp(F.embedding_bag, flat, table, starts, mode="max"),
            sp(F.embedding_bag, flat, table, offsets=starts, mode="max", norm_type=1.0),
        ],
    ),
    (
        EmbeddingGradient,
        (z, i, 9, 2),
        [sp(aten.embedding_dense_backward.default, z, i, 9, 2, False)],
    ),
    (
        EmbeddingGradient,
        (z, i, 9, None),
        [sp(aten.embedding_dense_backward.default, z, i, 9, -1, False)],
    ),
    (
        IndexAdd,
        (x, places, rows, None),
        [
            sp(torch.index_put, x, (places,), rows, True),
            sp("index_put", x, [places], rows, accumulate=True),
            sp(aten.index_put.default, x, [places], rows, True),
            sp(aten._unsafe_index_put.default, x, [places], rows, True),
            sp(torch.index_add, x, 0, places, rows),
            sp("index_add", x, dim=0, index=places, source=rows, alpha=1),
            sp(aten.index_add.default, x, 0, places, rows),
        ],
    ),
    (
        IndexAdd,
        (x, places, rows, wanted),
        [sp(aten._unsafe_masked_index_put_accumulate.default, x, wanted, [places], rows)],
    ),
]

NOT_READ: list[Spelling] = [
    sp(F.embedding_bag, i, table, max_norm=1.0),
    sp(F.embedding_bag, i, table, mode="sum", scale_grad_by_freq=True),
    sp(F.embedding_bag, i, table, sparse=True),
    sp(F.embedding_bag, flat, table, starts, include_last_offset=True),
    sp(aten.embedding_dense_backward.default, z, i, 9, -1, True),
    sp(aten.index_put.default, x, [places], rows),
    sp(aten.index_put.default, x, [None, places], Arg("column", sp("new_ones", x, (4, 3))), True),
    sp(aten.index_put.default, x, [chosen], Arg("row", sp("select", x, 0, 0)), True),
    sp(torch.index_add, x, 1, places, Arg("column", sp("new_ones", x, (4, 3)))),
    sp(torch.index_add, x, 0, places, rows, alpha=2),
]

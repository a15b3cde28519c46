"""Moves for what recommendation models do with their fields: look-ups, pairs, experts, long cats."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import fx

from passwright.passes.random_graphs import BATCH, Grower, Maker, Refused, numbers_below
from passwright.passes.random_layer_moves import width_of, with_rank
from passwright.passes.random_moves import UNARIES, joined, like, move, pieces

# ---- look-ups


def lookup(g: Grower, table: fx.Node, *shape: int) -> fx.Node:
    """Rows of the table by an index of its own."""
    index = g.given(numbers_below(g.shape(table)[0]), *shape, dtype=torch.int64)
    return g.call(F.embedding, index, table)


def starts(length: int) -> Maker:
    """Where bags of at most so many indices begin: at 0, and then not before the last one."""

    def make(shape: list[int], stream: torch.Generator) -> torch.Tensor:
        steps = torch.randint(0, length + 1, shape, generator=stream)
        steps[0] = 0
        return steps.cumsum(0)

    return make


@move(2)
def bags(g: Grower) -> None:
    """Bags of embeddings: of one length or with offsets, with weights or without."""
    width, rows, length = g.draw.choice([4, 6]), g.draw.choice([3, 9]), g.draw.choice([2, 3])
    mode = g.draw.choice(["sum", "sum", "mean", "max"])
    flat = g.chance(0.3) and not g.traits.dynamic
    weighed, padding = mode == "sum" and g.chance(0.3), g.draw.choice([None, None, None, 1])
    shape = (BATCH * length,) if flat else (BATCH, length)
    table, made = g.parameter(rows, width), []
    for _ in range(g.draw.randint(2, 3)):
        table = table if g.chance(0.3) else g.parameter(rows, width)
        index = g.given(numbers_below(rows), *shape, dtype=torch.int64)
        offsets = g.given(starts(length), BATCH, dtype=torch.int64) if flat else None
        more: dict[str, Any] = {"mode": mode, "padding_idx": padding}
        if weighed:
            more["per_sample_weights"] = g.first(lambda: g.input(*shape))
        made.append(g.call(F.embedding_bag, index, table, offsets, **more))
    g.keep(*made)


@move(1)
def summed_rows(g: Grower) -> None:
    """Sums or means of looked-up rows."""
    table, function = g.parameter(g.draw.choice([3, 9]), 4), g.draw.choice([torch.sum, torch.mean])
    rows = [lookup(g, table, BATCH, g.draw.choice([2, 3])) for _ in range(g.draw.randint(1, 2))]
    g.keep(*(g.call(function, r, 1, keepdim=g.chance(0.3)) for r in rows))


@move(2)
def repeated_lookups(g: Grower) -> None:
    """The same few indices in several tables, at times twice in one."""
    rows, width, count = g.draw.choice([3, 9]), g.draw.choice([4, 6]), g.draw.randint(2, 3)
    tables = [g.parameter(rows, width if g.chance(0.7) else 3) for _ in range(count)]
    indices = [g.given(numbers_below(rows), BATCH, dtype=torch.int64) for _ in range(2)]
    chosen = [(i, t) for t in tables for i in indices]
    g.draw.shuffle(chosen)
    found = chosen[: g.draw.randint(3, 5)] + chosen[: g.chance(0.5)]
    g.keep(*(g.call(F.embedding, i, t) for i, t in found))


@move(1)
def unequal_lookups(g: Grower) -> None:
    """An item and a history of items in one table."""
    table = g.parameter(g.draw.choice([3, 9]), 4)
    shapes = g.draw.sample([(BATCH,), (BATCH, 1), (BATCH, 3), (BATCH, 2)], 2)
    g.keep(*(lookup(g, table, *shape) for shape in shapes))


@move(2)
def columns(g: Grower) -> None:
    """Look-ups by the columns of one matrix of indices, which mostly is of floats."""
    rows, count, width = g.draw.choice([3, 9]), g.draw.randint(2, 4), g.draw.choice([4, 6])
    dtype = g.draw.choice([torch.float32, torch.float64, torch.int64])
    x = g.given(numbers_below(rows), BATCH, count, dtype=dtype)
    wide = g.chance(0.4)
    found = []
    for i in range(count):
        column = g.call(torch.narrow, x, 1, i, 1) if wide else g.call(torch.select, x, 1, i)
        found.append(g.call("long", column))
    if g.chance(0.3):
        both = g.call(torch.cat if wide else torch.stack, found, 1)
        g.keep(g.call(F.embedding, both, g.parameter(rows, width)))
        return
    shared = g.chance(0.4)
    table = g.parameter(rows, width)
    tables = [table if shared else g.parameter(rows, width) for _ in found]
    made = [g.call(F.embedding, i, t) for i, t in zip(found, tables, strict=True)]
    g.keep(*made)
    if g.chance(0.5):
        g.keep(joined(g, made))


@move(3)
def scatter(g: Grower) -> None:
    """Rows added into a small table by an index, in ATen-IR alone."""
    if not g.traits.aten:
        raise Refused
    rows, width = g.draw.choice([2, 3]), 4
    added = g.first(lambda: g.input(BATCH, 10, width))
    index = g.given(numbers_below(rows), BATCH, 10, dtype=torch.int64)
    zeros = g.call("new_zeros", added, [rows, width])
    g.keep(g.call(torch.index_put, zeros, [index], added, True))


# ---- dense fields


@move(2)
def dense_fields(g: Grower) -> None:
    """Linears of one feature each, or to one."""
    x = g.any()
    width, out, last = width_of(g, x), g.draw.choice([3, 4]), len(g.shape(x)) - 1
    if g.chance(0.3):
        g.keep(*(g.call(F.linear, y, g.parameter(1, width), g.parameter(1)) for y in like(g)))
        return
    parts = pieces(g, g.call(torch.split, x, 1, last))[:4]
    biased = g.chance(0.7)
    made = []
    for part in parts:
        b = g.parameter(out) if biased else None
        made.append(g.call(F.linear, part, g.parameter(out, 1), b))
    g.keep(*made)


# ---- many of few


@move(1)
def long_join(g: Grower) -> None:
    """A cat or stack of more than 8 inputs that are few values, or of pieces out of order."""
    x = g.any()
    dim = len(g.shape(x)) - 1
    if width_of(g, x) > 12:
        raise Refused
    parts = pieces(g, g.call(torch.split, x, 1, dim))
    count = g.draw.randint(2, len(parts))
    order = [i for i in range(count) for _ in range(-(-9 // count))]
    if g.chance(0.5):
        g.draw.shuffle(order)
    g.keep(g.call(torch.cat, [parts[i] for i in order], dim))


@move(2)
def pairs(g: Grower) -> None:
    """Products of all pairs of fields, written one by one, or as cats of repeats."""
    (x, *_) = with_rank(g, like(g)[:1], 3)
    fields, stacks = width_of(g, x, 1), g.chance(0.3)
    if fields > 6:
        raise Refused
    if stacks:
        parts = [g.call(torch.select, x, 1, i) for i in range(fields)]
    else:
        parts = pieces(g, g.call(torch.split, x, 1, 1))
    every = [(i, j) for i in range(fields) for j in range(i + 1, fields)]
    if len(every) < 8:
        every = [(i, j) for i in range(fields) for j in range(fields)]
    join = torch.stack if stacks else torch.cat
    if g.chance(0.4):
        sides = [g.call(join, [parts[pair[side]] for pair in every], 1) for side in (0, 1)]
        whole = g.call(torch.mul, *sides)
    else:
        whole = g.call(join, [g.call(torch.mul, parts[i], parts[j]) for i, j in every], 1)
    g.keep(g.call(torch.sum, whole, -1) if g.chance(0.5) else whole)


@move(3)
def experts(g: Grower) -> None:
    """Sums of experts' values, each with weights of its own."""
    (x, *_) = with_rank(g, like(g)[:1], 3)
    count, width = width_of(g, x, 1), width_of(g, x)
    flat = g.call(torch.sum, x, 1)
    made, kind = [], g.draw.choice(["sum", "sum", "product", "terms", "terms", "parts"])
    for _ in range(g.draw.randint(1, 3)):
        gate = g.call(torch.softmax, g.call(F.linear, flat, g.parameter(count, width)), -1)
        if kind == "sum":
            weighed = g.call(torch.mul, g.call(torch.unsqueeze, gate, 2), x)
            made.append(g.call(torch.sum, weighed, 1))
        elif kind == "product":
            made.append(g.call(torch.matmul, g.call(torch.unsqueeze, gate, 1), x))
        else:
            made.append(_terms(g, gate, x, count, weighed=kind == "terms"))
    g.keep(*made)


def _terms(g: Grower, gate: fx.Node, x: fx.Node, count: int, *, weighed: bool) -> fx.Node:
    """The sum written out: of experts, or of weighted ones."""
    values = [g.call(torch.select, x, 1, i) for i in range(count)]
    if weighed:
        weights = pieces(g, g.call(torch.split, gate, 1, 1))
        values = [g.call(torch.mul, w, v) for w, v in zip(weights, values, strict=True)]
    total = values[0]
    for value in values[1:]:
        total = g.call(torch.add, total, value)
    return total


@move(2)
def selects(g: Grower) -> None:
    """Neighbouring selects put side by side again, along their dim or another."""
    x = g.any()
    dim = g.static_dim(x)
    size = width_of(g, x, dim)
    first = g.draw.randrange(size - 1)
    count = min(g.draw.randint(2, 4), size - first)
    parts = [g.call(torch.select, x, dim, first + i) for i in range(count)]
    whole = g.call(torch.stack, parts, g.draw.choice([dim, 0, len(g.shape(x)) - 1]))
    g.keep(g.call(g.draw.choice(UNARIES), whole) if g.chance(0.7) else whole)


@move(1)
def unstack(g: Grower) -> None:
    """Slices of a stack along its dim."""
    found = like(g)
    dim = g.draw.randint(0, len(g.shape(found[0])))
    whole = g.call(torch.stack, found, dim)
    if g.chance(0.5):
        g.keep(*pieces(g, g.call(torch.unbind, whole, dim)))
    else:
        g.keep(g.call(torch.select, whole, dim, g.draw.randrange(len(found))))


@move(3)
def turned_parts(g: Grower) -> None:
    """Parts of one value, each moved, reshaped or converted, put together again."""
    (x, *_) = with_rank(g, like(g)[:1], 3)
    parts = pieces(g, g.call(torch.split, x, 1, 1))
    kind = g.draw.choice(["squeeze", "transpose", "unbind", "flatten", "convert"])
    if kind == "squeeze":
        parts = [g.call("squeeze", p, 1) for p in parts]
    elif kind == "transpose":
        parts = [g.call(torch.transpose, p, 1, 2) for p in parts]
    elif kind == "unbind":
        cut = pieces(g, g.call(torch.unbind, x, 0 if not g.traits.dynamic else 1))
        parts = [g.call(torch.transpose, p, 0, 1) for p in cut]
    elif kind == "flatten":
        deep = g.call(torch.unsqueeze, x, g.draw.choice([2, 3]))
        cut = pieces(
            g, g.call(torch.unbind, deep, 1 if g.traits.dynamic else g.draw.choice([0, 1]))
        )
        parts = [g.call("flatten", p, 1) for p in cut]
    else:
        wanted = g.draw.choice(["double", "float"])
        parts = [g.call(wanted, p) for p in parts]
    rank = len(g.shape(parts[0]))
    if g.chance(0.5):
        g.keep(g.call(torch.stack, parts, g.draw.randint(0, rank)))
    else:
        g.keep(g.call(torch.cat, parts, g.draw.randrange(rank)))

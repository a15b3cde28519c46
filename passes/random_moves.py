"""The moves by which a random graph grows: a table to which a new op or pattern adds its own.

A move takes the `Grower`, adds a few calls, and keeps the values that others may use. It need not
mind shapes: where torch refuses a call, the move ends.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx

from passwright.passes.random_graphs import BATCH, Grower, Refused

Move = Callable[[Grower], object]
#: Name of a move to its weight and itself.
MOVES: dict[str, tuple[int, Move]] = {}
#: Pointwise functions that keep numbers in range.
UNARIES: list[Any] = [
    *(torch.tanh, torch.sigmoid, torch.relu, torch.sin, torch.cos, torch.abs, torch.neg, torch.erf),
    *(F.gelu, F.silu, F.softplus, F.elu, F.relu, F.leaky_relu, F.hardtanh, F.logsigmoid),
]
BINARIES: list[Any] = [
    *(torch.add, torch.sub, torch.mul, operator.add, operator.mul, torch.maximum, torch.minimum),
]


def move(weight: int) -> Callable[[Move], Move]:
    """Enters a move into the table."""

    def enter(function: Move) -> Move:
        MOVES[function.__name__] = (weight, function)
        return function

    return enter


# ---- cutting


def pieces(g: Grower, several: fx.Node) -> list[fx.Node]:
    """All outputs of a node that has several."""
    return [g.call(operator.getitem, several, i) for i in range(len(g.value(several)))]


def cut(g: Grower, x: fx.Node) -> list[fx.Node]:
    """Consecutive parts of x."""
    dim = g.static_dim(x)
    size = g.shape(x)[dim]
    kind = g.draw.choice(["split"] * 3 + ["sizes", "unbind", "selects", "slices"])
    if kind == "unbind" and size <= 8:
        return pieces(g, g.call(torch.unbind, x, dim))
    if kind == "selects" and size <= 8:
        return [g.call(torch.select, x, dim, i) for i in range(size)]
    width = g.draw.choice(
        [w for w in (1, 2, 3, 4, 6, 12) if size % w == 0 and size // w <= 8] or [size]
    )
    if kind == "slices":
        return [g.call(torch.narrow, x, dim, at, width) for at in range(0, size, width)]
    if kind == "sizes":
        sizes: list[int] = []
        while sum(sizes) < size:
            sizes.append(min(size - sum(sizes), g.draw.randint(1, max(size // 2, 1))))
        return pieces(g, g.call(torch.split, x, sizes, dim))
    return pieces(g, g.call(torch.split, x, width, dim))


@move(5)
def split(g: Grower) -> None:
    """Parts of a value; at times only some are used."""
    parts = cut(g, g.any())
    if g.chance(0.3):
        parts = g.draw.sample(parts, g.draw.randint(1, len(parts)))
    g.keep(*parts)


@move(2)
def nested_split(g: Grower) -> None:
    """A part that is cut again along the same dim."""
    x = g.any()
    dim = g.static_dim(x)
    size = g.shape(x)[dim]
    parts = pieces(g, g.call(torch.split, x, [size - size // 2, size // 2], dim))
    g.keep(*pieces(g, g.call(torch.split, parts[0], max(size // 4, 1), dim)), parts[1])


@move(2)
def nested_slice(g: Grower) -> None:
    """A slice or select of a slice or piece."""
    x = g.any()
    dim = g.static_dim(x)
    size = g.shape(x)[dim]
    start = g.draw.randrange(size)
    part = g.call(torch.narrow, x, dim, start, g.draw.randint(1, size - start))
    if g.chance(0.3) and size > 1:
        several = g.call(torch.split, x, [1, size - 1], dim)
        part = g.call(operator.getitem, several, 1)
    inner = g.draw.randrange(g.shape(part)[dim])
    if g.chance(0.4):
        g.keep(g.call(torch.select, part, dim, inner))
    else:
        g.keep(g.call(torch.narrow, part, dim, inner, g.shape(part)[dim] - inner))


# ---- joining


def joined(g: Grower, parts: list[fx.Node]) -> fx.Node:
    """A cat or stack of the parts."""
    rank = len(g.shape(parts[0]))
    kind = g.draw.choice(["cat", "cat", "stack", "columns"])
    if kind == "stack":
        return g.call(torch.stack, parts, g.draw.randint(0, rank))
    if kind == "columns":
        dim = g.draw.randint(0, rank)
        return g.call(torch.cat, [g.call(torch.unsqueeze, p, dim) for p in parts], dim)
    return g.call(torch.cat, parts, g.draw.choice([*range(rank), rank - 1]))


def arranged(g: Grower, parts: list[fx.Node]) -> list[fx.Node]:
    """All of the parts, a run, another order, some twice, some of another place."""
    order = g.draw.choice(["all"] * 4 + ["run", "reverse", "shuffle", "grid", "twice", "mixed"])
    parts = list(parts)
    if order == "run":
        start = g.draw.randrange(len(parts))
        return parts[start : start + g.draw.randint(1, 4)]
    if order == "grid":
        columns = g.draw.choice([c for c in range(1, len(parts) + 1) if len(parts) % c == 0])
        return [node for c in range(columns) for node in parts[c::columns]]
    if order == "twice":
        return parts + parts[: g.draw.randint(1, 3)]
    if order == "mixed":
        parts = [*g.draw.sample(parts, min(len(parts), 3)), g.any()]
    if order in ("shuffle", "mixed"):
        g.draw.shuffle(parts)
    return parts[::-1] if order == "reverse" else parts


@move(5)
def join(g: Grower) -> None:
    """A family put together."""
    g.keep(joined(g, arranged(g, g.family())))


@move(4)
def rejoin(g: Grower) -> None:
    """A value cut up, perhaps through a function, put together, and perhaps cut again."""
    parts = cut(g, g.any())
    if g.chance(0.3):
        function = g.draw.choice(UNARIES)
        parts = [g.call(function, part) for part in parts]
    whole = joined(g, arranged(g, parts))
    g.keep(whole)
    if g.chance(0.5):
        g.keep(*cut(g, whole))


@move(1)
def rotated(g: Grower) -> None:
    """The parts of a value put together from another one on."""
    x = g.any()
    dim = g.static_dim(x)
    size = g.shape(x)[dim]
    if size < 3:
        raise Refused
    parts = pieces(g, g.call(torch.split, x, max(size // g.draw.choice([3, 4]), 1), dim))
    start = g.draw.randint(1, len(parts) - 1)
    g.keep(g.call(torch.cat, parts[start:] + parts[:start], dim))


@move(2)
def regrouped(g: Grower) -> None:
    """Like values put together and cut into pieces of two each, and a function of the pieces."""
    found = like(g) * 2
    dim = g.static_dim(found[0])
    size = g.shape(found[0])[dim]
    whole = g.call(torch.cat, found[:4], dim)
    function = g.draw.choice(UNARIES)
    g.keep(*(g.call(function, p) for p in pieces(g, g.call(torch.split, whole, 2 * size, dim))))


@move(2)
def grid(g: Grower) -> None:
    """Equal pieces joined in the order of a transposed grid."""
    x = g.any()
    dim = g.static_dim(x)
    size = g.shape(x)[dim]
    count = g.draw.choice([c for c in (4, 6, 8, 12) if size % c == 0] or [0])
    if not count:
        raise Refused
    parts = pieces(g, g.call(torch.split, x, size // count, dim))
    columns = g.draw.choice([c for c in range(2, count) if count % c == 0])
    g.keep(g.call(torch.cat, [p for c in range(columns) for p in parts[c::columns]], dim))


@move(2)
def nested_cat(g: Grower) -> None:
    """A cat that flows into another along its dim, or is sliced."""
    parts = arranged(g, g.family())
    dim = g.draw.randrange(max(len(g.shape(parts[0])), 1))
    inner = g.call(torch.cat, parts, dim)
    if g.chance(0.5):
        g.keep(g.call(torch.cat, [inner, g.draw.choice([*parts, g.any()])], dim))
    else:
        size = g.shape(inner)[dim]
        if type(size) is not int:
            raise Refused
        start = g.draw.randrange(size)
        if g.chance(0.3):
            g.keep(g.call(torch.select, inner, dim, start))
        else:
            g.keep(g.call(torch.narrow, inner, dim, start, g.draw.randint(1, size - start)))


# ---- shapes


@move(4)
def reshape(g: Grower) -> None:
    """One or two changes of shape."""
    x = g.any()
    for _ in range(g.draw.choice([1, 1, 2])):
        x = _reshaped(g, x)
    g.keep(x)


def _reshaped(g: Grower, x: fx.Node) -> fx.Node:
    shape = g.shape(x)
    rank = len(shape)
    tail = math.prod(shape[1:]) if all(type(s) is int for s in shape[1:]) else 0
    if not rank or not tail:
        raise Refused
    width = g.draw.choice([w for w in range(1, tail + 1) if tail % w == 0])
    kind = g.draw.randrange(9)
    if kind < 3:
        target = g.draw.choice(["reshape", "reshape", "view"])
        return g.call(target, x, -1, tail // width, width)
    if kind == 3:
        return g.call(torch.flatten, x, g.draw.randrange(min(rank, 2)))
    if kind == 4:
        return g.call(torch.unsqueeze, x, g.draw.randint(0, rank))
    if kind == 5:
        return g.call("squeeze", x, g.draw.randrange(rank))
    if kind == 6:
        return g.call("reshape", x, -1, *shape[1:])
    dims = list(range(rank))
    if kind == 7:
        g.draw.shuffle(dims)
        return g.call(torch.permute, x, sorted(dims) if g.chance(0.1) else dims)
    return g.call(torch.transpose, x, g.draw.choice(dims), g.draw.choice(dims))


@move(1)
def turned_twice(g: Grower) -> None:
    """A permute of a permute."""
    x = g.any()
    for _ in range(2):
        dims = list(range(len(g.shape(x))))
        g.draw.shuffle(dims)
        x = g.call(torch.permute, x, dims)
    g.keep(x)


# ---- arithmetic


def like(g: Grower) -> list[fx.Node]:
    """Two to five values of one shape, mostly of one family."""
    found = g.family()
    first = g.draw.choice(found)
    alike = [n for n in [*found, *g.values] if str(g.shape(n)) == str(g.shape(first))]
    alike = [n for n in dict.fromkeys(alike) if g.value(n).is_floating_point()]
    if not alike:
        raise Refused
    count = g.draw.randint(2, 5)
    return [*alike[:count], *g.draw.choices(alike, k=max(0, 2 - len(alike)))]


@move(4)
def unaries(g: Grower) -> None:
    """The same function of like values."""
    function = g.draw.choice(UNARIES)
    g.keep(*(g.call(function, x) for x in like(g)))


@move(2)
def unary(g: Grower) -> None:
    """A function of one value."""
    g.keep(g.call(g.draw.choice([*UNARIES, torch.exp, torch.square]), g.call(torch.tanh, g.any())))


@move(4)
def binaries(g: Grower) -> None:
    """The same function of pairs, one operand perhaps shared, a number, or a vector."""
    function, found = g.draw.choice(BINARIES), like(g)
    shared: Any = g.draw.choice([None, None, g.any(), 0.5])
    if g.chance(0.2):
        shared = g.parameter(g.shape(found[0])[-1])
    made = []
    for x in found:
        other = g.draw.choice(found) if shared is None else shared
        given = {"alpha": 2} if function is torch.add and g.chance(0.2) else {}
        pair = (other, x) if g.chance(0.1) and isinstance(other, fx.Node) else (x, other)
        made.append(g.call(function, *pair, **given))
    g.keep(*made)


@move(5)
def linears(g: Grower) -> None:
    """Linears of like values: weights of their own, one weight, or one input."""
    found = like(g)
    width = g.shape(found[0])[-1]
    out = g.draw.choice([2, 3, 4, 6, 12])
    kind = g.draw.choice(["own", "own", "tall", "wide", "uneven"])
    if type(width) is not int:
        raise Refused
    if kind in ("wide", "uneven"):
        found = [found[0]] * len(found)
    w, b = g.parameter(out, width), g.parameter(out)
    biased = g.draw.choice([0.0, 1.0, 1.0, 0.7])
    made = []
    for x in found:
        rows = g.draw.choice([out, 2, 3]) if kind == "uneven" else out
        if kind != "tall":
            w, b = g.parameter(rows, width), g.parameter(rows)
        made.append(g.call(F.linear, x, w, b if g.chance(biased) else None))
    g.keep(*made)


@move(3)
def norms(g: Grower) -> None:
    """Layer norms of like values."""
    found = like(g)
    width = g.shape(found[0])[-1]
    if type(width) is not int or width < 2:
        raise Refused
    affine = g.chance(0.7)
    made = []
    for x in found:
        w, b = (g.parameter(width), g.parameter(width)) if affine else (None, None)
        made.append(g.call(F.layer_norm, x, [width], w, b))
    g.keep(*made)


@move(4)
def lookups(g: Grower) -> None:
    """Embeddings of one table or of several, mostly joined."""
    width, rows = g.draw.choice([4, 6]), g.draw.choice([3, 5, 9])
    shape = g.draw.choice([(BATCH,), (BATCH,), (BATCH, 2)])
    several, padding = g.chance(0.6), g.draw.choice([None, None, None, 1])
    table = g.parameter(rows, width)
    index = g.index(rows, *shape)
    made = []
    for _ in range(g.draw.randint(2, 4)):
        table = g.parameter(rows, width) if several else table
        fresh = g.chance(0.8)
        index = g.index(rows, *shape) if fresh else index
        made.append(g.call(F.embedding, index, table, padding))
    g.keep(*made)
    if g.chance(0.8):
        g.keep(g.call(g.draw.choice([torch.cat, torch.stack]), made, g.draw.choice([0, 1, -1])))


@move(1)
def self_products(g: Grower) -> None:
    """Products of values with themselves."""
    found = like(g)
    function = torch.bmm if len(g.shape(found[0])) == 3 else torch.matmul
    g.keep(*(g.call(function, v, g.call(torch.transpose, v, -1, -2)) for v in found))

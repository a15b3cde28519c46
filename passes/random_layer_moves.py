"""Moves for layers that models are made of: norms, convolutions, attention, products, branches."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx

from passwright.passes.random_graphs import Grower, Refused, numbers_below
from passwright.passes.random_moves import UNARIES, like, move


def width_of(g: Grower, x: fx.Node, dim: int = -1) -> int:
    """A size that is known."""
    size = g.shape(x)[dim]
    if type(size) is not int or size < 2:
        raise Refused
    return size


def with_rank(g: Grower, found: Sequence[fx.Node], rank: int) -> list[fx.Node]:
    """Values of rank 2 or 3 with more dims: the last one taken apart, then one of size 1."""
    made = []
    for x in found:
        if len(g.shape(x)) == 2 < rank:
            width = width_of(g, x)
            rows = g.draw.choice([n for n in (2, 3, 4, 6) if width % n == 0] or [1])
            x = g.call("reshape", x, -1, rows, width // rows)
        if len(g.shape(x)) == 3 < rank:
            x = g.call(torch.unsqueeze, x, g.draw.choice([1, 1, -1]))
        made.append(x)
    shape = str(g.shape(made[0]))
    if len(g.shape(made[0])) != rank:
        raise Refused
    return [x for x in made if str(g.shape(x)) == shape]


def positive(shape: list[int], stream: torch.Generator) -> torch.Tensor:
    """Numbers from 0.5 on, as a variance is."""
    return torch.rand(shape, generator=stream, dtype=torch.float64) + 0.5


def normal(shape: list[int], stream: torch.Generator) -> torch.Tensor:
    """Numbers around 0, as a mean is."""
    return torch.randn(shape, generator=stream, dtype=torch.float64)


def normed(g: Grower, found: Sequence[fx.Node]) -> list[fx.Node]:
    """Batch norms: of training or evaluation, with or without statistics, private or not."""
    training = g.chance(0.1 if g.traits.inference else 0.6)
    affine, dtype = g.chance(0.7), g.traits.dtype
    tracked = not training or (g.chance(0.7) and not g.traits.aten)
    shared, returned = g.chance(0.1), g.chance(0.1)
    mean = var = w = b = None
    made = []
    for x in found:
        width = width_of(g, x, 1)
        if tracked and not (shared and mean is not None and g.shape(mean) == (width,)):
            mean = g.given(normal, width, dtype=dtype)
            var = g.given(positive, width, dtype=dtype)
        if affine:
            w, b = g.parameter(width), g.parameter(width)
        made.append(g.call(F.batch_norm, x, mean, var, w, b, training, 0.1))
    if mean is not None and returned:
        g.returned.append(mean)
    if mean is not None and g.chance(0.1):
        g.keep(g.call(torch.mul, mean, 2.0))
    return made


@move(3)
def batch_norms(g: Grower) -> None:
    """Batch norms of like values."""
    g.keep(*normed(g, like(g)))


@move(1)
def counters(g: Grower) -> None:
    """Numbers that count calls; at times one is counted twice, or returned."""
    if g.traits.aten:
        raise Refused
    found = [g.given(numbers_below(9), dtype=torch.int64) for _ in range(g.draw.randint(2, 4))]
    by = g.draw.choice([1, 1, 2])
    for counter in found + found[: g.chance(0.1)]:
        g.call("add_", counter, by)
    if g.chance(0.1):
        g.returned.append(found[0])


@move(3)
def convolutions(g: Grower) -> None:
    """Convolutions of like values or of one, most of a single place."""
    rank = g.draw.choice([3, 3, 4])
    found = with_rank(g, like(g), rank)
    if g.chance(0.5):
        found = found[:1] * len(found)
    channels, kernel = width_of(g, found[0], 1), g.draw.choice([1, 1, 1, 2])
    padding = g.draw.choice([0, 1]) if kernel == 2 else 0
    biased = g.chance(0.7)
    made = []
    for x in found:
        out = g.draw.choice([2, 3, 4])
        w = g.parameter(out, channels, *[kernel] * (rank - 2))
        b = g.parameter(out) if biased else None
        made.append(g.call(F.conv1d if rank == 3 else F.conv2d, x, w, b, 1, padding))
    g.keep(*made)
    if g.chance(0.3):
        g.keep(*normed(g, made))


# ---- attention


@move(3)
def attentions(g: Grower) -> None:
    """Attention of like values, written out or by torch's function."""
    found = with_rank(g, like(g), g.draw.choice([3, 3, 4]))[:3]
    written, scale = g.chance(0.5), g.draw.choice([None, 0.5])
    causal = not written and g.chance(0.2)
    mask = _mask(g, found[0]) if written and g.chance(0.3) else None
    made = []
    for q in found:
        k = g.draw.choice([q, *found])
        v = g.call(g.draw.choice(UNARIES), k) if g.chance(0.5) else k
        if written:
            made.append(_written(g, q, k, v, mask))
        else:
            options = {"is_causal": causal, "scale": scale}
            made.append(g.call(F.scaled_dot_product_attention, q, k, v, **options))
    g.keep(*made)


def _mask(g: Grower, x: fx.Node) -> fx.Node:
    """Numbers that switch some places off: -5 or 0."""
    length = width_of(g, x, -2)
    seen = g.given(numbers_below(2), length, length, dtype=torch.bool)
    return g.call(torch.mul, g.call("to", seen, g.traits.dtype), -5.0)


def _written(g: Grower, q: fx.Node, k: fx.Node, v: fx.Node, mask: fx.Node | None) -> fx.Node:
    place = g.draw.choice(["before", "factor", "divisor", "none"])
    if place == "before":
        q = g.call(torch.mul, q, 0.5)
    if len(g.shape(q)) == 3 and g.chance(0.3):
        scores = g.call(torch.einsum, "bid,bjd->bij", q, k)
    else:
        scores = g.call(torch.matmul, q, g.call(torch.transpose, k, -1, -2))
    if place == "factor":
        scores = g.call(torch.mul, scores, 0.5)
    if place == "divisor":
        scores = g.call(torch.div, scores, 2.0)
    if mask is not None:
        scores = g.call(torch.add, scores, mask)
    weights = g.call(torch.softmax, scores, -1)
    if g.chance(0.3):
        weights = g.call(F.dropout, weights, 0.5, False)
    return g.call(torch.matmul, weights, v)


@move(1)
def multi_head(g: Grower) -> None:
    """Attention by torch's function for modules, its weights mostly unused."""
    (x, *_) = with_rank(g, like(g)[:1], 3)
    width = width_of(g, x)
    w, v, b = g.parameter(3 * width, width), g.parameter(width, width), g.parameter(3 * width)
    heads = 2 if width % 2 == 0 else 1
    given: list[Any] = [x, x, x, width, heads, w, b if g.chance(0.5) else None]
    both = g.call(F.multi_head_attention_forward, *given, None, None, False, 0.0, v, None)
    count = 1 if g.chance(0.8) else 2
    g.keep(*(g.call(operator.getitem, both, i) for i in range(count)))


# ---- sums and products


@move(2)
def reductions(g: Grower) -> None:
    """Sums, means, largest numbers, softmaxes of like values."""
    found = like(g)
    dim = g.draw.randrange(len(g.shape(found[0])))
    function = g.draw.choice([torch.sum, torch.mean, torch.amax, torch.softmax, F.log_softmax])
    softmax = function in (torch.softmax, F.log_softmax)
    more = {} if softmax else {"keepdim": g.chance(0.5)}
    g.keep(*(g.call(function, x, dim, **more) for x in found))


@move(1)
def dropouts(g: Grower) -> None:
    """Dropouts that are switched off, or at rate 0, and a function of each.

    Alone none is kept: run as it is, it returns its input, but compiled a copy, and an output shows
    which.
    """
    rate, training = g.draw.choice([(0.5, False), (0.0, True)])
    function = g.draw.choice(UNARIES)
    g.keep(*(g.call(function, g.call(F.dropout, x, rate, training)) for x in like(g)))


@move(2)
def chains(g: Grower) -> None:
    """Two Linears or products one behind the other, with a wide value between."""
    x = g.any()
    width, middle, out = width_of(g, x), g.draw.choice([12, 16]), g.draw.choice([2, 3])
    if g.chance(0.5):
        w, v = g.parameter(middle, width), g.parameter(out, middle)
        inner = g.call(F.linear, x, w, g.parameter(middle) if g.chance(0.5) else None)
        g.keep(g.call(F.linear, inner, v, g.parameter(out) if g.chance(0.5) else None))
    else:
        w, v = g.parameter(width, middle), g.parameter(middle, out)
        g.keep(g.call(torch.matmul, g.call(torch.matmul, x, w), v))


@move(2)
def added_linears(g: Grower) -> None:
    """Sums of two Linears each, as gates of a recurrent cell are."""
    found, out, made = like(g), g.draw.choice([2, 3, 4]), []
    for x in found[: g.draw.choice([1, 2])]:
        h = g.draw.choice(found)
        b = g.parameter(out) if g.chance(0.7) else None
        terms = [g.call(F.linear, y, g.parameter(out, width_of(g, y)), b) for y in (x, h)]
        made.append(g.call(torch.add, *terms))
    g.keep(*made)


@move(1)
def linear_of_target(g: Grower) -> None:
    """A value laid beside each step of another one, and a Linear of both."""
    (k, *_) = with_rank(g, like(g)[:1], 3)
    steps, width = width_of(g, k, 1), width_of(g, k)
    q = g.call(torch.tanh, g.call(torch.sum, k, 1, keepdim=True))
    both = g.call(torch.cat, [g.call("expand", q, -1, steps, -1), k], -1)
    out = g.draw.choice([2, 3])
    g.keep(g.call(F.linear, both, g.parameter(out, 2 * width), g.parameter(out)))


@move(3)
def products(g: Grower) -> None:
    """Products of like values with matrices, or with each other; at times beside Linears."""
    found = like(g)
    if g.chance(0.4):
        found = with_rank(g, found, 3)
    width, out = width_of(g, found[0]), g.draw.choice([2, 3, 6])
    kind = g.draw.choice(["own", "tall", "wide", "turned"])
    w, made = g.parameter(width, out), []
    for x in found[:1] * len(found) if kind == "wide" else found:
        if kind == "turned":
            made.append(g.call(torch.matmul, x, g.call(torch.transpose, found[0], -1, -2)))
            continue
        w = w if kind == "tall" else g.parameter(width, out)
        dims = {"dims": 1} if g.chance(0.2) else {}
        made.append(g.call(torch.tensordot if dims else torch.matmul, x, w, **dims))
    if g.chance(0.3):
        made.append(g.call(F.linear, found[0], g.parameter(out, width)))
    g.keep(*made)


@move(2)
def einsums(g: Grower) -> None:
    """Einsums and tensordots of two or three operands."""
    x, y = (like(g) * 2)[:2]
    if g.chance(0.5):
        x, y = (with_rank(g, [x, y], 3) * 2)[:2]
        form = g.draw.choice(["bik,bjk->bij", "bik,bjk->bji", "bik,bik->bi", "bik,kj->bij"])
    else:
        form = g.draw.choice(["bi,bj->bij", "bi,bi->b", "bi,ij->bj", "bi,ij,jk->bk", "dot"])
    last = width_of(g, x)
    if form == "dot":
        g.keep(g.call(torch.tensordot, x, g.parameter(last, 3), g.draw.choice([1, ([1], [0])])))
    elif form == "bi,ij,jk->bk":
        g.keep(g.call(torch.einsum, form, x, g.parameter(last, 16), g.parameter(16, 2)))
    elif form in ("bi,ij->bj", "bik,kj->bij"):
        g.keep(g.call(torch.einsum, form, x, g.parameter(last, 3)))
    else:
        g.keep(g.call(torch.einsum, form, x, y))


@move(3)
def branches(g: Grower) -> None:
    """Branches of a Linear, a norm, a function and perhaps another Linear."""
    found = like(g)
    width, norm = width_of(g, found[0]), g.draw.choice([None, "batch", "layer"])
    function, out = g.draw.choice(UNARIES), g.draw.choice([3, 4, 6])
    if g.chance(0.5):
        found = found[:1] * len(found)
    widths = [g.draw.choice([out, 2]) if g.chance(0.3) else out for _ in found]
    values = [
        g.call(F.linear, x, g.parameter(rows, width), g.parameter(rows))
        for x, rows in zip(found, widths, strict=True)
    ]
    if norm == "batch":
        values = normed(g, values)
    if norm == "layer":
        values = [g.call(F.layer_norm, x, [n]) for x, n in zip(values, widths, strict=True)]
    values = [g.call(function, x) for x in values]
    if g.chance(0.4):
        values = [
            g.call(F.linear, x, g.parameter(2, rows), g.parameter(2))
            for x, rows in zip(values, widths, strict=True)
        ]
    g.keep(*values)

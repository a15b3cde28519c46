"""Moves for graphs with special traits: writes, several types, autocast."""

from __future__ import annotations

import contextlib
import operator

import torch
import torch.nn.functional as F
from torch import fx

from passwright.passes.random_graphs import Grower, Refused
from passwright.passes.random_moves import binaries, join, like, linears, move, unaries


@move(2)
def write(g: Grower) -> None:
    """In place: on a fresh value, on a family, on a view, on an input."""
    if not g.traits.writes:
        raise Refused
    x = g.any()
    kind = g.draw.choice(["fresh", "fresh", "clone", "view", "any", "set"])
    if kind == "fresh":
        width = g.shape(x)[-1] if g.shape(x) else None
        if type(width) is not int:
            raise Refused
        made = [g.call(F.linear, v, g.parameter(width, width)) for v in like(g)]
        for value in made:
            if g.chance(0.8):
                _overwrite(g, value)
        g.keep(*made)
        return
    if kind == "clone":
        x = g.call(torch.clone, x)
    if kind == "view":
        x = g.call(torch.narrow, g.call(torch.mul, x, 1.0), 0, 0, 1)
    if kind == "set":
        x = g.call(torch.add, x, 1.0)
        g.call(operator.setitem, x, 0, 0.5)
        g.keep(x)
        return
    g.call(g.draw.choice(["mul_", "add_"]), x, 0.5)
    g.keep(x)


def _overwrite(g: Grower, value: fx.Node) -> None:
    """A pointwise function in place."""
    kind = g.draw.choice(["relu_", "tanh_", "clamp_", "relu"])
    if kind == "relu":
        g.call(F.relu, value, True)
    elif kind == "clamp_":
        g.call(kind, value, min=0)
    else:
        g.call(kind, value)


@move(1)
def adds_in_place(g: Grower) -> None:
    """A running sum, as `y += x` writes it."""
    if g.traits.aten:
        raise Refused
    found = like(g)
    total = g.call(torch.mul, found[0], found[-1])
    for value in found[1:]:
        total = g.call(g.draw.choice([operator.iadd, "add_"]), total, value)
    g.keep(total)


@move(2)
def other_type(g: Grower) -> None:
    """A value, or some of a family, in another type."""
    if not g.traits.mixed:
        raise Refused
    dtype = g.draw.choice([torch.float64, torch.float32, torch.bfloat16])
    found = like(g)
    g.keep(*(g.call("to", x, dtype) if g.chance(0.5) else x for x in found))


@move(1)
def autocast(g: Grower) -> None:
    """A stretch under autocast."""
    if not g.traits.regions:
        raise Refused
    modes = torch.amp.autocast_mode
    entered = g.s.call(modes._enter_autocast, "cpu", torch.bfloat16, True, True)
    with contextlib.suppress(Refused, IndexError):
        g.draw.choice([linears, binaries, unaries, join])(g)
    g.s.call(modes._exit_autocast, entered)

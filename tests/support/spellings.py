"""Calls by which one op is spelled, written down: what spelling tests are made of."""

from __future__ import annotations

import operator
from typing import Any

import torch

from passwright.passes.ops import Op

aten = torch.ops.aten
get = operator.getitem
Spelling = tuple[Any, tuple[Any, ...], dict[str, Any]]


def sp(target: Any, *args: Any, **kwargs: Any) -> Spelling:
    """A call; `Arg` objects stand for values of the graph."""
    return target, args, kwargs


class Arg:
    """A value of the graph, made by a function of the sketch."""

    def __init__(self, name: str, *calls: Spelling) -> None:
        self.name = name
        self.calls = calls

    def __repr__(self) -> str:
        return self.name


INPUTS: dict[str, dict[str, Any]] = {
    "x": {"shape": (4, 10)},
    "y": {"shape": (4, 10)},
    "z": {"shape": (4, 3, 10)},
    "one": {"shape": (4, 1, 10)},
    "w": {"shape": (6, 10)},
    "b": {"shape": (6,)},
    "scale": {"shape": (10,)},
    "shift": {"shape": (10,)},
    "i": {"shape": (4, 3), "dtype": torch.int64},
    "table": {"shape": (9, 10)},
    "v": {"shape": (10, 6)},
    "mean": {"shape": (10,)},
    "var": {"shape": (10,)},
    "signal": {"shape": (2, 4, 8)},
    "image": {"shape": (2, 4, 8, 8)},
    "volume": {"shape": (2, 4, 8, 8, 8)},
    "taps": {"shape": (6, 2, 3)},
    "kernel": {"shape": (6, 2, 3, 3)},
    "cube": {"shape": (6, 2, 3, 3, 3)},
    "query": {"shape": (2, 3, 5, 4)},
    "key": {"shape": (2, 3, 7, 4)},
    "value": {"shape": (2, 3, 7, 6)},
    "mask": {"shape": (5, 7)},
    "tokens": {"shape": (5, 3, 4)},
    "inner": {"shape": (12, 4)},
    "outer": {"shape": (4, 4)},
    "square": {"shape": (5, 5)},
}
x, y, z, one, w, b, scale, shift, i, table, v, mean, var = map(Arg, list(INPUTS)[:13])
signal, image, volume, taps, kernel, cube = map(Arg, list(INPUTS)[13:19])
query, key, value, mask = map(Arg, list(INPUTS)[19:23])
tokens, inner, outer, square = map(Arg, list(INPUTS)[23:27])
five = Arg("five", sp("expand", one, 4, 5, 10))
zt = Arg("zt", sp("transpose", z, 1, 2))
wt = Arg("wt", sp(aten.t.default, w))
parts = Arg("parts", sp(torch.split, x, 5, 1))
xs, ys = (Arg(f"{v}1", sp("unsqueeze", v, 1)) for v in (x, y))
xf, yf = (Arg(f"{v}1", sp(torch.unsqueeze, v, -2)) for v in (x, y))
xa, ya = (Arg(f"{v}1", sp(aten.unsqueeze.default, v, 1)) for v in (x, y))
all_ = slice(None)

#: The expected op, its field values (names stand for nodes, an ellipsis for the rest), and spellings.
Case = tuple[type[Op], tuple[Any, ...], list[Spelling]]

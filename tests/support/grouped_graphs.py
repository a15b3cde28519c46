"""Members of a grouped kernel, in sketched graphs."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

LINEAR = "passwright.grouped_linear.default"
NORM = "passwright.grouped_layer_norm.default"
LOOKUP = "passwright.grouped_gather.default"


def linear(s: Any, rows: Any, inner: int, out: int, bias: bool = True, **kwargs: Any) -> Any:
    """A Linear with an input of its own."""
    shape = rows if isinstance(rows, tuple) else (rows,)
    x, w = s.input(*shape, inner, **kwargs), s.input(out, inner, requires_grad=True, **kwargs)
    return s.call(F.linear, x, w, s.input(out, requires_grad=True, **kwargs) if bias else None)


def norm(s: Any, rows: int, width: int, affine: bool = True, **kwargs: Any) -> Any:
    w, b = ((s.input(width, requires_grad=True) if affine else None) for _ in range(2))
    return s.call(F.layer_norm, s.input(rows, width, requires_grad=True), [width], w, b, **kwargs)


def lookup(s: Any, rows: int, width: int, shape: tuple[int, ...] = (5,), **kwargs: Any) -> Any:
    index = s.input(*shape, dtype=kwargs.pop("index", torch.int64))
    return s.call(F.embedding, index, s.input(rows, width, requires_grad=True), **kwargs)


def observed(s: Any, *values: Any) -> None:
    """Outputs through an op, so that nobody sees the strides of the values themselves."""
    s.output(*(s.call(torch.cat, [value]) for value in values))


def labels(result: Any) -> list[str]:
    return [label.split(" @ ")[0] for label in result.labels]

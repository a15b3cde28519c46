"""Attention written out, in sketched graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from passwright.passes.patterns.attention import FuseAttention

FUSE = FuseAttention()
ATTENTION = "scaled_dot_product_attention"
Steps = Callable[[Any, Any], Any]


def nothing(_: Any, x: Any) -> Any:
    return x


def operands(s: Any, *lead: int, **kwargs: Any) -> tuple[Any, Any, Any]:
    """Query (..., 5, 8), key (..., 7, 8) and value (..., 7, 6)."""
    shapes = (5, 8), (7, 8), (7, 6)
    return tuple(s.input(*lead, *shape, requires_grad=True, **kwargs) for shape in shapes)  # type: ignore[return-value]


def written(s: Any, q: Any, k: Any, v: Any, between: Steps = nothing, **kwargs: Any) -> Any:
    """Attention written out; `between` is done to the scores, `after` to the weights."""
    after = kwargs.pop("after", nothing)
    scores = between(s, s.call(torch.matmul, q, s.call("transpose", k, -1, -2)))
    weights = s.call(torch.softmax, scores, **{"dim": -1, **kwargs})
    return s.call(torch.matmul, after(s, weights), v)


def hidden(s: Any, *values: Any) -> None:
    """Outputs through an op, so that nobody sees the strides of the values themselves."""
    s.output(*(s.call(F.layer_norm, x, x.meta[s.key].shape[-1:]) for x in values))


def scaled(s: Any, x: Any) -> Any:
    return s.call(torch.mul, x, 0.5)


def fused(result: Any) -> int:
    return int(result.count(ATTENTION))


def matches(s: Any) -> list[Any]:
    view = s.view()
    ops = [view.read(node) for node in view.nodes()]
    return [m for op in ops if type(op) in FUSE.anchors for m in FUSE.matches(view, op)]

"""How large the numbers of a value can get, for every input that the graph accepts."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import fx

from passwright.passes.address import target_name
from passwright.passes.graph import GraphView
from passwright.passes.legality import is_written
from passwright.passes.ops import (
    Binary,
    Convert,
    Expand,
    Identity,
    Permute,
    Piece,
    Repeat,
    Reshape,
    Select,
    Slice,
    Split,
    Unary,
    Unbind,
)
from passwright.passes.spec import Spec

_MOVES = (Expand, Identity, Permute, Piece, Repeat, Reshape, Select, Slice, Split, Unbind)


def bound(graph: GraphView, value: object) -> float | None:
    """A number that no element exceeds in size, and so proof that all are finite; None if unknown.

    Known of booleans, and of what is made of them with plain numbers, as masks are.
    """
    if isinstance(value, (bool, int, float)):
        return abs(float(value)) if math.isfinite(value) else None
    if not isinstance(value, fx.Node):
        return None
    spec = graph.any_spec(value)
    if not isinstance(spec, Spec) or is_written(graph, value):
        return None
    if spec.dtype is torch.bool:
        return 1.0
    found = _bound(graph, value)
    limit = torch.finfo(spec.dtype) if spec.dtype.is_floating_point else torch.iinfo(spec.dtype)
    # Half of it, so that whoever adds another ordinary number stays in range as well.
    return found if found is not None and found <= limit.max / 2 else None


def _bound(graph: GraphView, node: fx.Node) -> float | None:
    op = graph.read(node)
    if isinstance(op, (*_MOVES, Convert)):
        return bound(graph, op.input)
    if isinstance(op, Unary) and op.function in ("neg", "abs"):
        return bound(graph, op.input)
    if isinstance(op, Binary):
        return _of_binary(graph, op)
    name = target_name(node).removeprefix(".")
    if name == "masked_fill" and not node.kwargs and len(node.args) == 3:
        return _largest(graph, node.args[0], node.args[2])
    if name == "where" and not node.kwargs and len(node.args) == 3:
        return _largest(graph, *node.args[1:])
    return None


def _of_binary(graph: GraphView, op: Binary) -> float | None:
    left, right = bound(graph, op.left), bound(graph, op.right)
    if left is None or right is None:
        return None
    if op.function in ("add", "sub"):
        alpha = bound(graph, dict(op.params).get("alpha", 1))
        return None if alpha is None else left + alpha * right
    if op.function == "mul":
        return left * right
    if op.function in ("maximum", "minimum"):
        return max(left, right)
    return None


def _largest(graph: GraphView, *values: Any) -> float | None:
    found = [bound(graph, value) for value in values]
    known = [number for number in found if number is not None]
    return max(known) if len(known) == len(found) else None

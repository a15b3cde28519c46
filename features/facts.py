"""What a candidate's features say of single nodes: kind, bytes, and of products their sizes."""

from __future__ import annotations

import math
from typing import NamedTuple

from torch import fx

from passwright.features.words import kind
from passwright.passes import ops
from passwright.passes.contraction import contraction
from passwright.passes.graph import GraphView
from passwright.passes.spec import Spec, hint, parts_of


class Sizes(NamedTuple):
    """A product: how many there are in one, rows, columns, and inner dim."""

    products: float
    m: float
    n: float
    k: float

    @property
    def work(self) -> float:
        return self.products * self.m * self.n * self.k


class Fact(NamedTuple):
    """One node."""

    kind: str
    nbytes: float
    sizes: Sizes | None


def fact(view: GraphView, node: fx.Node) -> Fact:
    """Of a living node."""
    nbytes = float(sum(spec.nbytes for spec in parts_of(view.any_spec(node))))
    found = kind(view, node)
    return Fact(found, nbytes, product_sizes(view, node) if found == "product" else None)


def product_sizes(view: GraphView, node: fx.Node) -> Sizes | None:
    """None where the shape of the result is not known, and where that is a single number.

    Of attention: how many heads in all, queries, keys and their width.
    """
    op, out = view.read(node), view.any_spec(node)
    if not isinstance(out, Spec) or not out.ndim:
        return None
    sizes = [hint(size) for size in out.shape]
    last = max(1, sizes[-1])
    if isinstance(op, ops.Linear):
        return Sizes(1.0, out.numel / last, last, _last(view, op.weight))
    if isinstance(op, ops.Matmul):
        # Many matrices by the same one are one product, as torch computes it.
        many = math.prod(sizes[:-2]) if view.ndim(op.right) > 2 else 1
        return Sizes(many, out.numel / last / max(1, many), last, _last(view, op.left))
    if isinstance(op, ops.Convolution):
        weight = view.spec(op.weight)
        columns = max(1, sizes[1] if len(sizes) > 1 else last)
        inner = weight.numel / max(1, hint(weight.shape[0]))
        return Sizes(float(op.groups), out.numel / columns, columns / op.groups, inner)
    if isinstance(op, ops.Einsum):
        parts = contraction(view, op)
        if parts is None:
            return Sizes(1.0, out.numel / last, last, _inner(view, op, out.numel))
        roles = (parts.batch, parts.rows, parts.columns, parts.inner)
        return Sizes(*(float(hint(parts.merged(letters))) for letters in roles))
    if isinstance(op, ops.Attention):
        keys = view.spec(op.key).shape
        rows, columns = (hint(shape[-2]) for shape in (out.shape, keys))
        return Sizes(math.prod(sizes[:-2]), rows, columns, hint(keys[-1]))
    return None


def _last(view: GraphView, node: fx.Node) -> float:
    spec = view.any_spec(node)
    return float(hint(spec.shape[-1])) if isinstance(spec, Spec) and spec.ndim else 1.0


def _inner(view: GraphView, op: ops.Einsum, outputs: int) -> float:
    """Product of the sizes of all labels that are summed over."""
    sizes: dict[str, int] = {}
    labels = op.equation.split("->")[0].replace(" ", "").split(",")
    for names, node in zip(labels, op.inputs, strict=False):
        spec = view.any_spec(node)
        if isinstance(spec, Spec):
            sizes |= dict(zip(names, map(hint, spec.shape), strict=False))
    return max(1.0, math.prod(sizes.values()) / max(1, outputs))

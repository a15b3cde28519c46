"""Einsums as the ops that they stand for, which other patterns know."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import fx

from passwright.passes.contraction import (
    can_multiply,
    contraction,
    letter_sizes,
    multiply,
    order,
    product_spec,
)
from passwright.passes.editor import GraphEditor
from passwright.passes.graph import GraphView
from passwright.passes.legality import batchable, can_reshape_to, unseen
from passwright.passes.ops import Einsum
from passwright.passes.pattern import TORCH_IR, Direction, Exactness, Match, Pattern, match
from passwright.passes.spec import static
from passwright.passes.strides import observes_strides

#: Terms of a sum for which a pointwise product may still do as well as a GEMM.
_FEW_TERMS = 8
#: Types in which torch keeps a product as exactly as the sum of products.
_WIDE = (torch.float32, torch.float64)


class EinsumAsMatmul(Pattern):
    """An einsum of two operands that is a matrix product is written as one.

    einsum('bik,bjk->bij', x, y)   ==>   matmul(x, y.permute(0, 2, 1))
    einsum('bik,kj->bij', x, w)    ==>   matmul(x, w)

    torch does the same inside einsum; written out, other patterns see the product and its operands.
    """

    direction = Direction.VERTICAL
    exactness = Exactness.REASSOCIATING
    anchors = frozenset({Einsum})
    levels = frozenset({TORCH_IR})
    conditions = (
        "two operands of one floating type; every letter in two of the operands and the result",
        "no broadcasting, at most one symbolic size in each shape",
        "the result lies in memory as before, or nobody sees how",
    )

    def matches(self, graph: GraphView, op: Einsum) -> Iterator[Match]:
        parts = contraction(graph, op)
        if parts is None or not _of_one_type(graph, op) or not batchable(graph, op.node):
            return
        layout = product_spec(graph.spec(op.node), parts)
        if can_multiply(parts) and unseen(graph, op.node, layout, shared=False):
            yield match(op, parts=parts)

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        edit.replace(m.anchor.node, multiply(edit, m.anchor, m.parts))


class EinsumAsPointwise(Pattern):
    """An einsum with no sum, or with one of few terms, as products of numbers.

    einsum('bi,bj->bij', x, y)   ==>   x.reshape(b, i, 1) * y.reshape(b, 1, j)
    einsum('bi,bi->b', x, y)     ==>   (x * y).sum(1)

    torch makes a batched GEMM of any einsum; a compiler fuses products and sums with what stands
    around them. Known from Optimus' einsum_to_pointwise.
    """

    direction = Direction.VERTICAL
    exactness = Exactness.REASSOCIATING
    anchors = frozenset({Einsum})
    levels = frozenset({TORCH_IR})
    conditions = (
        "operands and result of one floating type; a sum in single or double precision",
        "no sum, a sum of at most 8 terms, or an operand with every letter",
        "no broadcasting, at most one symbolic size in each shape",
        "the result lies in memory as before, or nobody sees how",
    )

    def matches(self, graph: GraphView, op: Einsum) -> Iterator[Match]:
        labels, out, summed = _letters(op)
        sizes = letter_sizes(graph, op)
        if len(labels) < 2 or sizes is None or not _of_one_type(graph, op):
            return
        if summed and (graph.spec(op.node).dtype not in _WIDE or not _pays(graph, op, summed)):
            return
        shapes = [[sizes[c] if c in label else 1 for c in out + summed] for label in labels]
        if not all(map(can_reshape_to, shapes)) or not batchable(graph, op.node):
            return
        fresh = graph.spec(op.node).fresh([sizes[c] for c in out])
        if unseen(graph, op.node, fresh, shared=False) and not _reordered(graph, op):
            yield match(op, shapes=shapes)

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        labels, out, summed = _letters(m.anchor)
        operands: list[fx.Node] = []
        for label, value, shape in zip(labels, m.anchor.inputs, m.shapes, strict=True):
            wanted = "".join(c for c in out + summed if c in label)
            operands.append(edit.reshape(edit.permute(value, order(label, wanted)), shape))
        y = operands[0]
        for operand in operands[1:]:
            y = edit.mul(y, operand)
        if summed:
            y = edit.reduce("sum", y, range(len(out), len(out + summed)), False)
        edit.replace(m.anchor.node, y)


def _letters(op: Einsum) -> tuple[list[str], str, str]:
    """Those of each operand, of the result, and those that are summed."""
    names, _, out = op.equation.partition("->")
    summed = dict.fromkeys(c for c in names if c not in out and c != ",")
    return names.split(","), out, "".join(summed)


def _pays(graph: GraphView, op: Einsum, summed: str) -> bool:
    """A GEMM would do no better: a few terms to each sum, or numbers that are read just once."""
    labels, out, _ = _letters(op)
    sizes = letter_sizes(graph, op) or {}
    terms = 1
    for letter in summed:
        terms *= static(sizes[letter]) or _FEW_TERMS + 1
    used_once = any(set(label) == set(out + summed) for label in labels)
    return used_once or terms <= _FEW_TERMS


def _of_one_type(graph: GraphView, op: Einsum) -> bool:
    """Autocast, which treats a GEMM and a pointwise product differently, changes nothing here."""
    specs = [graph.spec(value) for value in (op.node, *op.inputs)]
    first = specs[0]
    alike = all((s.dtype, s.device) == (first.dtype, first.device) for s in specs)
    return alike and first.dtype.is_floating_point and not _casts(graph, op)


def _casts(graph: GraphView, op: Einsum) -> bool:
    """An autocast that is entered in the graph may give other types to other ops."""
    dtype = graph.spec(op.node).dtype
    return dtype in _WIDE and bool(graph.mode(graph.region(op.node)).autocasts)


def _reordered(graph: GraphView, op: Einsum) -> bool:
    """A pointwise product of permuted operands may lie in memory in their order, and be seen."""
    labels, out, summed = _letters(op)
    ordered = all(
        label == "".join(c for c in out + summed if c in label) for label in labels
    ) and all(graph.spec(value).is_contiguous for value in op.inputs)
    return not ordered and observes_strides(graph, op.node)

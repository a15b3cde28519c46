"""Chains of products in another order, by the number of multiplications."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch
from torch import fx

from passwright.passes.editor import GraphEditor
from passwright.passes.graph import GraphView
from passwright.passes.legality import (
    batchable,
    is_written,
    only_user,
    static_shape,
    undisturbed,
)
from passwright.passes.ops import Einsum, Linear, Matmul
from passwright.passes.pattern import TORCH_IR, Direction, Exactness, Match, Pattern, match
from passwright.passes.precision import autocasts, one_type

#: A chain that saves less is not worth another rounding.
_WORTH = 0.75
#: So many operands an einsum may have for all orders to be tried.
_MOST = 6


class ReassociateMatmuls(Pattern):
    """A chain of two matrix products is done in the cheaper order.

    matmul(matmul(a, b), c)   ==>   matmul(a, matmul(b, c))
    matmul(a, matmul(b, c))   ==>   matmul(matmul(a, b), c)
    """

    direction = Direction.VERTICAL
    exactness = Exactness.REASSOCIATING
    anchors = frozenset({Matmul})
    conditions = (
        "known sizes; equal leading dims, or a matrix as one operand of each product",
        "the first product has no other user, and nobody writes the operands",
        f"at most {_WORTH} of the multiplications",
    )

    def matches(self, graph: GraphView, op: Matmul) -> Iterator[Match]:
        for left in (True, False):
            inner = graph.producer(op.left if left else op.right, Matmul)
            if inner is None or not only_user(graph, inner.node, op.node):
                continue
            operands = (op.left, inner.left, inner.right) if not left else ()
            operands = operands or (inner.left, inner.right, op.right)
            if not _steady(graph, op.node, inner.node, operands):
                continue
            shapes = [static_shape(graph, node) for node in operands]
            known = [shape for shape in shapes if shape is not None]
            if len(known) < len(shapes):
                continue
            first, second = _costs(*known)
            before, after = (first, second) if left else (second, first)
            if before and after and after <= _WORTH * before:
                shown = {"from": "left" if left else "right"}
                yield match(op, inner, operands=operands, left=left, parameters=shown)

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        a, b, c = m.operands
        if m.left:
            y = edit.matmul(a, edit.matmul(b, c))
        else:
            y = edit.matmul(edit.matmul(a, b), c)
        edit.replace(m.anchor.node, y)


class MergeLinears(Pattern):
    """A Linear of a Linear is one Linear, where their weights are cheaper to multiply than to apply.

    linear(linear(x, v, b), w, c)   ==>   linear(x, w @ v, w @ b + c)
    """

    direction = Direction.VERTICAL
    exactness = Exactness.REASSOCIATING
    anchors = frozenset({Linear})
    conditions = (
        "known sizes; in ATen-IR, inputs of rank 2",
        "the first Linear has no other user, and nobody writes the operands",
        f"at most {_WORTH} of the multiplications",
    )

    def matches(self, graph: GraphView, op: Linear) -> Iterator[Match]:
        inner = graph.producer(op.input, Linear)
        if inner is None or not only_user(graph, inner.node, op.node):
            return
        biases = [bias for bias in (inner.bias, op.bias) if bias is not None]
        operands = (inner.input, inner.weight, op.weight)
        if not _steady(graph, op.node, inner.node, (*operands, *biases)):
            return
        if any(graph.ndim(bias) != 1 for bias in biases):
            return
        shapes = [static_shape(graph, node) for node in (*operands, *biases)]
        if None in shapes:
            return
        rows, first, second = (shape or () for shape in shapes[:3])
        features = [graph.shape(linear.weight)[0] for linear in (inner, op)]
        sizes = [linear.bias and graph.shape(linear.bias)[0] for linear in (inner, op)]
        if any(s not in (None, f) for s, f in zip(sizes, features, strict=True)):
            return
        count, width, middle, out = math.prod(rows[:-1]), rows[-1], first[0], second[0]
        before = count * middle * (width + out)
        if width * out * (count + middle) <= _WORTH * before:
            yield match(op, inner, inner=inner)

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        op, inner = m.anchor, m.inner
        weight = edit.matmul(op.weight, inner.weight)
        bias = op.bias
        if inner.bias is not None:
            row = edit.linear(edit.unsqueeze(inner.bias, 0), op.weight, op.bias)
            bias = edit.reshape(row, edit.view.spec(row).shape[1:])
        edit.replace(op.node, edit.linear(inner.input, weight, bias))


class EinsumInPairs(Pattern):
    """An einsum of three operands or more becomes einsums of two, in the cheapest order.

    einsum("ab,bc,cd->ad", x, y, z)   ==>   einsum("ab,bd->ad", x, einsum("bc,cd->bd", y, z))

    torch goes from left to right, unless opt_einsum is there to tell it better.
    """

    direction = Direction.VERTICAL
    exactness = Exactness.REASSOCIATING
    anchors = frozenset({Einsum})
    levels = frozenset({TORCH_IR})
    conditions = (
        "known sizes, none of size 1 that stands for another",
        f"three to {_MOST} operands of one type",
        "torch has no opt_einsum",
        f"at most {_WORTH} of the multiplications",
    )

    def matches(self, graph: GraphView, op: Einsum) -> Iterator[Match]:
        names, _, out = op.equation.partition("->")
        labels = names.split(",")
        if not 2 < len(labels) <= _MOST or _takes_the_best_order():
            return
        if not batchable(graph, op.node) or not one_type(graph, op.node, *op.inputs):
            return
        sizes: dict[str, int] = {}
        for label, node in zip(labels, op.inputs, strict=True):
            shape = static_shape(graph, node)
            if shape is None:
                return
            for letter, size in zip(label, shape, strict=True):
                if sizes.setdefault(letter, size) != size:
                    return
        before = _cost_of(labels, [(0, 1)] * (len(labels) - 1), out, sizes)
        path, after = _best(labels, out, sizes)
        if after <= _WORTH * before:
            shown = {"path": ".".join(f"{i}{j}" for i, j in path)}
            yield match(op, labels=labels, out=out, path=path, parameters=shown)

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        labels, nodes = list(m.labels), list(m.anchor.inputs)
        for i, j in m.path:
            kept, result = _contract(labels, i, j, m.out)
            node = edit.einsum(f"{labels[i]},{labels[j]}->{result}", nodes[i], nodes[j])
            nodes = [node, *(n for at, n in enumerate(nodes) if at not in (i, j))]
            labels = [result, *kept]
        edit.replace(m.anchor.node, nodes[0])


def _steady(graph: GraphView, outer: fx.Node, inner: fx.Node, operands: Sequence[fx.Node]) -> bool:
    """Nobody writes what the products read; all have one type, outside autocast."""
    if not batchable(graph, outer) or not batchable(graph, inner) or is_written(graph, *operands):
        return False
    if graph.region(outer) != graph.region(inner) or autocasts(graph, outer):
        return False
    return one_type(graph, outer, inner, *operands) and undisturbed(graph, outer, inner)


def _costs(a: tuple[int, ...], b: tuple[int, ...], c: tuple[int, ...]) -> tuple[int, int]:
    """Multiplications of (a @ b) @ c and of a @ (b @ c); 0 where leading dims are broadcast."""
    ab, bc = _product(a, b), _product(b, c)
    left, right = ab and _product(ab, c), bc and _product(a, bc)
    if not (ab and bc and left and right):
        return 0, 0
    first = math.prod(ab) * a[-1] + math.prod(left) * b[-1]
    second = math.prod(bc) * b[-1] + math.prod(right) * a[-1]
    return first, second


def _product(left: tuple[int, ...], right: tuple[int, ...]) -> tuple[int, ...] | None:
    """Shape of the product; None where leading dims are broadcast among themselves."""
    if len(left) > 2 and len(right) > 2 and left[:-2] != right[:-2]:
        return None
    lead = left[:-2] if len(left) >= len(right) else right[:-2]
    return (*lead, left[-2], right[-1])


def _takes_the_best_order() -> bool:
    """torch finds the order by itself."""
    return bool(torch.backends.opt_einsum.is_available() and torch.backends.opt_einsum.enabled)


def _contract(labels: Sequence[str], i: int, j: int, out: str) -> tuple[list[str], str]:
    """The labels left, and that of the product of numbers i and j."""
    kept = [label for at, label in enumerate(labels) if at not in (i, j)]
    if not kept:
        return kept, out
    needed = set(out).union(*kept)
    letters = dict.fromkeys(labels[i] + labels[j])
    return kept, "".join(letter for letter in letters if letter in needed)


def _cost_of(
    labels: Sequence[str], path: Sequence[tuple[int, int]], out: str, sizes: dict[str, int]
) -> int:
    """Multiplications along a path; each product becomes number 0."""
    total = 0
    for i, j in path:
        total += math.prod(sizes[letter] for letter in {*labels[i], *labels[j]})
        kept, result = _contract(labels, i, j, out)
        labels = [result, *kept]
    return total


def _best(
    labels: Sequence[str], out: str, sizes: dict[str, int]
) -> tuple[list[tuple[int, int]], int]:
    """The cheapest path, the first of equals, and its multiplications."""
    if len(labels) == 1:
        return [], 0
    found: tuple[list[tuple[int, int]], int] | None = None
    for i in range(len(labels)):
        for j in range(i + 1, len(labels)):
            cost = math.prod(sizes[letter] for letter in {*labels[i], *labels[j]})
            kept, result = _contract(labels, i, j, out)
            path, rest = _best([result, *kept], out, sizes)
            if found is None or cost + rest < found[1]:
                found = [(i, j), *path], cost + rest
    assert found is not None
    return found

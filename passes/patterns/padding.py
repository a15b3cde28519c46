"""Products whose sizes are rounded up to what kernels like."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import torch

from passwright.passes.editor import GraphEditor
from passwright.passes.graph import GraphView
from passwright.passes.legality import batchable, only_user, static_shape, undisturbed
from passwright.passes.ops import Cat, Linear
from passwright.passes.pattern import Direction, Exactness, Match, Pattern, match

#: GEMM kernels for tensor cores load 16 bytes at a time, so the rows of their operands must begin at
#: multiples of that: 8 numbers of 16 bits, 4 of float32, 2 of float64. A library that meets a matrix
#: with other rows takes a kernel that loads number by number. Eight serves all types.
_MULTIPLE = 8
_TYPES = {torch.float16, torch.bfloat16, torch.float32, torch.float64}
#: Fewer features than this are a matrix-vector product, which has no such kernels.
_SMALLEST = 8


class _Padding(Pattern):
    direction = Direction.VERTICAL
    exactness = Exactness.REASSOCIATING
    anchors = frozenset({Linear})
    #: Where there are kernels that want aligned rows.
    devices: ClassVar[frozenset[str]] = frozenset({"cuda"})

    def _sizes(self, graph: GraphView, op: Linear) -> tuple[int, int] | None:
        """(out_features, in_features) of a Linear that may be padded."""
        sizes, spec = static_shape(graph, op.weight), graph.spec(op.weight)
        if sizes is None or min(sizes) < _SMALLEST or not batchable(graph, op.node):
            return None
        one_type = {graph.spec(value).dtype for value in (op.input, op.weight, op.node)}
        if op.bias is not None:
            if graph.shape(op.bias) != sizes[:1]:
                return None
            one_type.add(graph.spec(op.bias).dtype)
        if len(one_type) > 1 or spec.dtype not in _TYPES or spec.device.type not in self.devices:
            return None
        return sizes[0], sizes[1]


class PadLinearOfCat(_Padding):
    """A cat gets some zeros, so that the product behind it has rows of an aligned length.

    linear(cat([a, b], -1), w)   ==>   linear(cat([a, b, zeros], -1), cat([w, zeros], 1))

    The cat writes its result anyway, so that the zeros cost next to nothing there; the weight is
    copied. Known from Optimus' pad_aten_mm, which copies both.
    """

    conditions = (
        "the number of input features is no multiple of 8",
        "the input is a cat along the features, which nobody else uses",
        "one real floating-point type; CUDA; known sizes, 8 features or more",
    )

    def matches(self, graph: GraphView, op: Linear) -> Iterator[Match]:
        sizes, cat = self._sizes(graph, op), graph.producer(op.input, Cat)
        if sizes is None or cat is None or not sizes[1] % _MULTIPLE:
            return
        if cat.dim != graph.ndim(cat.node) - 1 or not only_user(graph, cat.node, op.node):
            return
        if cat.node in (op.weight, op.bias) or static_shape(graph, cat.node) is None:
            return
        one_region = graph.region(cat.node) == graph.region(op.node)
        if one_region and batchable(graph, cat.node) and undisturbed(graph, cat.node, op.node):
            count = -sizes[1] % _MULTIPLE
            yield match(op, cat, cat=cat, count=count, parameters={"zeros": count})

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        op, cat, count = m.anchor, m.cat, m.count
        *rows, _ = edit.view.shape(cat.node)
        x = edit.cat([*cat.inputs, edit.zeros((*rows, count), like=cat.inputs[0])], cat.dim)
        width, _ = edit.view.shape(op.weight)
        weight = edit.cat([op.weight, edit.zeros((width, count), like=op.weight)], 1)
        edit.replace(op.node, edit.linear(x, weight, op.bias))


class PadLinearOutputs(_Padding):
    """A Linear computes some features too many, so that its result has rows of an aligned length.

    linear(x, w, b)   ==>   linear(x, cat([w, zeros]), cat([b, zeros]))[..., :out]
    """

    conditions = (
        "the number of output features is no multiple of 8",
        "one real floating-point type; CUDA; known sizes, 8 features or more",
    )

    def matches(self, graph: GraphView, op: Linear) -> Iterator[Match]:
        sizes = self._sizes(graph, op)
        if sizes is not None and sizes[0] % _MULTIPLE:
            count = -sizes[0] % _MULTIPLE
            yield match(op, count=count, parameters={"zeros": count})

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        op, count = m.anchor, m.count
        width, depth = edit.view.shape(op.weight)
        weight = edit.cat([op.weight, edit.zeros((count, depth), like=op.weight)], 0)
        bias = op.bias
        if bias is not None:
            bias = edit.cat([bias, edit.zeros((count,), like=bias)], 0)
        wide = edit.linear(op.input, weight, bias)
        edit.replace(op.node, edit.slice(wide, edit.view.ndim(wide) - 1, 0, width))

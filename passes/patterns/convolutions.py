"""Convolutions: side by side, and those that are a matrix product."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator

import torch.nn.functional as F
from torch import fx

from passwright.passes.editor import GraphEditor
from passwright.passes.graph import GraphView
from passwright.passes.horizontal import HorizontalPattern
from passwright.passes.legality import agreement, batchable, static_shape
from passwright.passes.ops import Convolution
from passwright.passes.pattern import TORCH_IR, Direction, Exactness, Match, Pattern, match
from passwright.passes.spec import static

#: Spellings by number of spatial dims.
_CONVOLUTIONS = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}


class WidenConvolutions(HorizontalPattern):
    """Convolutions of one input become one with all their output channels, which is split.

    conv(x, w_i, b_i)   ==>   split(conv(x, cat(w), cat(b)), channels, 1)
    """

    exactness = Exactness.REASSOCIATING
    anchors = frozenset({Convolution})
    levels = frozenset({TORCH_IR})
    conditions = (
        "the same input; equal kernel size, stride, padding and dilation; no groups",
        "weights of one type, bias in all or in none",
        "known shapes of the weights",
    )

    def key(self, graph: GraphView, op: Convolution) -> Hashable | None:
        shape = static_shape(graph, op.weight)
        if shape is None or op.groups != 1 or len(op.stride) not in _CONVOLUTIONS:
            return None
        bias = None if op.bias is None else graph.spec(op.bias).dtype
        weight = graph.spec(op.weight)
        settings = (shape[1:], op.stride, op.padding, op.dilation)
        types = (weight.dtype, weight.device, bias)
        return (op.input, settings, types, agreement(graph, op, op.input))

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        members: tuple[Convolution, ...] = m.members
        widths = [edit.view.shape(op.weight)[0] for op in members]
        weight = edit.cat([op.weight for op in members], 0)
        biases = [op.bias for op in members if op.bias is not None]
        bias = edit.cat(biases, 0) if biases else None
        wide = convolution(edit, m.anchor, m.anchor.input, weight, bias)
        for op, output in zip(members, edit.split(wide, widths, 1), strict=True):
            edit.replace(op.node, output)


class PointwiseConvolutionAsMatmul(Pattern):
    """A convolution that sees one place at a time is a matrix product over the channels.

    conv1d(x, w[o, i, 1], b)   ==>   linear(x.mT, w[o, i], b).mT          form=linear
                               ==>   matmul(w[o, i], x) + b[:, None]      form=matmul

    The first has all places of all samples as the rows of one product, the second a product for each
    sample. Two spatial dims likewise. A product rounds as torch's settings for products say, not as
    those for convolutions do.
    """

    direction = Direction.VERTICAL
    exactness = Exactness.REASSOCIATING
    anchors = frozenset({Convolution})
    levels = frozenset({TORCH_IR})
    conditions = (
        "kernel and stride of 1, no padding, no groups; one or two spatial dims",
        "one real floating-point type; form=matmul with a bias in float32 or float64 alone",
        "form=matmul: a result in row-major order; of two spatial dims, both of known size",
    )

    def matches(self, graph: GraphView, conv: Convolution) -> Iterator[Match]:
        shape = static_shape(graph, conv.weight)
        if shape is None or len(shape) not in (3, 4) or not batchable(graph, conv.node):
            return
        if {*shape[2:], *conv.stride, conv.groups} != {1} or any(conv.padding):
            return
        given = (conv.node, conv.input, conv.weight, conv.bias)
        types = {graph.spec(value).dtype for value in given if value is not None}
        if len(types) > 1 or not next(iter(types)).is_floating_point:
            return
        yield match(conv, parameters={"form": "linear"})
        places = [static(size) for size in graph.shape(conv.input)[2:]]
        exact = conv.bias is None or next(iter(types)).itemsize >= 4
        known = len(places) == 1 or None not in places
        if exact and known and graph.spec(conv.node).is_contiguous:
            yield match(conv, parameters={"form": "matmul"})

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        conv: Convolution = m.anchor
        outer, inner, *_ = edit.view.shape(conv.weight)
        weight = edit.reshape(conv.weight, (outer, inner))
        build = _as_linear if dict(m.parameters)["form"] == "linear" else _as_matmul
        edit.replace(conv.node, build(edit, conv, weight))


def _as_linear(edit: GraphEditor, conv: Convolution, weight: fx.Node) -> fx.Node:
    rank = edit.view.ndim(conv.input)
    last = edit.permute(conv.input, [0, *range(2, rank), 1])
    y = edit.linear(last, weight, conv.bias)
    return edit.permute(y, [0, rank - 1, *range(1, rank - 1)])


def _as_matmul(edit: GraphEditor, conv: Convolution, weight: fx.Node) -> fx.Node:
    rows, inner, *places = edit.view.shape(conv.input)
    x = conv.input
    if len(places) > 1:
        x = edit.reshape(x, (rows, inner, math.prod(places)))
    y = edit.matmul(weight, x)
    outer = edit.view.shape(weight)[0]
    if conv.bias is not None:
        y = edit.add(y, edit.reshape(conv.bias, (outer, 1)))
    return edit.reshape(y, (rows, outer, *places))


def convolution(
    edit: GraphEditor, like: Convolution, x: fx.Node, weight: fx.Node, bias: fx.Node | None
) -> fx.Node:
    """The convolution `like` of other tensors."""
    settings = (like.stride, like.padding, like.dilation, like.groups)
    return edit.call(_CONVOLUTIONS[len(like.stride)], x, weight, bias, *settings)

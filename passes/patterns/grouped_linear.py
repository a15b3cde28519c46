"""Linears of unequal widths side by side, in one Triton kernel."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator

import torch
from torch import fx

from passwright.passes.editor import GraphEditor
from passwright.passes.graph import GraphView
from passwright.passes.horizontal import HorizontalPattern
from passwright.passes.legality import (
    agreement,
    batchable,
    can_reshape_to,
    one_grad_mode,
    takes_triton,
)
from passwright.passes.ops import Linear, Op, Unary
from passwright.passes.pattern import TORCH_IR, Exactness, Match, match
from passwright.passes.precision import autocasts, one_type
from passwright.passes.spec import static

#: Types that the kernel multiplies.
_TYPES = frozenset({torch.float32, torch.bfloat16, torch.float16})
_ACTIVATIONS = frozenset({"relu", "sigmoid", "tanh"})
#: A library's product of such width fills a GPU by itself.
_WIDEST = 1024


class GroupLinears(HorizontalPattern):
    """Linears of any widths, each with an input of its own, become one launch of a Triton kernel.

    relu(linear(x_i, w_i, b_i))   ==>   grouped_linear([x], [w], [b], "relu").split(widths, -1)

    Nothing is copied together. relu, sigmoid or tanh goes into the kernel where every member is used
    by it alone. Inputs of rank 3 and more are rows of a matrix meanwhile. Grouped GEMMs are known from
    CUTLASS and from mixtures of experts; there all of the widths are equal.
    """

    exactness = Exactness.REASSOCIATING
    anchors = frozenset({Linear})
    levels = frozenset({TORCH_IR})
    sizes = ()
    conditions = (
        "on a GPU, with Triton installed",
        "float32, bfloat16 or float16, all of one type; no autocast",
        "inputs with the same leading dims, at most one of them symbolic",
        "known widths up to 1024, weights in row-major order",
        "bias in all or in none; one activation, or none, for all",
    )

    def key(self, graph: GraphView, op: Linear) -> Hashable | None:
        if not takes_triton(graph, op.input) or autocasts(graph, op.node):
            return None
        operands = [op.input, op.weight, *([op.bias] if op.bias is not None else [])]
        x, weight = graph.spec(op.input), graph.spec(op.weight)
        sizes = [static(size) for size in weight.shape]
        if (
            not one_type(graph, op.node, *operands)
            or x.dtype not in _TYPES
            or x.ndim < 2
            or not can_reshape_to(x.shape[:-1])
            or not all(size is not None and 0 < size <= _WIDEST for size in sizes)
            or not weight.is_contiguous
            or (op.bias is not None and list(graph.shape(op.bias)) != sizes[:1])
        ):
            return None
        leading = tuple(map(str, x.shape[:-1]))
        activation, _ = _end(graph, op)
        return (leading, x.dtype, x.device, op.bias is None, activation, agreement(graph, op))

    def matches(self, graph: GraphView, anchor: Op) -> Iterator[Match]:
        for found in super().matches(graph, anchor):
            ends = [_end(graph, op) for op in found.members]
            shown = {"members": len(ends), "activation": ends[0][0]}
            nodes = [node for _, node in ends]
            yield match(
                anchor, *found.members, *nodes, members=found.members, ends=nodes,
                activation=ends[0][0], parameters=shown,
            )  # fmt: skip

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        # As slow to import as Inductor, which is imported by then.
        from passwright.passes.kernels import version
        from passwright.passes.kernels.grouped_linear import GROUPED_LINEAR

        leading = edit.view.shape(m.anchor.input)[:-1]
        rows = math.prod(leading)
        xs = [edit.reshape(op.input, (rows, edit.view.shape(op.input)[-1])) for op in m.members]
        biases = [op.bias for op in m.members if op.bias is not None]
        widths = [edit.view.shape(op.weight)[0] for op in m.members]
        y = edit.call(
            GROUPED_LINEAR, xs, [op.weight for op in m.members], biases, m.activation, version()
        )
        pieces = edit.split(y, widths, 1)
        for old, piece, width in zip(m.ends, pieces, widths, strict=True):
            edit.replace(old, edit.reshape(piece, (*leading, width)))


def _end(graph: GraphView, op: Linear) -> tuple[str, fx.Node]:
    """The activation that takes the Linear's result, if nobody else does, and where it ends."""
    users = list(op.node.users)
    found = graph.read(users[0]) if len(users) == 1 else None
    if (
        isinstance(found, Unary)
        and found.function in _ACTIVATIONS
        and not found.params
        and batchable(graph, found.node)
        and one_type(graph, found.node, op.node)
        and one_grad_mode(graph, op.node, found.node)
    ):
        return found.function, found.node
    return "none", op.node

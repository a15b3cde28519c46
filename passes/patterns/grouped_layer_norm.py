"""Layer norms of unequal widths side by side, in one Triton kernel."""

from __future__ import annotations

import math
from collections.abc import Hashable

import torch

from passwright.passes.editor import GraphEditor
from passwright.passes.graph import GraphView
from passwright.passes.horizontal import HorizontalPattern
from passwright.passes.legality import agreement, can_reshape_to, takes_triton
from passwright.passes.ops import LayerNorm
from passwright.passes.pattern import TORCH_IR, Exactness, Match
from passwright.passes.precision import autocasts, one_type

_TYPES = frozenset({torch.float64, torch.float32, torch.bfloat16, torch.float16})
#: One program holds a row.
_WIDEST = 4096


class GroupLayerNorms(HorizontalPattern):
    """Layer norms of any widths become one launch of a Triton kernel.

    layer_norm(x_i, w_i, b_i)   ==>   grouped_layer_norm([x], [w], [b]).split(widths, -1)

    Neither inputs nor weights are copied together, as `batch_layer_norms` does, which wants equal
    shapes. AOTAutograd takes the op apart, so Torch-IR only.
    """

    exactness = Exactness.REASSOCIATING
    anchors = frozenset({LayerNorm})
    levels = frozenset({TORCH_IR})
    sizes = ()
    conditions = (
        "on a GPU, with Triton installed",
        "input, weight and bias of one type; no autocast",
        "over the last dim, up to 4096 wide, with the same eps",
        "inputs with the same leading dims, at most one of them symbolic",
        "weight in all or none, bias in all or none",
    )

    def key(self, graph: GraphView, op: LayerNorm) -> Hashable | None:
        if not takes_triton(graph, op.input) or autocasts(graph, op.node):
            return None
        affine = [value for value in (op.weight, op.bias) if value is not None]
        x = graph.spec(op.input)
        if (
            not one_type(graph, op.node, op.input, *affine)
            or x.dtype not in _TYPES
            or x.ndim < 2
            or not can_reshape_to(x.shape[:-1])
            or len(op.normalized_shape) != 1
            or not 0 < op.normalized_shape[0] <= _WIDEST
        ):
            return None
        leading = tuple(map(str, x.shape[:-1]))
        plain = (repr(op.eps), op.weight is None, op.bias is None)
        return (leading, x.dtype, x.device, plain, agreement(graph, op))

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        # As slow to import as Inductor, which is imported by then.
        from passwright.passes.kernels import version
        from passwright.passes.kernels.grouped_layer_norm import GROUPED_LAYER_NORM

        leading = edit.view.shape(m.anchor.input)[:-1]
        widths = [op.normalized_shape[0] for op in m.members]
        xs = [
            edit.reshape(op.input, (math.prod(leading), width))
            for op, width in zip(m.members, widths, strict=True)
        ]
        weights = [op.weight for op in m.members if op.weight is not None]
        biases = [op.bias for op in m.members if op.bias is not None]
        y = edit.call(GROUPED_LAYER_NORM, xs, weights, biases, m.anchor.eps, version())
        for op, piece, width in zip(m.members, edit.split(y, widths, 1), widths, strict=True):
            edit.replace(op.node, edit.reshape(piece, (*leading, width)))

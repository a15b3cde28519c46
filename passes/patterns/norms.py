"""Normalisations side by side."""

from __future__ import annotations

from collections.abc import Hashable

import torch
from torch import fx

from passwright.passes.editor import GraphEditor
from passwright.passes.graph import GraphView
from passwright.passes.horizontal import HorizontalPattern
from passwright.passes.legality import agreement
from passwright.passes.ops import LayerNorm
from passwright.passes.pattern import TORCH_IR, Exactness, Match

#: Types that torch normalises in float32.
_SINGLE = {torch.float16, torch.bfloat16, torch.float32}


class BatchLayerNorms(HorizontalPattern):
    """Layer norms of equal shape become one over the stacked inputs.

    layer_norm(x_i, w_i, b_i)   ==>   (layer_norm(stack(x)) * stack(w) + stack(b)).unbind()

    Norms with one and the same weight and bias stay whole: `layer_norm(stack(x), w, b).unbind()`.
    Half precision becomes float32 until the bias is added, as inside torch's own kernel.
    Known from Optimus' batch_layernorm. AOTAutograd takes the op apart, so Torch-IR only.
    """

    lasting_key = True
    exactness = Exactness.REASSOCIATING
    anchors = frozenset({LayerNorm})
    levels = frozenset({TORCH_IR})
    conditions = (
        "inputs of equal shape, the same normalised dims and eps",
        "weight in all or none, bias in all or none",
        "no float64 beside another type",
    )

    def key(self, graph: GraphView, op: LayerNorm) -> Hashable | None:
        values = [value for value in (op.node, op.input, op.weight, op.bias) if value is not None]
        types = {graph.spec(value).dtype for value in values}
        if not types <= _SINGLE and types != {torch.float64}:
            return None
        plain = (op.normalized_shape, repr(op.eps))
        return (plain, agreement(graph, op, op.input, op.weight, op.bias))

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        first: LayerNorm = m.anchor
        x = edit.stack([op.input for op in m.members], 0)
        if len({(op.weight, op.bias) for op in m.members}) == 1:
            y = edit.layer_norm(x, first.normalized_shape, first.weight, first.bias, first.eps)
        else:
            dtype = edit.view.spec(first.node).dtype
            wide = torch.float32 if dtype in _SINGLE else dtype
            y = edit.convert(x, wide)
            y = edit.layer_norm(y, first.normalized_shape, eps=first.eps)
            if first.weight is not None:
                y = edit.mul(y, _affine(m, "weight", edit, wide))
            if first.bias is not None:
                y = edit.add(y, _affine(m, "bias", edit, wide))
            y = edit.convert(y, dtype)
        for op, output in zip(m.members, edit.unbind(y, 0), strict=True):
            edit.replace(op.node, output)


def _affine(m: Match, name: str, edit: GraphEditor, dtype: torch.dtype) -> fx.Node:
    """All weights (or biases), shaped so that they broadcast against the stacked inputs."""
    values = edit.convert(edit.stack([getattr(op, name) for op in m.members], 0), dtype)
    shape = m.anchor.normalized_shape
    between = edit.view.ndim(m.anchor.input) - len(shape)
    return edit.reshape(values, (len(m.members), *(1 for _ in range(between)), *shape))

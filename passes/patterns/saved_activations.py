"""What a forward keeps for its backward, in fewer bits."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from passwright.passes.editor import GraphEditor
from passwright.passes.graph import GraphView
from passwright.passes.legality import batchable
from passwright.passes.ops import Linear
from passwright.passes.pattern import TORCH_IR, Direction, Exactness, Match, Pattern, match

_TYPES = frozenset({torch.float32, torch.bfloat16, torch.float16})
#: Smaller tensors are not worth the two passes over them.
_LEAST_BYTES = 1 << 20


class QuantizeSavedActivations(Pattern):
    """A Linear in training keeps its input for the gradient of its weight in float8.

    linear(x, w, b)   ==>   linear_saving_float8(x, w, b)

    It saves memory and costs time, so that a gain model of time never takes it by itself: name it in the
    setting `patterns`, with `relaxed` on and `min_gain` and `min_plan_gain` below zero. Known from Optimus'
    activation_quantization_aten, which works on the forward and backward graphs instead.
    """

    direction = Direction.VERTICAL
    exactness = Exactness.RELAXED
    anchors = frozenset({Linear})
    levels = frozenset({TORCH_IR})
    conditions = (
        "training: the gradient of the weight is asked for",
        "an input of at least 1 MiB that was computed, of one type with the weight",
        "no autocast",
    )

    def matches(self, graph: GraphView, op: Linear) -> Iterator[Match]:
        x, weight = graph.spec(op.input), graph.spec(op.weight)
        if not graph.needs_grad(op.weight) or not graph.needs_grad(op.node):
            return
        if op.input.op in ("placeholder", "get_attr") or x.ndim < 2:
            return
        if x.dtype not in _TYPES or x.nbytes < _LEAST_BYTES:
            return
        types = {graph.spec(v).dtype for v in (op.node, op.weight, op.bias) if v is not None}
        if types != {x.dtype} or weight.device != x.device or not batchable(graph, op.node):
            return
        if not graph.mode(graph.region(op.node)).autocasts:
            yield match(op)

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        # As slow to import as Inductor, which is imported by then.
        from passwright.passes.kernels import version
        from passwright.passes.kernels.linear_saving_float8 import LINEAR_SAVING_FLOAT8

        op = m.anchor
        edit.replace(
            op.node, edit.call(LINEAR_SAVING_FLOAT8, op.input, op.weight, op.bias, version())
        )

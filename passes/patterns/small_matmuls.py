"""Products so small that a sum of products does as well."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from passwright.passes.editor import GraphEditor
from passwright.passes.graph import GraphView
from passwright.passes.legality import batchable, same
from passwright.passes.ops import Matmul
from passwright.passes.pattern import Direction, Exactness, Match, Pattern, match
from passwright.passes.spec import static

_HALF = {torch.float16, torch.bfloat16}
_TYPES = {*_HALF, torch.float32, torch.float64}
#: Above these a product is worth a kernel of its own: depth alone, width and depth, all three.
_DEPTH, _SMALL = 4, 32


class SmallMatmulAsPointwise(Pattern):
    """A matrix product over few numbers is written as products and a sum.

    a[m, k] @ b[k, n]   ==>   (a[m, k, 1] * b[1, k, n]).sum(-2)

    A compiler fuses that with its neighbours, where a GEMM stands alone and reads and writes memory.
    A depth of 1 needs no sum. Half precision becomes float32 until the sum is rounded, as inside a
    GEMM. Known from Optimus' decompose_mm.
    """

    direction = Direction.VERTICAL
    exactness = Exactness.REASSOCIATING
    anchors = frozenset({Matmul})
    conditions = (
        "both operands of rank 2, or both of rank 3 with equal batches",
        "depth of 4 or less, or depth and width (in a batch the height too) of 32 or less",
        "one real floating-point type, known depth and width",
    )

    def matches(self, graph: GraphView, op: Matmul) -> Iterator[Match]:
        left, right = graph.spec(op.left), graph.spec(op.right)
        types = {left.dtype, right.dtype, graph.spec(op.node).dtype}
        if len(types) > 1 or left.dtype not in _TYPES or left.device != right.device:
            return
        if left.ndim != right.ndim or left.ndim not in (2, 3) or not batchable(graph, op.node):
            return
        if left.ndim == 3 and not same(left.shape[0], right.shape[0]):
            return
        height, depth, width = (static(s) for s in (*left.shape[-2:], right.shape[-1]))
        if depth is None or width is None or not depth:
            return
        # A tall matrix of short rows is bound by memory; so is a small one of each of many samples.
        small = depth <= _SMALL and width <= _SMALL
        if left.ndim == 3:
            small = small and height is not None and height <= _SMALL
        if small or depth <= _DEPTH:
            yield match(op)

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        op: Matmul = m.anchor
        dtype = edit.view.spec(op.node).dtype
        wide = torch.float32 if dtype in _HALF else dtype
        rank = edit.view.ndim(op.left)
        depth = edit.view.shape(op.left)[-1]
        left, right = edit.convert(op.left, wide), edit.convert(op.right, wide)
        if depth > 1:
            left, right = edit.unsqueeze(left, rank), edit.unsqueeze(right, rank - 2)
        y = edit.mul(left, right)
        if depth > 1:
            y = edit.reduce("sum", y, [rank - 1], keepdim=False)
        edit.replace(op.node, edit.convert(y, dtype))

"""Attention heads side by side."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

import torch
from torch import fx

from passwright.passes.editor import GraphEditor
from passwright.passes.graph import GraphView
from passwright.passes.horizontal import HorizontalPattern
from passwright.passes.legality import agreement, same_shape
from passwright.passes.ops import Attention
from passwright.passes.pattern import TORCH_IR, Exactness, Match
from passwright.passes.patterns.layouts import settled, without_dim
from passwright.passes.spec import static


class BatchAttentions(HorizontalPattern):
    """Attentions of equal shape become one with more heads.

    attention(q_i, k_i, v_i) of (batch, length, width)
        ==>   attention(stack(q, 1), stack(k, 1), stack(v, 1)).unbind(1)
    attention(q_i, k_i, v_i) of (batch, heads, length, width)
        ==>   attention(cat(q, 1), cat(k, 1), cat(v, 1)).split(heads, 1)
    """

    exactness = Exactness.REASSOCIATING
    anchors = frozenset({Attention})
    levels = frozenset({TORCH_IR})
    conditions = (
        "operands of equal shapes and rank 3 or 4; the same leading dims, a known number of heads",
        "the same scale; causal all or none",
        "no mask, or one for all members and heads",
    )

    def key(self, graph: GraphView, op: Attention) -> Hashable | None:
        operands = (op.query, op.key, op.value)
        shapes = [graph.shape(operand) for operand in operands]
        ranks = {len(shape) for shape in shapes}
        if ranks not in ({3}, {4}) or not _is_shared(graph, op):
            return None
        if not all(same_shape(shape[:-2], shapes[0][:-2]) for shape in shapes):
            return None
        if len(shapes[0]) == 4 and static(shapes[0][1]) is None:
            return None
        width = static(shapes[0][-1])
        scale = op.scale if op.scale is not None else width and width**-0.5
        if scale is None or graph.spec(op.query).dtype != graph.spec(op.node).dtype:
            return None
        return (scale, op.causal, op.mask, agreement(graph, op, *operands))

    def divide(self, graph: GraphView, ops: Sequence[Attention]) -> Iterable[Sequence[Attention]]:
        return (ops,) if len({(op.query, op.key, op.value) for op in ops}) > 1 else ()

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        op = m.anchor
        heads = 1 if edit.view.ndim(op.query) == 3 else edit.view.shape(op.query)[1]
        operands = zip(*((op.query, op.key, op.value) for op in m.members), strict=True)
        query, key, value = (_join(edit, values) for values in operands)
        mask = _mask(edit, op)
        y = edit.attention(query, key, value, mask=mask, causal=op.causal, scale=op.scale)
        if heads == 1:
            outputs = edit.unbind(y, 1)
        else:
            outputs = edit.split(y, [heads] * len(m.members), 1)
        for member, output in zip(m.members, outputs, strict=True):
            missing = edit.view.ndim(member.node) > edit.view.ndim(output)
            found = edit.unsqueeze(output, 1) if missing else output
            edit.replace(member.node, settled(edit, member.node, found))


def _join(edit: GraphEditor, values: Sequence[fx.Node]) -> fx.Node:
    """The values with a dim of heads, side by side along it."""
    rank, heads = edit.view.ndim(values[0]), edit.view.shape(values[0])[1]
    if rank == 4 and static(heads) != 1:
        return edit.cat(values, 1)
    return edit.stack([without_dim(edit, x, 1) if rank == 4 else x for x in values], 1)


def _is_shared(graph: GraphView, op: Attention) -> bool:
    """The mask, if there is one, is the same for every head."""
    if op.mask is None:
        return True
    shape, rank = graph.shape(op.mask), graph.ndim(op.query)
    if graph.spec(op.mask).layout is not torch.strided:
        return False
    if rank == 3:
        return len(shape) in (2, 3)
    return len(shape) == 2 or (len(shape) == 4 and static(shape[1]) == 1)


def _mask(edit: GraphEditor, op: Attention) -> fx.Node | None:
    """The mask of one member, with a dim for the heads that it did not have."""
    if op.mask is None or edit.view.ndim(op.query) == 4 or edit.view.ndim(op.mask) == 2:
        return op.mask
    return edit.unsqueeze(op.mask, 1)

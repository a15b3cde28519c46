"""Look-ups in many tables, written side by side by one Triton kernel."""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Iterator

import torch

from passwright.passes.editor import GraphEditor
from passwright.passes.graph import GraphView
from passwright.passes.legality import batchable, can_reshape_to, takes_triton
from passwright.passes.ops import Cat, Embedding, Stack
from passwright.passes.pattern import TORCH_IR, Direction, Exactness, Match, Pattern, match
from passwright.passes.patterns.embeddings import has_other_users, lookup_behind

_TYPES = frozenset({torch.float64, torch.float32, torch.bfloat16, torch.float16})
_INDICES = frozenset({torch.int64, torch.int32})
#: One program holds a row.
_WIDEST = 4096


class GatherIntoCat(Pattern):
    """Look-ups that meet in a cat become one launch of a Triton kernel, which writes its buffer.

    cat([emb(i_0, t_0), emb(i_1, t_1)], -1)   ==>   grouped_gather([i_0, i_1], [t_0, t_1])

    A stack of look-ups, (..., members, width), is the same memory under another shape.
    Tables may differ in rows and in width, and none is copied, as `gather_embeddings` does. Each
    consecutive run of inputs that are look-ups is one match. Whoever else uses a member takes a view
    of the result. Values keep every bit; the gradient of a row that is picked several times is summed
    in another order, if it is not to be deterministic.
    """

    direction = Direction.HORIZONTAL
    exactness = Exactness.BITWISE
    anchors = frozenset({Cat, Stack})
    levels = frozenset({TORCH_IR})
    conditions = (
        "on a GPU, with Triton installed",
        "a cat along the width of the look-ups, or a stack of nothing else just before it",
        "tables of one type, of known sizes, up to 4096 wide, in row-major order",
        "indices of one type, each inside its own table (else NaN instead of an error)",
        "at most one symbolic size among the places",
        "no write to an index or a table between look-up and cat",
    )

    def matches(self, graph: GraphView, anchor: Cat | Stack) -> Iterator[Match]:
        stacked = isinstance(anchor, Stack)
        wanted = graph.ndim(anchor.node) - (2 if stacked else 1)
        if anchor.dim != wanted or not takes_triton(graph, anchor.node):
            return
        ops = [lookup_behind(graph, node) for node in anchor.inputs]
        keys = [op and self._key(graph, anchor, op) for op in ops]
        first = 0
        for key, run in itertools.groupby(keys):
            size = len(list(run))
            members = [op for op in ops[first : first + size] if op is not None]
            whole = size == len(ops) or not stacked
            if key is not None and len(set(members)) > 1 and whole:
                shown = {"first": first, "members": size}
                yield match(anchor, *members, first=first, members=members, parameters=shown)
            first += size

    def _key(self, graph: GraphView, anchor: Cat | Stack, op: Embedding) -> Hashable | None:
        table, index = graph.spec(op.weight), graph.spec(op.index)
        read = (op.index, op.weight)
        if (
            not takes_triton(graph, *read)
            or table.dtype not in _TYPES
            or table.dtype != graph.spec(anchor.node).dtype
            or index.dtype not in _INDICES
            or {table.layout, index.layout} != {torch.strided}
            or not all(type(size) is int and size > 0 for size in table.shape)
            or table.shape[1] > _WIDEST
            or not table.is_contiguous
            or not can_reshape_to(_places(graph, anchor))
            or not batchable(graph, op.node)
            or graph.region(op.node) != graph.region(anchor.node)
            or graph.epoch(read, op.node) != graph.epoch(read, anchor.node)
        ):
            return None
        return (table.dtype, table.device, index.dtype, index.device, graph.needs_grad(op.node))

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        # As slow to import as Inductor, which is imported by then.
        from passwright.passes.kernels import version
        from passwright.passes.kernels.grouped_gather import GROUPED_GATHER

        anchor, first, members = m.anchor, m.first, m.members
        after = first + len(members)
        places = _places(edit.view, anchor)
        indices = [edit.reshape(op.index, (math.prod(places),)) for op in members]
        padding = [-1 if op.padding_idx is None else op.padding_idx for op in members]
        tables = [op.weight for op in members]
        rows = edit.call(GROUPED_GATHER, indices, tables, padding, version())
        widths = [edit.view.shape(table)[1] for table in tables]
        part = edit.reshape(rows, (*places, sum(widths)))
        if isinstance(anchor, Stack):
            edit.replace(anchor.node, edit.reshape(part, edit.view.shape(anchor.node)))
        else:
            inputs = [*anchor.inputs[:first], part, *anchor.inputs[after:]]
            edit.replace(anchor.node, edit.cat(inputs, anchor.dim))
        if any(has_other_users(op.node, anchor.node) for op in members):
            pieces = edit.split(part, widths, len(places))
            for op, piece in zip(members, pieces, strict=True):
                if has_other_users(op.node, anchor.node):
                    own = edit.reshape(piece, edit.view.shape(op.node))
                    edit.replace(op.node, own, where=lambda user: user is not anchor.node)


def _places(graph: GraphView, anchor: Cat | Stack) -> tuple[int, ...]:
    """The shape of what is looked up."""
    shape = graph.shape(anchor.node)
    return shape[:-2] if isinstance(anchor, Stack) else shape[:-1]

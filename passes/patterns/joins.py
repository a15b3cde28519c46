"""Views that stand between the parts of one tensor and their stack or cat, moved behind it.

What was cut from one tensor and is put together again needs no copy; a transpose or a squeeze of each
part hides that. Behind the stack it is one view, and the stack goes by other clean-ups.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torch import fx

from passwright.passes.editor import GraphEditor
from passwright.passes.graph import GraphView
from passwright.passes.legality import (
    can_reshape_to,
    is_written,
    one_grad_mode,
    same,
    same_gradient,
    same_shape,
    undisturbed,
)
from passwright.passes.ops import Cat, Permute, Reshape, Stack
from passwright.passes.parts import Run, part_of, runs_in
from passwright.passes.pattern import Direction, Exactness, Match, Pattern, match
from passwright.passes.spec import Size, static
from passwright.passes.strides import costs_one_copy


class PermuteBelowJoin(Pattern):
    """The same permute of each part of a tensor becomes one permute of what is put together.

    stack([t.mT for t in unbind(x)], 0)   ==>   stack(unbind(x), 0).mT
    cat([t.mT for t in unbind(x)], -1)    ==>   cat(unbind(x), -2).mT
    """

    direction = Direction.VERTICAL
    exactness = Exactness.BITWISE
    anchors = frozenset({Stack, Cat})
    cleanup = True
    conditions = (
        "parts of one tensor, in order",
        "the same permute of each",
        "other strides cost no further copy",
    )

    def matches(self, graph: GraphView, join: Stack | Cat) -> Iterator[Match]:
        permutes = [graph.producer(node, Permute) for node in join.inputs]
        found = [op for op in permutes if op is not None]
        if len(found) < max(2, len(permutes)) or len({op.dims for op in found}) > 1:
            return
        sources = [op.input for op in found]
        if not _is_run(graph, sources) or not _may_move(graph, join, sources):
            return
        if costs_one_copy(graph, join.node):
            yield match(join, *join.inputs, sources=sources, dims=found[0].dims)

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        dims, place = list(m.dims), m.anchor.dim
        if isinstance(m.anchor, Cat):
            joined = edit.cat(m.sources, dims[place])
        else:
            joined = edit.stack(m.sources, 0)
            dims = [dim + 1 for dim in dims]
            dims.insert(place, 0)
        edit.replace(m.anchor.node, edit.permute(joined, dims))


class ReshapeBelowStack(Pattern):
    """The same reshape of each part of a tensor becomes one reshape of their stack.

    stack([p.squeeze(2) for p in unbind(x)], 1)   ==>   stack(unbind(x), 1).squeeze(3)
    """

    direction = Direction.VERTICAL
    exactness = Exactness.BITWISE
    anchors = frozenset({Stack})
    cleanup = True
    conditions = (
        "parts of one tensor, in order, each reshaped alike",
        "the sizes before the stack's dim stay, but for dims of size 1",
        "at most one symbolic size",
    )

    def matches(self, graph: GraphView, stack: Stack) -> Iterator[Match]:
        if len(stack.inputs) < 2 or _is_run(graph, stack.inputs):
            return
        reshapes = [graph.producer(node, Reshape) for node in stack.inputs]
        sources = [op.input for op in reshapes if op is not None]
        if len(sources) < len(reshapes) or not _is_run(graph, sources):
            return
        shape = graph.spec(sources[0]).shape
        place = _place(shape, graph.spec(stack.inputs[0]).shape, stack.dim)
        alike = all(same_shape(graph.spec(node).shape, shape) for node in sources)
        if place is None or not alike or not can_reshape_to(graph.spec(stack.node).shape):
            return
        if _may_move(graph, stack, sources):
            yield match(stack, *stack.inputs, sources=sources, place=place)

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        stacked = edit.stack(m.sources, m.place)
        edit.replace(m.anchor.node, edit.reshape(stacked, edit.view.spec(m.anchor.node).shape))


def _is_run(graph: GraphView, nodes: Sequence[fx.Node]) -> bool:
    """Two or more consecutive parts of one tensor, in order."""
    if part_of(graph, nodes[0]) is None:
        return False
    items = runs_in(graph, nodes)
    return len(items) == 1 and isinstance(items[0], Run)


def _may_move(graph: GraphView, join: Stack | Cat, sources: Sequence[fx.Node]) -> bool:
    """Nobody writes or changes grad mode between, and the copy keeps its gradient."""
    if is_written(graph, join.node, *join.inputs, *sources):
        return False
    steady = undisturbed(graph, join.node, *join.inputs, *sources)
    users = one_grad_mode(graph, join.node, *join.node.users)
    return steady and users and same_gradient(graph, join.node, *sources)


def _place(before: Sequence[Size], after: Sequence[Size], dim: int) -> int | None:
    """Where in `before` the sizes begin that stand from `dim` on in `after`.

    None where the sizes in front of it differ by more than dims of size 1.
    """
    wanted = [size for size in after[:dim] if static(size) != 1]
    place = 0
    for size in wanted:
        while place < len(before) and static(before[place]) == 1:
            place += 1
        if place == len(before) or not same(before[place], size):
            return None
        place += 1
    return place

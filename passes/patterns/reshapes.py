"""Chains of reshapes and permutes."""

from __future__ import annotations

from collections.abc import Iterator

from passwright.passes.editor import GraphEditor
from passwright.passes.graph import GraphView
from passwright.passes.legality import (
    can_reshape_to,
    is_written,
    may_become,
    one_grad_mode,
    only_user,
    same_shape,
    undisturbed,
)
from passwright.passes.ops import Matmul, Op, Permute, Reshape
from passwright.passes.pattern import Direction, Exactness, Match, Pattern, match
from passwright.passes.spec import Size, static
from passwright.passes.strides import costs_one_copy


class MergeReshapes(Pattern):
    """A reshape of a reshape is one reshape.

    x.flatten(1).view(b, 2, 3)   ==>   x.reshape(b, 2, 3)

    If the result has the shape of `x`, it is `x`. Also known from Inductor's own clean-up.
    """

    direction = Direction.VERTICAL
    exactness = Exactness.BITWISE
    anchors = frozenset({Reshape})
    cleanup = True
    conditions = ("the first is used by reshapes alone", "at most one symbolic size")

    def matches(self, graph: GraphView, outer: Reshape) -> Iterator[Match]:
        inner = graph.producer(outer.input, Reshape)
        if inner is not None and _may_merge(graph, outer, inner, outer.shape):
            yield match(outer, inner, source=inner.input)

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        edit.replace(m.anchor.node, edit.reshape(m.source, m.anchor.shape))


class RemoveIdentityReshape(Pattern):
    """A reshape to the shape that is there already does nothing.

    x.view(x.shape)   ==>   x
    """

    direction = Direction.VERTICAL
    exactness = Exactness.BITWISE
    anchors = frozenset({Reshape})
    cleanup = True
    conditions = ("an input or output of the graph does not become another output",)

    def matches(self, graph: GraphView, op: Reshape) -> Iterator[Match]:
        same = same_shape(graph.shape(op.input), op.shape)
        if same and may_become(graph, op.node, op.input):
            yield match(op)

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        edit.replace(m.anchor.node, m.anchor.input)


class MergePermutes(Pattern):
    """A permute of a permute is one permute, or none.

    x.permute(1, 0, 2).transpose(1, 2)   ==>   x.permute(1, 2, 0)
    """

    direction = Direction.VERTICAL
    exactness = Exactness.BITWISE
    anchors = frozenset({Permute})
    cleanup = True
    conditions = (
        "the first is used by permutes alone, or the two cancel",
        "not the transposed keys of an attention",
    )

    def matches(self, graph: GraphView, outer: Permute) -> Iterator[Match]:
        inner = graph.producer(outer.input, Permute)
        if inner is None or not undisturbed(graph, outer.node, inner.node):
            return
        dims = [inner.dims[d] for d in outer.dims]
        if _is_sorted(dims):
            legal = may_become(graph, outer.node, inner.input)
        else:
            legal = _only_for(graph, inner, outer, Permute) and not _are_keys(graph, outer)
        if legal:
            yield match(outer, inner, source=inner.input, dims=dims)

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        edit.replace(m.anchor.node, edit.permute(m.source, m.dims))


def _are_keys(graph: GraphView, op: Permute) -> bool:
    """Heads of keys, transposed for the product with queries: Inductor knows attention by just that, and
    where they are one permute, its replacement fails to compile (torch 2.13). Nothing is lost by it, since
    a product takes any strides."""
    *outer, row, column = op.dims
    swapped = len(outer) >= 2 and (row, column) == (len(op.dims) - 1, len(op.dims) - 2)
    users = [graph.read(user) for user in op.node.users]
    return swapped and _is_sorted(outer) and all(isinstance(user, Matmul) for user in users)


class RemoveIdentityPermute(Pattern):
    """A permute that leaves every dim in its place, or swaps dims of size 1, does nothing.

    x.permute(0, 1, 2)   ==>   x
    """

    direction = Direction.VERTICAL
    exactness = Exactness.BITWISE
    anchors = frozenset({Permute})
    cleanup = True
    conditions = ("an input or output of the graph does not become another output",)

    def matches(self, graph: GraphView, op: Permute) -> Iterator[Match]:
        same = same_shape(graph.shape(op.input), graph.shape(op.node))
        if same and _is_reshape(graph, op) and may_become(graph, op.node, op.input):
            yield match(op)

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        edit.replace(m.anchor.node, m.anchor.input)


class ReshapeOfPermute(Pattern):
    """A permute that moves only dims of size 1 is a reshape, and merges with a reshape beside it.

    x[:, None].transpose(0, 1)   ==>   x.reshape(1, b, w)
    """

    direction = Direction.VERTICAL
    exactness = Exactness.BITWISE
    anchors = frozenset({Reshape, Permute})
    cleanup = True
    conditions = (
        "dims larger than 1 keep their order",
        "the first is used by reshapes alone",
        "at most one symbolic size",
    )

    def matches(self, graph: GraphView, outer: Reshape | Permute) -> Iterator[Match]:
        inner = graph.read(outer.input)
        if not isinstance(inner, (Reshape, Permute)) or type(inner) is type(outer):
            return
        if not _is_reshape(graph, inner) or not _is_reshape(graph, outer):
            return
        shape = graph.spec(outer.node).shape
        if _may_merge(graph, outer, inner, shape):
            yield match(outer, inner, source=inner.input, shape=shape)

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        edit.replace(m.anchor.node, edit.reshape(m.source, m.shape))


def _is_sorted(dims: list[int]) -> bool:
    return dims == sorted(dims)


def _is_reshape(graph: GraphView, op: Reshape | Permute) -> bool:
    """Row-major order stays: every dim that is not of size 1 keeps its place among the others."""
    if isinstance(op, Reshape):
        return True
    shape = graph.spec(op.input).shape
    return _is_sorted([dim for dim in op.dims if static(shape[dim]) != 1])


def _may_merge(
    graph: GraphView, outer: Reshape | Permute, inner: Reshape | Permute, shape: tuple[Size, ...]
) -> bool:
    """`outer(inner(x))` may become a single reshape of `x` to `shape`."""
    source, first, last = inner.input, inner.node, outer.node
    if not undisturbed(graph, last, first):
        return False
    if same_shape(graph.spec(source).shape, shape):
        legal = may_become(graph, last, source)
    else:
        legal = can_reshape_to(shape) and _only_for(graph, inner, outer, type(outer))
    specs = [graph.spec(node) for node in (source, first, last)]
    if specs[0].storage == specs[1].storage == specs[2].storage:
        return legal
    if not one_grad_mode(graph, last, *last.users):
        return False
    # One of the two copies. The merged reshape may be a view: no second copy must follow from that.
    copies_once = specs[0].storage == specs[1].storage or only_user(graph, first, last)
    in_order = specs[0].is_contiguous or costs_one_copy(graph, last)
    return legal and copies_once and in_order and not is_written(graph, source, last)


def _only_for(graph: GraphView, inner: Op, outer: Op, kind: type[Op]) -> bool:
    """`inner` is there for ops like `outer` alone, and goes once they are merged."""
    users = (graph.read(user) for user in inner.node.users)
    return only_user(graph, inner.node, outer.node) or all(isinstance(u, kind) for u in users)

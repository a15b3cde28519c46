"""Pointwise functions moved to the whole of what was cut or is put together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torch import fx

from passwright.passes.editor import GraphEditor
from passwright.passes.graph import GraphView
from passwright.passes.legality import batchable, escapes, one_grad_mode, only_user, undisturbed
from passwright.passes.ops import Cat, Reshape, Split, Stack, Unary, Unbind
from passwright.passes.pattern import Direction, Exactness, Match, Pattern, match
from passwright.passes.strides import observes_strides


class UnaryAboveSplit(Pattern):
    """The same function of every piece of a tensor is that function of the tensor, cut afterwards.

    tanh(p) for p in split(x, w)   ==>   split(tanh(x), w)

    Not bitwise: a CPU kernel computes the elements that fill no vector register with another
    routine, and which elements those are depends on the shape.
    """

    direction = Direction.VERTICAL
    exactness = Exactness.REASSOCIATING
    anchors = frozenset({Split, Unbind})
    conditions = (
        "every piece is used once, by the same function with the same arguments",
        "nobody sees the strides or the memory of a result",
    )

    def matches(self, graph: GraphView, cut: Split | Unbind) -> Iterator[Match]:
        pieces = graph.pieces(cut) or {}
        count = cut.count if isinstance(cut, Unbind) else len(cut.sizes)
        if count < 2 or len(pieces) != count or any(len(found) > 1 for found in pieces.values()):
            return
        taken = [pieces[index][0].node for index in range(count)]
        if any(len(piece.users) != 1 for piece in taken):
            return
        unaries = _alike(graph, [next(iter(piece.users)) for piece in taken])
        if unaries is None or not undisturbed(graph, cut.node, *(u.node for u in unaries)):
            return
        if not all(_may_be_view(graph, u.node) for u in unaries):
            return
        yield match(cut, *taken, *unaries, unaries=unaries, parameters={"pieces": count})

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        cut: Split | Unbind = m.anchor
        whole = _apply(edit, m.unaries[0], cut.input)
        if isinstance(cut, Unbind):
            results = edit.unbind(whole, cut.dim)
        else:
            results = edit.split(whole, cut.sizes, cut.dim)
        for unary, result in zip(m.unaries, results, strict=True):
            edit.replace(unary.node, result)


class UnaryBelowCat(Pattern):
    """A cat or stack of the same function of each input is that function of the cat.

    cat([tanh(a), tanh(b)])   ==>   tanh(cat([a, b]))

    Not bitwise, as above. Where the functions would be fused into the cat, and it not into the
    function, it costs one more pass over the memory.
    """

    direction = Direction.VERTICAL
    exactness = Exactness.REASSOCIATING
    anchors = frozenset({Cat, Stack})
    conditions = (
        "every input is used here alone, and is the same function with the same arguments",
        "the arguments of the function have one type",
    )

    def matches(self, graph: GraphView, join: Cat | Stack) -> Iterator[Match]:
        values = list(dict.fromkeys(join.inputs))
        if len(join.inputs) < 2 or not all(_feeds_only(graph, v, join.node) for v in values):
            return
        unaries = _alike(graph, join.inputs)
        if unaries is None or graph.region(unaries[0].node) != graph.region(join.node):
            return
        if batchable(graph, join.node) and undisturbed(graph, join.node, *values):
            yield match(join, *values, unaries=unaries, parameters={"inputs": len(join.inputs)})

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        inputs = [unary.input for unary in m.unaries]
        build = edit.stack if isinstance(m.anchor, Stack) else edit.cat
        edit.replace(m.anchor.node, _apply(edit, m.unaries[0], build(inputs, m.anchor.dim)))


def _alike(graph: GraphView, nodes: Sequence[fx.Node]) -> list[Unary] | None:
    """The nodes as unary ops, if they are the same function of values of one type in one region."""
    found: list[Unary] = []
    for node in nodes:
        op = graph.producer(node, Unary)
        if op is None or not batchable(graph, node):
            return None
        found.append(op)
    first = found[0]
    inputs = [graph.spec(op.input) for op in found]
    for op, spec in zip(found, inputs, strict=True):
        if (op.function, repr(op.params)) != (first.function, repr(first.params)):
            return None
        if (spec.dtype, spec.device, spec.layout) != (
            inputs[0].dtype,
            inputs[0].device,
            inputs[0].layout,
        ):
            return None
        if graph.region(op.node) != graph.region(first.node):
            return None
    return found


def _may_be_view(graph: GraphView, node: fx.Node) -> bool:
    """Nobody can tell that the value has no memory of its own."""
    seen = escapes(graph, node) or observes_strides(graph, node)
    return not seen and one_grad_mode(graph, node, *node.users)


def _apply(edit: GraphEditor, unary: Unary, x: fx.Node) -> fx.Node:
    """The function of `x`, in the spelling of `unary`."""
    spec = edit.view.spec(x)
    dtype = edit.view.spec(unary.node).dtype
    plain = spec.is_static and spec.is_contiguous
    found = spec.fresh(spec.shape, dtype) if plain else None
    return edit.again(unary.node, {unary.input: x}, found)


def _feeds_only(graph: GraphView, value: fx.Node, join: fx.Node) -> bool:
    """The value is used by `join` alone; ATen-IR has an unsqueeze between, if `join` is a stack."""
    users = list(value.users)
    if users == [join]:
        return True
    return (
        len(users) == 1
        and isinstance(graph.read(users[0]), Reshape)
        and only_user(graph, users[0], join)
    )

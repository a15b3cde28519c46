"""Pointwise ops side by side.

They pay where the operands are pieces of one earlier batch: stack and unbind then cancel.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence

from torch import fx

from passwright.passes.editor import GraphEditor
from passwright.passes.graph import GraphView
from passwright.passes.horizontal import HorizontalPattern
from passwright.passes.legality import agreement
from passwright.passes.ops import Binary, Operand, Unary
from passwright.passes.pattern import Exactness, Match
from passwright.passes.spec import static


class BatchUnaries(HorizontalPattern):
    """One pointwise function of many tensors of equal shape becomes that function of their stack.

    f(x_i)   ==>   f(stack(x)).unbind()

    Not bitwise: a CPU kernel computes the elements that fill no vector register with another
    routine, and which elements those are depends on the shape. Known from Optimus' batch_tanh,
    batch_relu and their like.
    """

    lasting_key = True
    exactness = Exactness.REASSOCIATING
    anchors = frozenset({Unary})
    conditions = ("the same function and arguments", "equal shapes and types", "no writes between")

    def key(self, graph: GraphView, op: Unary) -> Hashable | None:
        return (op.function, repr(op.params), agreement(graph, op, op.input))

    def divide(self, graph: GraphView, ops: Sequence[Unary]) -> Iterable[Sequence[Unary]]:
        return (ops,) if len({op.input for op in ops}) > 1 else ()

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        x = edit.stack([op.input for op in m.members], 0)
        found = edit.view.spec(x)
        dtype = edit.view.spec(m.anchor.node).dtype
        spec = found.fresh(found.shape, dtype) if found.is_static else None
        y = edit.again(m.anchor.node, {m.anchor.input: x}, spec)
        for op, output in zip(m.members, edit.unbind(y, 0), strict=True):
            edit.replace(op.node, output)


class JoinUnaries(HorizontalPattern):
    """One pointwise function of tensors of any widths becomes that function of their cat.

    f(x_i)   ==>   f(cat(x, -1)).split(widths, -1)

    Where the tensors are pieces of one wide GEMM the cat is that GEMM, and nothing moves.
    """

    lasting_key = True
    exactness = Exactness.REASSOCIATING
    anchors = frozenset({Unary})
    conditions = (
        "the same function and arguments",
        "equal types, and shapes that differ in the last dim alone, which is known",
        "no writes between",
    )

    def key(self, graph: GraphView, op: Unary) -> Hashable | None:
        spec = graph.spec(op.input)
        if not spec.ndim or static(spec.shape[-1]) is None:
            return None
        rows = tuple(map(str, spec.shape[:-1]))
        kind = (spec.dtype, spec.device, spec.layout)
        return (op.function, repr(op.params), rows, kind, agreement(graph, op))

    def divide(self, graph: GraphView, ops: Sequence[Unary]) -> Iterable[Sequence[Unary]]:
        return (ops,) if len({op.input for op in ops}) > 1 else ()

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        last = edit.view.ndim(m.anchor.input) - 1
        widths = [edit.view.shape(op.input)[last] for op in m.members]
        x = edit.cat([op.input for op in m.members], last)
        found = edit.view.spec(x)
        dtype = edit.view.spec(m.anchor.node).dtype
        spec = found.fresh(found.shape, dtype) if found.is_static else None
        y = edit.again(m.anchor.node, {m.anchor.input: x}, spec)
        for op, output in zip(m.members, edit.split(y, widths, last), strict=True):
            edit.replace(op.node, output)


class BatchBinaries(HorizontalPattern):
    """One pointwise function of many pairs becomes that function of two stacks.

    f(a_i, b_i)   ==>   f(stack(a), stack(b)).unbind()

    An operand that is the same in all members is not stacked but broadcast. Known from Optimus'
    batch_aten_add and its like, which drop `alpha`.
    """

    lasting_key = True
    exactness = Exactness.BITWISE
    anchors = frozenset({Binary})
    conditions = (
        "the same function, arguments and scalars; operands of equal shapes and types",
        "a real floating-point result (compilers inline index arithmetic anyway)",
        "alpha a power of two (any other rounds as the kernel pleases)",
        "no operand whose type weighs less for having no dims",
    )

    def key(self, graph: GraphView, op: Binary) -> Hashable | None:
        left, right = _tensor(op.left), _tensor(op.right)
        operands = [graph.spec(value) for value in (left, right) if value is not None]
        if not graph.spec(op.node).dtype.is_floating_point or not _is_exact(op):
            return None
        if not operands or len({spec.device for spec in operands}) > 1:
            return None
        # torch lets a tensor without dims take the other's type; stacked it would have a dim.
        if len({spec.dtype for spec in operands}) > 1 and 0 in [spec.ndim for spec in operands]:
            return None
        scalars = [repr(value) for value in (op.left, op.right) if _tensor(value) is None]
        plain = (op.function, repr(op.params), *scalars)
        return (plain, agreement(graph, op, left, right))

    def divide(self, graph: GraphView, ops: Sequence[Binary]) -> Iterable[Sequence[Binary]]:
        return (ops,) if len({(op.left, op.right) for op in ops}) > 1 else ()

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        node = m.anchor.node
        rank = edit.view.ndim(node)
        left = _side(edit, [op.left for op in m.members], rank)
        right = _side(edit, [op.right for op in m.members], rank)
        # An old spelling, `torch.add(x, 0.5, 2)`, gives alpha by position.
        by_position = len(node.args) > 2
        given = {
            name: value for name, value in m.anchor.params if by_position or name in node.kwargs
        }
        dtype = edit.view.spec(node).dtype
        y = edit.pointwise(node.target, left, right, dtype=dtype, **given)
        for op, output in zip(m.members, edit.unbind(y, 0), strict=True):
            edit.replace(op.node, output)


def _tensor(value: Operand) -> fx.Node | None:
    return value if isinstance(value, fx.Node) else None


def _is_exact(op: Binary) -> bool:
    """The factor of the second operand, if there is one, never rounds."""
    alpha = dict(op.params).get("alpha", 1)
    return isinstance(alpha, (int, float)) and math.frexp(abs(alpha))[0] == 0.5


def _side(edit: GraphEditor, values: list[Operand], rank: int) -> Operand:
    """One operand of all members, with the members along dim 0 and then `rank` dims."""
    first = values[0]
    if not isinstance(first, fx.Node):
        return first
    tensors = [value for value in values if isinstance(value, fx.Node)]
    if len(set(tensors)) == 1:
        # Broadcasting aligns dims from the right, so members need no dim here.
        return first
    stacked = edit.stack(tensors, 0)
    for _ in range(rank + 1 - edit.view.ndim(stacked)):
        stacked = edit.unsqueeze(stacked, 1)
    return stacked

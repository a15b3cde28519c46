"""An einsum of two operands as a matrix product: which letter plays which part."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from torch import fx

from passwright.passes.editor import GraphEditor
from passwright.passes.graph import GraphView
from passwright.passes.legality import can_reshape_to, same
from passwright.passes.ops import Einsum
from passwright.passes.spec import Size, Spec


@dataclass(frozen=True)
class Contraction:
    """The letters of `left,right->out` by the part they play.

    Each string is in the order in which the dims are laid for the product: `batch` in both operands
    and in the result, `rows` of the left one alone, `columns` of the right one alone, `inner` summed.
    """

    left: str
    right: str
    out: str
    batch: str
    rows: str
    inner: str
    columns: str
    sizes: dict[str, Size]

    @property
    def product(self) -> str:
        """Letters of the product before they are put in the order of the result."""
        return self.batch + self.rows + self.columns

    def shape(self, letters: str) -> list[Size]:
        return [self.sizes[letter] for letter in letters]

    def merged(self, letters: str) -> Size:
        """Size of all these dims as one."""
        return math.prod(self.shape(letters))


def order(letters: str, wanted: str) -> list[int]:
    """The dims by which a permute lays `letters` out as `wanted`."""
    return [letters.index(letter) for letter in wanted]


def contraction(graph: GraphView, op: Einsum) -> Contraction | None:
    """The parts of an einsum of two operands; None for any other.

    Also None where a dim of size 1 is broadcast against another, where a letter of one operand is
    summed by itself, and where there is nothing to sum.
    """
    names, _, out = op.equation.partition("->")
    labels = names.split(",")
    sizes = letter_sizes(graph, op)
    if len(labels) != 2 or sizes is None:
        return None
    left, right = labels
    inner = "".join(letter for letter in left if letter in right and letter not in out)
    batch = "".join(letter for letter in out if letter in left and letter in right)
    rows = "".join(letter for letter in out if letter not in right)
    columns = "".join(letter for letter in out if letter not in left)
    fits = len(left) == len(batch + rows + inner) and len(right) == len(batch + columns + inner)
    if not inner or not fits:
        return None
    return Contraction(left, right, out, batch, rows, inner, columns, sizes)


def letter_sizes(graph: GraphView, op: Einsum) -> dict[str, Size] | None:
    """The size of every letter; None where one letter stands for several sizes."""
    sizes: dict[str, Size] = {}
    for letters, value in zip(op.equation.partition("->")[0].split(","), op.inputs, strict=True):
        for letter, size in zip(letters, graph.shape(value), strict=True):
            if not same(sizes.setdefault(letter, size), size):
                return None
    return sizes


def can_multiply(parts: Contraction) -> bool:
    """All shapes on the way can be reshaped to."""
    shapes = (*_operand_shapes(parts), parts.shape(parts.product))
    return all(can_reshape_to(shape) for shape in shapes)


def multiply(edit: GraphEditor, op: Einsum, parts: Contraction) -> fx.Node:
    """The einsum as permutes, one matrix product, and a permute."""
    shapes = _operand_shapes(parts)
    left = edit.permute(op.inputs[0], order(parts.left, parts.batch + parts.rows + parts.inner))
    right = edit.permute(
        op.inputs[1], order(parts.right, parts.batch + parts.inner + parts.columns)
    )
    y = edit.matmul(edit.reshape(left, shapes[0]), edit.reshape(right, shapes[1]))
    y = edit.reshape(y, parts.shape(parts.product))
    return edit.permute(y, order(parts.product, parts.out))


def product_spec(like: Spec, parts: Contraction) -> Spec:
    """How the result of `multiply` lies in memory."""
    fresh = like.fresh(parts.shape(parts.product))
    dims = order(parts.product, parts.out)
    return fresh.view([fresh.shape[d] for d in dims], [fresh.stride[d] for d in dims])


def _operand_shapes(parts: Contraction) -> tuple[Sequence[Size], Sequence[Size]]:
    """Of the two matrices, or stacks of them. Rows stay dims of their own where nothing is batched,
    as a product with one matrix takes any number of leading dims."""
    batch, rows = parts.shape(parts.batch), parts.shape(parts.rows)
    if batch or not rows:
        rows = [parts.merged(parts.rows)]
    inner, columns = parts.merged(parts.inner), parts.merged(parts.columns)
    return [*batch, *rows, inner], [*batch, inner, columns]

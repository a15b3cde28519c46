"""Many values taken from a few: which rows of which tables, and one gather for all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import torch
from torch import fx

from passwright.passes.dialect import Dialect
from passwright.passes.editor import GraphEditor
from passwright.passes.graph import GraphView
from passwright.passes.legality import consecutive
from passwright.passes.parts import part_of
from passwright.passes.spec import static

#: A table with many more rows than are taken is not worth a gather: its gradient is as large as it.
_SPARE_ROWS = 4


@dataclass(frozen=True)
class Rows:
    """Rows `indices`, along `dim`, of the `tables` put end to end.

    `stacks`: each table is one row, without that dim. `via` are the views that take the rows now.
    """

    tables: tuple[fx.Node, ...]
    indices: tuple[int, ...]
    dim: int
    stacks: bool
    total: int
    via: tuple[fx.Node, ...] = ()


def rows_of(graph: GraphView, nodes: Sequence[fx.Node], dim: int, *, stacks: bool) -> Rows | None:
    """The values as rows along `dim` of the tensors from which they are cut, or of one another.

    `stacks`: the values lack that dim; else they are of size 1 along it. None where neither holds.
    """
    found = _cut_rows(graph, nodes, dim, drops=stacks) or _own_rows(graph, nodes, dim, stacks)
    return found if found and found.total <= _SPARE_ROWS * len(nodes) else None


def pairs_of(
    graph: GraphView, lefts: Sequence[fx.Node], rights: Sequence[fx.Node], dim: int, *, stacks: bool
) -> tuple[Rows, Rows] | None:
    """As `rows_of`, for both operands of many pairs; of the same tables where that needs fewer."""
    left = rows_of(graph, lefts, dim, stacks=stacks)
    right = rows_of(graph, rights, dim, stacks=stacks)
    if left is None or right is None:
        return None
    both = rows_of(graph, [*lefts, *rights], dim, stacks=stacks)
    if both is None or len(both.tables) >= len(left.tables) + len(right.tables):
        return left, right
    count = len(lefts)
    return (
        replace(both, indices=both.indices[:count]),
        replace(both, indices=both.indices[count:]),
    )


def whole_table(edit: GraphEditor, rows: Rows) -> fx.Node:
    """The tables end to end."""
    build = edit.stack if rows.stacks else edit.cat
    return build(rows.tables, rows.dim)


def gather_pairs(edit: GraphEditor, sides: tuple[Rows, Rows]) -> tuple[fx.Node, fx.Node]:
    """Both operands of many pairs."""
    left, right = sides
    first = whole_table(edit, left)
    second = first if left.tables == right.tables else whole_table(edit, right)
    return gather(edit, left, first), gather(edit, right, second)


def gather(edit: GraphEditor, rows: Rows, table: fx.Node) -> fx.Node:
    """All rows of the whole table, side by side along their dim."""
    if consecutive(rows.indices):
        return edit.slice(table, rows.dim, rows.indices[0], rows.indices[-1] + 1)
    return take(edit, table, rows.dim, rows.indices)


def take(edit: GraphEditor, x: fx.Node, dim: int, indices: Sequence[int]) -> fx.Node:
    """`x[indices]` along `dim`."""
    spec = edit.view.spec(x)
    plain = spec.is_static and spec.is_contiguous
    shape = [*spec.shape[:dim], len(indices), *spec.shape[dim + 1 :]]
    found = spec.fresh(shape) if plain else None
    target = torch.index_select
    if edit.view.dialect is Dialect.ATEN:
        target = torch.ops.aten.index_select.default
    return edit.call(target, x, dim, edit.constant(indices, torch.int64, x), spec=found)


def _cut_rows(graph: GraphView, nodes: Sequence[fx.Node], dim: int, *, drops: bool) -> Rows | None:
    """All values cut along `dim`, one row each, out of tensors alike but for that dim."""
    parts = [part_of(graph, node) for node in nodes]
    found = [p for p in parts if p and (p.dim, p.width, p.drops) == (dim, 1, drops)]
    if len(found) < len(nodes):
        return None
    tables = list(dict.fromkeys(part.source for part in found))
    heights = [static(graph.shape(table)[dim]) for table in tables]
    known = [height for height in heights if height is not None]
    kinds = {_kind(graph, table, dim) for table in tables}
    if len(known) < len(heights) or len(kinds) > 1:
        return None
    starts = dict(zip(tables, accumulate(known, initial=0), strict=False))
    indices = tuple(starts[part.source] + part.start for part in found)
    via = tuple(dict.fromkeys(node for part in found for node in part.nodes))
    return Rows(tuple(tables), indices, dim, False, sum(known), via)


def _own_rows(graph: GraphView, nodes: Sequence[fx.Node], dim: int, stacks: bool) -> Rows | None:
    tables = list(dict.fromkeys(nodes))
    if not stacks and any(static(graph.shape(table)[dim]) != 1 for table in tables):
        return None
    place = {table: number for number, table in enumerate(tables)}
    return Rows(tuple(tables), tuple(place[n] for n in nodes), dim, stacks, len(tables))


def _kind(graph: GraphView, table: fx.Node, dim: int) -> tuple[object, ...]:
    spec = graph.spec(table)
    return (*map(str, (*spec.shape[:dim], *spec.shape[dim + 1 :])), spec.dtype, spec.device)

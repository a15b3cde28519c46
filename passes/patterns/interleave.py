"""Equal pieces put together in another order, which is a permutation of axes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from passwright.passes.editor import GraphEditor
from passwright.passes.graph import GraphView
from passwright.passes.legality import is_written, same_gradient, undisturbed
from passwright.passes.ops import Cat, Select, Slice, Split
from passwright.passes.pattern import Direction, Exactness, Match, Pattern, match
from passwright.passes.spec import static
from passwright.passes.windows import Window, extent, window


class InterleavePieces(Pattern):
    """A cat of all equal pieces of a tensor, read as a grid by columns, is one permutation.

    cat of pieces 0 3 1 4 2 5 of x (b, 6 * w)
        ==>   x.reshape(b, 2, 3, w).permute(0, 2, 1, 3).reshape(b, 6 * w)

    Not where the cat is cut up or joined once more along its dim: there it dissolves.
    """

    direction = Direction.VERTICAL
    exactness = Exactness.BITWISE
    anchors = frozenset({Cat})
    conditions = (
        "all pieces, equal widths, in the order of a transposed grid",
        "cut along the cat's dim",
        "not cut or joined again",
        "at most one symbolic size",
        "no writes",
    )

    def matches(self, graph: GraphView, cat: Cat) -> Iterator[Match]:
        windows = [window(graph, node, cat.dim) for node in cat.inputs]
        order = _order(graph, windows, cat.dim)
        grid = _grid(order) if order is not None else None
        if grid is None or _is_cut_again(graph, cat):
            return
        parts = [part for part in windows if part is not None]
        via = dict.fromkeys(node for part in parts for node in part.via)
        source = parts[0].source
        symbolic = sum(static(size) is None for size in graph.shape(source))
        plain = undisturbed(graph, cat.node, *via) and same_gradient(graph, cat.node, source)
        if symbolic < 2 and plain and not is_written(graph, cat.node, source):
            yield match(cat, *via, source=source, grid=(*grid, parts[0].width))

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        dim, node = m.anchor.dim, m.anchor.node
        shape = edit.view.shape(m.source)
        x = edit.reshape(m.source, (*shape[:dim], *m.grid, *shape[dim + 1 :]))
        axes = list(range(edit.view.ndim(x)))
        axes[dim], axes[dim + 1] = axes[dim + 1], axes[dim]
        edit.replace(node, edit.reshape(edit.permute(x, axes), edit.view.shape(node)))


def _order(graph: GraphView, windows: Sequence[Window | None], dim: int) -> list[int] | None:
    """The order in which equal windows cover all of one source, each once."""
    first = windows[0]
    if first is None or not first.width:
        return None
    starts = []
    for part in windows:
        if part is None or part.source is not first.source or part.width != first.width:
            return None
        starts.append(part.start)
    whole = extent(graph, first.source, dim) == len(starts) * first.width
    covered = sorted(starts) == [i * first.width for i in range(len(starts))]
    return [start // first.width for start in starts] if whole and covered else None


def _grid(order: Sequence[int]) -> tuple[int, int] | None:
    """Rows and columns of the grid that `order` reads by columns, if it does."""
    count = len(order)
    columns = order[1] if count > 1 else 0
    if not 1 < columns < count or count % columns:
        return None
    by_columns = [i for column in range(columns) for i in range(column, count, columns)]
    return (count // columns, columns) if list(order) == by_columns else None


def _is_cut_again(graph: GraphView, cat: Cat) -> bool:
    readers = (graph.read(user) for user in cat.node.users)
    return any(isinstance(op, Split | Slice | Select | Cat) and op.dim == cat.dim for op in readers)

"""Which part of which tensor a value is, along one dim, seen through the views that cut it out.

`torch.split(x, 8)[1]`, `x[8:16]` and `x.narrow(0, 8, 8)` are all the window [8, 16) of x. Patterns
about splits, slices and cats compare windows, so that they need not know who cut them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise

from torch import fx

from passwright.passes.editor import GraphEditor
from passwright.passes.graph import GraphView
from passwright.passes.legality import (
    is_written,
    one_grad_mode,
    same_gradient,
    same_shape,
    stands_in,
    undisturbed,
    unseen,
)
from passwright.passes.ops import Cat, Reshape
from passwright.passes.parts import Part, part_of
from passwright.passes.spec import static


@dataclass(frozen=True)
class Window:
    """`source[start:stop]` along a dim that the context names; `via` are the views between."""

    source: fx.Node
    start: int
    stop: int
    via: tuple[fx.Node, ...] = field(default=(), compare=False)

    @property
    def width(self) -> int:
        return self.stop - self.start

    def precedes(self, other: Window) -> bool:
        """`other` begins where this one ends."""
        return self.source is other.source and self.stop == other.start


def extent(graph: GraphView, node: fx.Node, dim: int) -> int | None:
    """Size along `dim`, if it is known without a guard."""
    return static(graph.shape(node)[dim])


def is_whole(graph: GraphView, window: Window, dim: int) -> bool:
    """The window is all of its source."""
    return window.start == 0 and window.stop == extent(graph, window.source, dim)


def cut(graph: GraphView, node: fx.Node, dim: int) -> Window | None:
    """What `node` takes out of the next value before it; None if it is no cut along `dim`.

    Cuts are pieces of a split, slices, and selects whose dim was put back with size 1.
    """
    part = part_of(graph, node)
    if part is None:
        op = graph.read(node)
        part = part_of(graph, op.input) if isinstance(op, Reshape) else None
        if part is None or not part.drops or not _puts_back(graph, node, part):
            return None
        part = replace(part, nodes=(*part.nodes, node), drops=False)
    if part.drops or part.dim != dim:
        return None
    return Window(part.source, part.start, part.stop, part.nodes)


def _puts_back(graph: GraphView, node: fx.Node, part: Part) -> bool:
    """The value has the source's shape, but for size 1 in the dim that the part lost."""
    shape = graph.shape(part.source)
    return same_shape(graph.shape(node), (*shape[: part.dim], 1, *shape[part.dim + 1 :]))


def window(graph: GraphView, node: fx.Node, dim: int) -> Window | None:
    """`node` as a part of the farthest tensor from which it is cut; None for an unknown size."""
    size = extent(graph, node, dim)
    if size is None:
        return None
    found = Window(node, 0, size)
    while (step := cut(graph, found.source, dim)) is not None:
        start = step.start + found.start
        found = Window(step.source, start, start + size, (*step.via, *found.via))
    return found


def runs(windows: Sequence[Window | None]) -> list[range]:
    """Positions of neighbours that follow each other in one source; most are of length 1."""
    found: list[range] = []
    for position, here in enumerate(windows):
        before = windows[position - 1] if position else None
        if before is not None and here is not None and before.precedes(here):
            found[-1] = range(found[-1].start, position + 1)
        else:
            found.append(range(position, position + 1))
    return found


def join(windows: Sequence[Window | None]) -> Window | None:
    """The one window that all of them make end to end, or None."""
    first, last = windows[0], windows[-1]
    if first is None or last is None or len(runs(windows)) > 1:
        return None
    via = dict.fromkeys(node for part in windows if part is not None for node in part.via)
    return Window(first.source, first.start, last.stop, tuple(via))


def parts_of_cat(graph: GraphView, cat: Cat, start: int, stop: int) -> list[Window]:
    """The windows of a cat's inputs that are [start, stop) of its result, end to end.

    Empty where an input's size is unknown, or where there is nothing between start and stop.
    """
    bounds = graph.memo(("bounds", cat.node), lambda: _bounds(graph, cat))
    if bounds is None:
        return []
    # Of inputs that begin at one place, all but the last are empty.
    at = bisect_right(bounds, start) - 1
    found: list[Window] = []
    while start < stop:
        until = min(stop, bounds[at + 1])
        if start < until:
            found.append(Window(cat.inputs[at], start - bounds[at], until - bounds[at]))
        start, at = until, at + 1
    return found


def _bounds(graph: GraphView, cat: Cat) -> list[int] | None:
    """Where each input begins in the cat's result, and where the last one ends."""
    sizes = [extent(graph, node, cat.dim) for node in cat.inputs]
    known = [size for size in sizes if size is not None]
    return list(accumulate(known, initial=0)) if len(known) == len(sizes) else None


def is_one_view(graph: GraphView, copied: fx.Node, window: Window, dim: int) -> bool:
    """The copy may become the view of the source that the window describes.

    Nobody writes the memory of either, and the gradient is the same. Where it is all of the source,
    no view is made, and its users need the same grad mode.
    """
    if is_written(graph, copied, window.source):
        return False
    if is_whole(graph, window, dim) and not one_grad_mode(graph, copied, *copied.users):
        return False
    gradient = same_gradient(graph, copied, window.source)
    return gradient and undisturbed(graph, copied, *window.via)


def can_be_made_of(graph: GraphView, node: fx.Node, parts: list[Window], dim: int) -> bool:
    """The value can be made of these parts without a copy that was not there before."""
    if not parts or not same_gradient(graph, node, *(part.source for part in parts)):
        return False
    if len(parts) > 1:
        spec = graph.spec(node)
        return unseen(graph, node, spec.fresh(spec.shape), shared=False)
    source = parts[0].source
    if is_whole(graph, parts[0], dim):
        return stands_in(graph, node, source)
    return unseen(graph, node, graph.spec(source))


def atoms(graph: GraphView, windows: Iterable[Window], dim: int) -> dict[Window, list[Window]]:
    """Each window as consecutive windows such that any two of them are equal or do not overlap.

    A window that is all of its source stays as it is.
    """
    by_source: dict[fx.Node, dict[Window, None]] = {}
    found: dict[Window, list[Window]] = {}
    for part in windows:
        if is_whole(graph, part, dim):
            found[part] = [part]
        else:
            by_source.setdefault(part.source, {})[part] = None
    for source, parts in by_source.items():
        bounds = sorted({bound for part in parts for bound in (part.start, part.stop)})
        for part in parts:
            inside = [bound for bound in bounds if part.start <= bound <= part.stop]
            found[part] = [Window(source, a, b) for a, b in pairwise(inside)]
    return found


def cut_out(edit: GraphEditor, windows: Iterable[Window], dim: int) -> dict[Window, list[fx.Node]]:
    """Values that make up each window, end to end.

    A source of which several parts are wanted is split once, so that its gradient stays one cat.
    """
    pieces = atoms(edit.view, windows, dim)
    wanted: dict[fx.Node, dict[Window, fx.Node | None]] = {}
    for part in (atom for parts in pieces.values() for atom in parts):
        if not is_whole(edit.view, part, dim):
            wanted.setdefault(part.source, {})[part] = None
    made: dict[Window, fx.Node] = {}
    for source, parts in wanted.items():
        size = extent(edit.view, source, dim)
        if len(parts) == 1 or size is None:
            made |= {part: edit.slice(source, dim, part.start, part.stop) for part in parts}
            continue
        bounds = sorted({0, size, *(b for part in parts for b in (part.start, part.stop))})
        nodes = edit.split(source, [b - a for a, b in pairwise(bounds)], dim)
        at = {
            Window(source, a, b): node for (a, b), node in zip(pairwise(bounds), nodes, strict=True)
        }
        made |= {part: at[part] for part in parts}
    return {part: [made.get(a, a.source) for a in found] for part, found in pieces.items()}

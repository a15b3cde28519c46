"""Parts of a tensor under one name: slices of an unbind, pieces of a split, narrow, select."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import fx

from passwright.passes.graph import GraphView
from passwright.passes.legality import same_shape
from passwright.passes.ops import Piece, Reshape, Select, Slice, Split, Unbind
from passwright.passes.spec import Size, Spec, static


@dataclass(frozen=True)
class Part:
    """`source[start:stop]` along `dim`; where it `drops` the dim, `stop` is `start + 1`.

    `nodes` are those that compute it from `source`.
    """

    nodes: tuple[fx.Node, ...]
    source: fx.Node
    dim: int
    start: int
    stop: int
    drops: bool

    @property
    def width(self) -> int:
        return self.stop - self.start


def part_of(graph: GraphView, node: fx.Node) -> Part | None:
    """What part of which tensor the value is; None if it is computed in another way."""
    match graph.read(node):
        case Piece(input=several, index=index):
            match graph.read(several):
                case Unbind(input=source, dim=dim):
                    return Part((several, node), source, dim, index, index + 1, True)
                case Split(input=source, dim=dim) as split:
                    start = split.starts[index]
                    stop = start + split.sizes[index]
                    return Part((several, node), source, dim, start, stop, False)
        case Select(input=source, dim=dim, index=index):
            return Part((node,), source, dim, index, index + 1, True)
        case Slice(input=source, dim=dim, start=start, stop=stop):
            return Part((node,), source, dim, start, stop, False)
        case Reshape(input=source, shape=shape):
            return _squeezed(graph, node, source, shape)
    return None


def _squeezed(
    graph: GraphView, node: fx.Node, source: fx.Node, shape: Sequence[Size]
) -> Part | None:
    """A piece of width 1 without its dim, which is a slice."""
    if isinstance(graph.read(source), Reshape):
        return None
    part = part_of(graph, source)
    if part is None or part.drops or part.width != 1:
        return None
    full = graph.spec(source).shape
    if not same_shape(shape, (*full[: part.dim], *full[part.dim + 1 :])):
        return None
    return Part((*part.nodes, node), part.source, part.dim, part.start, part.stop, True)


@dataclass(frozen=True)
class Run:
    """Two or more consecutive parts of equal width, in order."""

    parts: tuple[Part, ...]

    @property
    def source(self) -> fx.Node:
        return self.parts[0].source

    @property
    def dim(self) -> int:
        return self.parts[0].dim

    @property
    def drops(self) -> bool:
        return self.parts[0].drops

    @property
    def width(self) -> int:
        return self.parts[0].width

    @property
    def start(self) -> int:
        return self.parts[0].start

    @property
    def stop(self) -> int:
        return self.parts[-1].stop

    @property
    def nodes(self) -> tuple[fx.Node, ...]:
        return tuple(dict.fromkeys(node for part in self.parts for node in part.nodes))

    def share(self, graph: GraphView) -> float:
        """How much of the source the run covers, from 0 to 1; 0 where nobody knows."""
        size = static(graph.spec(self.source).shape[self.dim])
        return (self.stop - self.start) / size if size else 0.0

    def stacked(self, spec: Spec, dim: int) -> tuple[list[Size], list[Size], list[int]]:
        """Shape and strides under which the source's memory reads as the stack of the parts along a
        new dim; and the permutation that leads there from (..., count, width, ...) at the run's dim
        (only count, if the parts drop it)."""
        at, count = self.dim, len(self.parts)
        shape, stride = list(spec.shape), list(spec.stride)
        shape[at : at + 1] = [count] if self.drops else [count, self.width]
        stride[at : at + 1] = [stride[at]] if self.drops else [stride[at] * self.width, stride[at]]
        order = [d for d in range(len(shape)) if d != at]
        order.insert(dim, at)
        return [shape[d] for d in order], [stride[d] for d in order], order


def runs_in(graph: GraphView, nodes: Sequence[fx.Node]) -> list[Run | fx.Node]:
    """The values in order, with parts that follow one another taken together."""
    found: list[list[Part] | fx.Node] = []
    for node in nodes:
        part = part_of(graph, node)
        last = found[-1] if found else None
        if part is None:
            found.append(node)
        elif isinstance(last, list) and _follows(last[-1], part):
            last.append(part)
        else:
            found.append([part])
    return [_run_or_value(item) for item in found]


def _follows(first: Part, second: Part) -> bool:
    return (first.source, first.dim, first.drops, first.width, first.stop) == (
        second.source,
        second.dim,
        second.drops,
        second.width,
        second.start,
    )


def _run_or_value(item: list[Part] | fx.Node) -> Run | fx.Node:
    if isinstance(item, fx.Node):
        return item
    return Run(tuple(item)) if len(item) > 1 else item[0].nodes[-1]

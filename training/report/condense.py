"""Fewer boxes for a large graph, with every change still in sight.

Boxes that are alike (the same op, marked alike, with alike neighbours) become one box with their number.
What no step touched, and that no change is next to, becomes one box a connected region. Neither makes a
cycle: nodes that become one box have the same number of kept nodes behind them, on the longest path. An
edge never leads to fewer, and to a kept node always to more.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass

import networkx as nx

from passwright.training.report.model_content import KEPT, Drawing, DrawnNode

#: So few boxes need no condensing.
FEW = 14
_TIMES = "\N{MULTIPLICATION SIGN}"


@dataclass(frozen=True)
class Box:
    """One or several nodes of a graph."""

    members: tuple[DrawnNode, ...]
    #: An untouched region, of nodes of all kinds.
    is_region: bool = False

    @property
    def mark(self) -> str:
        return self.members[0].mark

    @property
    def steps(self) -> tuple[int, ...]:
        return tuple(sorted({node.step for node in self.members if node.step}))

    @property
    def is_input(self) -> bool:
        return all(node.is_input for node in self.members)

    @property
    def title(self) -> str:
        """What stands in the box."""
        count = len(self.members)
        if self.is_region:
            return f"{count} ops, unchanged"
        call = self.members[0].call.removeprefix("aten.").removesuffix(".default")
        if self.is_input:
            call = self.members[0].name if count == 1 else "input"
        return f"{call} {_TIMES}{count}" if count > 1 else call

    @property
    def shape(self) -> str:
        shapes = {node.shape for node in self.members}
        return shapes.pop() if len(shapes) == 1 else ""


Boxes = tuple[list[Box], list[tuple[int, int]]]


def plain(drawing: Drawing) -> Boxes:
    """A box for every node."""
    return [Box((node,)) for node in drawing.nodes], sorted(set(drawing.edges))


def condensed(drawing: Drawing) -> Boxes:
    """Alike nodes together, and untouched regions that lie apart from any change."""
    graph = _graph(drawing)
    if len(graph) <= FEW:
        return plain(drawing)
    kept = _kept(drawing, graph)
    behind = _behind(graph, kept)
    regions = _regions(graph, kept, behind)
    rest = {node: ("region", at) for at, region in enumerate(regions) for node in region}
    return _joined(drawing, _alike(drawing, graph, behind, rest))


def _graph(drawing: Drawing) -> nx.DiGraph[int]:
    graph: nx.DiGraph[int] = nx.DiGraph()
    graph.add_nodes_from(range(len(drawing.nodes)))
    graph.add_edges_from(drawing.edges)
    return graph


def _kept(drawing: Drawing, graph: nx.DiGraph[int]) -> set[int]:
    """Inputs, what a step touched, and what is next to that; all nodes where nothing was touched."""
    changed = {at for at, node in enumerate(drawing.nodes) if node.mark != KEPT}
    if not changed:
        return set(graph)
    near = {n for at in changed for n in (*graph.pred[at], *graph.succ[at])}
    return changed | near | {at for at, node in enumerate(drawing.nodes) if node.is_input}


def _behind(graph: nx.DiGraph[int], kept: Collection[int]) -> dict[int, int]:
    """How many kept nodes lie on a path to each node, itself included, at most."""
    behind: dict[int, int] = {}
    for node in nx.topological_sort(graph):
        before = max((behind[n] for n in graph.pred[node]), default=0)
        behind[node] = before + (node in kept)
    return behind


def _regions(
    graph: nx.DiGraph[int], kept: Collection[int], behind: Mapping[int, int]
) -> list[set[int]]:
    """Connected sets of two nodes and more of the others, without a kept node between them."""
    calm: nx.Graph[int] = nx.Graph()
    calm.add_nodes_from(node for node in graph if node not in kept)
    calm.add_edges_from(
        (a, b) for a, b in graph.edges if a in calm and b in calm and behind[a] == behind[b]
    )
    return [found for found in nx.connected_components(calm) if len(found) > 1]


def _alike(
    drawing: Drawing,
    graph: nx.DiGraph[int],
    behind: Mapping[int, int],
    rest: Mapping[int, Hashable],
) -> dict[int, Hashable]:
    """A class for each node, by refining colours until the neighbours of a class are alike."""
    colour: dict[int, Hashable] = {
        at: rest.get(at, (behind[at], node.call, node.mark, node.step, node.is_input))
        for at, node in enumerate(drawing.nodes)
    }
    while True:
        finer = {
            at: own
            if at in rest
            else (
                own,
                frozenset(colour[n] for n in graph.pred[at]),
                frozenset(colour[n] for n in graph.succ[at]),
            )
            for at, own in colour.items()
        }
        numbers: dict[Hashable, int] = {}
        for own in finer.values():
            numbers.setdefault(own, len(numbers))
        if len(numbers) == len(set(colour.values())):
            return colour
        colour = {at: own if at in rest else numbers[own] for at, own in finer.items()}


def _joined(drawing: Drawing, classes: Mapping[int, Hashable]) -> Boxes:
    members: dict[Hashable, list[int]] = defaultdict(list)
    for node, own in classes.items():
        members[own].append(node)
    number = {own: at for at, own in enumerate(members)}
    boxes = [
        Box(tuple(drawing.nodes[node] for node in nodes), _is_region(own))
        for own, nodes in members.items()
    ]
    edges = {(number[classes[a]], number[classes[b]]) for a, b in drawing.edges}
    return boxes, sorted((a, b) for a, b in edges if a != b)


def _is_region(own: Hashable) -> bool:
    return isinstance(own, tuple) and own[0] == "region"


def size_of(boxes: Sequence[Box]) -> int:
    """Nodes in all boxes."""
    return sum(len(box.members) for box in boxes)

"""Where the boxes of a graph go: layers from top to bottom, as in Sugiyama, Tagawa and Toda (1981).

Every node lies below all that it reads. Edges that pass layers are led through them by points of their own,
layers are ordered by the mean place of their neighbours, back and forth, and boxes then move towards their
neighbours as far as the order allows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import networkx as nx

#: Sweeps that order layers, and that move boxes.
_ORDER, _MOVE = 8, 12


@dataclass(frozen=True)
class Placed:
    """Centre and layer of every box, the points through which each edge is led, and the extent."""

    centres: Mapping[int, tuple[float, float]]
    routes: Mapping[tuple[int, int], tuple[tuple[float, float], ...]]
    width: float
    height: float


def layered(
    widths: Mapping[int, float],
    edges: Sequence[tuple[int, int]],
    *,
    row: float = 58.0,
    gap: float = 14.0,
) -> Placed:
    """Places boxes of these widths. Edges have to be without a cycle (networkx.NetworkXUnfeasible)."""
    graph: nx.DiGraph[int] = nx.DiGraph()
    graph.add_nodes_from(widths)
    graph.add_edges_from(edges)
    layer = _layers(graph)
    wide, routes = dict(widths), {}
    full: nx.DiGraph[int] = nx.DiGraph()
    full.add_nodes_from(graph.nodes)
    free = max(widths, default=-1) + 1
    for source, target in graph.edges:
        chain = [source]
        for between in range(layer[source] + 1, layer[target]):
            layer[free], wide[free] = between, 4.0
            chain.append(free)
            free += 1
        chain.append(target)
        routes[source, target] = chain
        nx.add_path(full, chain)
    rows = _ordered(full, layer)
    x = _moved(full, rows, wide, gap)
    left = min((x[n] - wide[n] / 2 for n in x), default=0.0)
    right = max((x[n] + wide[n] / 2 for n in x), default=0.0)
    centre = {n: (x[n] - left, layer[n] * row + row / 2) for n in x}
    return Placed(
        {n: centre[n] for n in graph.nodes},
        {edge: tuple(centre[n] for n in chain) for edge, chain in routes.items()},
        right - left,
        len(rows) * row,
    )


def _layers(graph: nx.DiGraph[int]) -> dict[int, int]:
    """The longest path to each node; what reads nothing stands right above its first reader."""
    layer = {
        node: depth
        for depth, nodes in enumerate(nx.topological_generations(graph))
        for node in nodes
    }
    for node in graph.nodes:
        readers = [layer[reader] for reader in graph.successors(node)]
        if readers and not graph.in_degree(node):
            layer[node] = min(readers) - 1
    used = {old: new for new, old in enumerate(sorted(set(layer.values())))}
    return {node: used[at] for node, at in layer.items()}


def _ordered(graph: nx.DiGraph[int], layer: Mapping[int, int]) -> list[list[int]]:
    rows: list[list[int]] = [[] for _ in range(max(layer.values(), default=-1) + 1)]
    for node in nx.topological_sort(graph):
        rows[layer[node]].append(node)
    place = {node: float(at) for row in rows for at, node in enumerate(row)}
    for sweep in range(_ORDER):
        down = sweep % 2 == 0
        for row in rows if down else reversed(rows):
            near = graph.predecessors if down else graph.successors
            row.sort(
                key=lambda node: (_mean([place[n] for n in near(node)], place[node]), place[node])
            )
            # Places as shares, so that a short row lies amid a long one.
            place.update({node: (at + 0.5) / len(row) for at, node in enumerate(row)})
    return rows


def _moved(
    graph: nx.DiGraph[int],
    rows: Sequence[Sequence[int]],
    wide: Mapping[int, float],
    gap: float,
) -> dict[int, float]:
    x: dict[int, float] = {}
    for row in rows:
        total = sum(wide[node] for node in row) + gap * (len(row) - 1)
        at = -total / 2
        for node in row:
            x[node] = at + wide[node] / 2
            at += wide[node] + gap
    for sweep in range(_MOVE):
        down = sweep % 2 == 0
        for row in rows if down else reversed(rows):
            near = graph.predecessors if down else graph.successors
            wanted = [_mean([x[n] for n in near(node)], x[node]) for node in row]
            x.update(zip(row, _apart(wanted, [wide[node] for node in row], gap), strict=True))
    return x


def _apart(wanted: Sequence[float], wide: Sequence[float], gap: float) -> list[float]:
    """Centres nearest to those that are wanted, in this order, without overlap: the mean of what pushing
    from the left and from the right give."""
    pushed = list(wanted)
    for at in range(1, len(pushed)):
        least = pushed[at - 1] + (wide[at - 1] + wide[at]) / 2 + gap
        pushed[at] = max(pushed[at], least)
    pulled = list(wanted)
    for at in reversed(range(len(pulled) - 1)):
        most = pulled[at + 1] - (wide[at] + wide[at + 1]) / 2 - gap
        pulled[at] = min(pulled[at], most)
    return [(one + other) / 2 for one, other in zip(pushed, pulled, strict=True)]


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise

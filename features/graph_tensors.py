"""A graph as tensors: its nodes, and the edges between them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import fx

from passwright.features import schema, structure
from passwright.features.words import is_view, word
from passwright.passes.graph import GraphView
from passwright.passes.spec import Spec, hint, parts_of

_HALF = (torch.float16, torch.bfloat16)


class Taken(NamedTuple):
    """Seconds that an estimate says a kernel takes: to start it, to compute, to move memory."""

    launch: float
    arithmetic: float
    traffic: float


NOTHING = Taken(0.0, 0.0, 0.0)


@dataclass(frozen=True)
class GraphTensors:
    """A graph of n nodes and e edges, in graph order.

    `words`: what each node does, n. `nodes`: (n, `schema.NODE`). `edges`: producer and user, (2, e).
    `edge_features`: (e, `schema.EDGE`). `places`: where each node stands.
    """

    words: tuple[str, ...]
    nodes: NDArray[np.float32]
    edges: NDArray[np.int64]
    edge_features: NDArray[np.float32]
    places: Mapping[fx.Node, int]

    def column(self, name: str) -> NDArray[np.float32]:
        """One of `schema.NODE`, of all nodes."""
        return self.nodes[:, schema.NODE.index(name)]

    def near(self, starts: list[int], radius: int, most: int) -> dict[int, int]:
        """Places of nodes within so many edges of the given ones, with their distance; of too many, the
        nearest, in graph order."""
        found = dict.fromkeys(starts[:most], 0)
        edge = list(found)
        for distance in range(1, radius + 1):
            reached = sorted({other for node in edge for other in self.around[node]})
            edge = [node for node in reached if node not in found][: most - len(found)]
            found.update(dict.fromkeys(edge, distance))
        return found

    @cached_property
    def producers(self) -> list[int]:
        """Of each edge."""
        found: list[int] = self.edges[0].tolist()
        return found

    @cached_property
    def into(self) -> list[range]:
        """For each node the numbers of the edges that lead to it."""
        starts = np.searchsorted(self.edges[1], np.arange(len(self.words) + 1)).tolist()
        return [range(*pair) for pair in pairwise(starts)]

    @cached_property
    def around(self) -> list[list[int]]:
        """Producers and users of each node. Inputs of the graph lead nowhere, nor does its output: what
        else reads a parameter or is returned has nothing to do with its neighbours there."""
        found: list[list[int]] = [[] for _ in self.words]
        inputs = self.column("is_input") > 0
        for producer, user in self.edges.T.tolist():
            if self.words[user] != "output":
                found[user].append(producer)
            if not inputs[producer]:
                found[producer].append(user)
        return found


def graph_tensors(
    view: GraphView, seconds: Callable[[fx.Node], Taken] = lambda _: NOTHING
) -> GraphTensors:
    """All nodes that live in the graph. `seconds`: what an estimate for a device says of each."""
    living = list(view.nodes())
    places = {node: place for place, node in enumerate(living)}
    sources = [[places[p] for p in node.all_input_nodes if p in places] for node in living]
    taken = [seconds(node) for node in living]
    values = [_value_of(view, node) for node in living]
    nbytes = [value.nbytes for value in values]
    stress = np.stack(
        [
            structure.criticality(sources, [sum(t) for t in taken]),
            structure.flow(sources, nbytes),
            structure.depth(sources),
        ],
        axis=1,
    )
    rows = [_of_node(view, node, value) for node, value in zip(living, values, strict=True)]
    own = np.array(rows, np.float32).reshape(len(living), schema.NODE.index("log_launch"))
    micros = np.log1p(1e6 * np.array(taken, np.float32).reshape(len(living), 3))
    pairs = [(p, user) for user, producers in enumerate(sources) for p in producers]
    operands = [n for producers in sources for n in range(len(producers))]
    sizes = [math.log1p(value) for value in nbytes]
    storages = [value.storages for value in values]
    edge_features = [
        (sizes[p], math.log1p(n), float(not storages[p].isdisjoint(storages[user])))
        for (p, user), n in zip(pairs, operands, strict=True)
    ]
    return GraphTensors(
        tuple(value.word for value in values),
        np.concatenate([own, micros, stress], axis=1),
        np.array(pairs, np.int64).reshape(-1, 2).T,
        np.array(edge_features, np.float32).reshape(-1, len(schema.EDGE)),
        places,
    )


class _Value(NamedTuple):
    """What is known of a node whatever becomes of it: its op, its tensors, and where they lie."""

    word: str
    nbytes: float
    storages: frozenset[int]
    is_view: float
    #: The columns of `schema.NODE` up to `is_input`.
    columns: tuple[float, ...]


def _value_of(view: GraphView, node: fx.Node) -> _Value:
    return view.lasting(node, "features", lambda: _find_value(view, node))


def _find_value(view: GraphView, node: fx.Node) -> _Value:
    parts = parts_of(view.any_spec(node))
    nbytes = float(sum(part.nbytes for part in parts))
    storages = frozenset(part.storage for part in parts)
    columns = _columns(parts, nbytes)
    return _Value(word(view, node), nbytes, storages, float(is_view(view, node)), columns)


def _of_node(view: GraphView, node: fx.Node, value: _Value) -> tuple[float, ...]:
    """The columns of `schema.NODE` up to the seconds."""
    users = node.users
    return (
        *value.columns,
        float(node.op in ("placeholder", "get_attr")),
        float(any(user.op == "output" for user in users)),
        value.is_view,
        float(view.needs_grad(node)),
        math.log1p(len(node.all_input_nodes)),
        math.log1p(len(users)),
    )


def _columns(parts: tuple[Spec, ...], nbytes: float) -> tuple[float, ...]:
    """Of several tensors the first stands for the shape."""
    if not parts:
        return (0.0,) * schema.NODE.index("is_input")
    first = parts[0]
    sizes = [hint(size) for size in first.shape]
    outer, inner, last = (
        sizes[0] if sizes else 1,
        sizes[-2] if sizes[1:] else 1,
        (sizes or [1])[-1],
    )
    dtype = first.dtype
    return (
        math.log1p(sum(part.numel for part in parts)),
        math.log1p(nbytes),
        float(len(sizes)),
        *(math.log1p(size) for size in (outer, inner, last)),
        *(float(last % by == 0) for by in (8, 16, 64, 128)),
        *(float(inner % by == 0) for by in (8, 64)),
        float(dtype == torch.float32),
        float(dtype in _HALF),
        float(dtype == torch.float64),
        float(not dtype.is_floating_point and not dtype.is_complex and dtype != torch.bool),
        float(dtype == torch.bool),
        1.0,
        # Others than strided tensors have no strides.
        float(first.layout == torch.strided and first.is_contiguous),
    )

"""What lies around a candidate, marked with what each node is to it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from passwright.features import schema
from passwright.features.graph_tensors import GraphTensors
from passwright.passes.pattern import Candidate

#: Edges from the match, and most nodes: a match of more keeps the first of them.
RADIUS, MOST = 2, 96


@dataclass(frozen=True)
class Neighbourhood:
    """m nodes of a graph, the matched ones among them, and the f edges between them.

    `places`: in the graph, (m,). `roles`: (m, `schema.ROLE`). `edges`: (2, f), of places here. `kept`:
    which of the graph's edges these are, (f,).
    """

    places: NDArray[np.int64]
    roles: NDArray[np.float32]
    edges: NDArray[np.int64]
    kept: NDArray[np.int64]


def neighbourhood(
    graph: GraphTensors, candidate: Candidate, *, radius: int = RADIUS, most: int = MOST
) -> Neighbourhood:
    """Around the candidate on the graph. Of a clean-up, which has no match, there is none."""
    matched = [graph.places[n] for n in candidate.match.nodes if n in graph.places]
    distance = graph.near(matched, radius, most)
    order = sorted(distance)
    here = {place: number for number, place in enumerate(order)}
    anchor = graph.places.get(candidate.match.anchor.node) if matched else None
    rank = {place: number for number, place in enumerate(matched)}
    roles = [
        (
            float(place == anchor),
            float(place in rank),
            math.log1p(rank[place] + 1) if place in rank else 0.0,
            distance[place] / max(radius, 1),
        )
        for place in order
    ]
    # Edges stand in the order of their users, so that those of one node are in one piece.
    kept: list[int] = []
    ends: list[tuple[int, int]] = []
    for user in order:
        for number in graph.into[user]:
            producer = here.get(graph.producers[number])
            if producer is not None:
                kept.append(number)
                ends.append((producer, here[user]))
    return Neighbourhood(
        np.array(order, np.int64),
        np.array(roles, np.float32).reshape(-1, len(schema.ROLE)),
        np.array(ends, np.int64).reshape(-1, 2).T,
        np.array(kept, np.int64),
    )

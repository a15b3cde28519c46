"""How much of a graph runs through each of its nodes.

A rewrite where everything comes through can unlock others and shorten the whole; one at the side cannot.
Two measures, both linear in the edges: how near the longest path by time the longest path through a node
comes (the float of the critical path method, Kelley and Walker 1959), and the share of all bytes that come
from or go through a node, where each value splits evenly among its users.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]


def criticality(sources: Sequence[Sequence[int]], seconds: Sequence[float]) -> Floats:
    """For each node the longest path through it, as a share of the longest of all, (nodes,).

    `sources`: producers of each node, all before it. Where nothing takes time, nodes count instead.
    """
    weights = list(seconds) if any(seconds) else [1.0] * len(sources)
    before = [0.0] * len(sources)
    after = [0.0] * len(sources)
    for node, producers in enumerate(sources):
        before[node] = weights[node] + max((before[p] for p in producers), default=0.0)
    for node in reversed(range(len(sources))):
        after[node] += weights[node]
        for producer in sources[node]:
            after[producer] = max(after[producer], after[node])
    through = np.array(before) + np.array(after) - np.array(weights)
    return np.asarray(through / max(through.max(initial=0.0), 1e-12), dtype=np.float32)


def flow(sources: Sequence[Sequence[int]], nbytes: Sequence[float]) -> Floats:
    """For each node the share of the graph's bytes that lead to it or come of it, (nodes,)."""
    users = [0] * len(sources)
    for producers in sources:
        for producer in producers:
            users[producer] += 1
    down, up = list(map(float, nbytes)), list(map(float, nbytes))
    for node, producers in enumerate(sources):
        down[node] += sum(down[p] / users[p] for p in producers)
    for node in reversed(range(len(sources))):
        for producer in sources[node]:
            up[producer] += up[node] / len(sources[node])
    total = max(float(sum(nbytes)), 1.0)
    through = np.array(down) + np.array(up) - np.array(nbytes, dtype=float)
    return np.asarray(through / total, dtype=np.float32)


def depth(sources: Sequence[Sequence[int]]) -> Floats:
    """For each node how many edges the longest way to it has, as a share of the most, (nodes,)."""
    found = [0] * len(sources)
    for node, producers in enumerate(sources):
        found[node] = 1 + max((found[p] for p in producers), default=-1)
    array = np.array(found, dtype=np.float32)
    return np.asarray(array / max(array.max(initial=0.0), 1.0), dtype=np.float32)

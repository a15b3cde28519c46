"""One candidate as everything that a learned model may look at."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from passwright.features.graph_tensors import GraphTensors
from passwright.features.neighbourhood import Neighbourhood
from passwright.features.site import Row


@dataclass(frozen=True)
class Example:
    """A pattern, rows of the columns of `schema.SITE`, `GRAPH` and `DEVICE`, and the m nodes around it.

    `words`: what these nodes do, m. `nodes`: (m, `schema.NODE`). `roles`: (m, `schema.ROLE`). `edges`:
    producer and user, (2, f). `edge_features`: (f, `schema.EDGE`).
    """

    pattern: str
    site: Row
    graph: Row
    device: Row
    words: tuple[str, ...]
    nodes: NDArray[np.float32]
    roles: NDArray[np.float32]
    edges: NDArray[np.int64]
    edge_features: NDArray[np.float32]


def example(
    pattern: str, graph: GraphTensors, around: Neighbourhood, *, site: Row, whole: Row, device: Row
) -> Example:
    """`graph` is that before the step, `whole` its `schema.GRAPH` row."""
    return Example(
        pattern,
        site,
        whole,
        device,
        tuple(graph.words[place] for place in around.places.tolist()),
        graph.nodes[around.places],
        around.roles,
        around.edges,
        graph.edge_features[around.kept],
    )

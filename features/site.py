"""A candidate as a row of numbers: its match, and what a rehearsal of it changes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import fx

from passwright.features import schema
from passwright.features.facts import Fact, Sizes
from passwright.features.graph_tensors import GraphTensors, Taken
from passwright.passes.pattern import Candidate, Direction, Exactness, Match

Row = NDArray[np.float32]


class Cost(NamedTuple):
    """What an estimate says of a whole graph."""

    kernels: int
    taken: Taken

    @property
    def seconds(self) -> float:
        return sum(self.taken)


class Effect(NamedTuple):
    """What a rehearsal of a candidate, its clean-up included, did."""

    removed: Sequence[Fact]
    inserted: Sequence[Fact]
    before: Cost
    after: Cost
    #: log(before / after) of the estimates, and half of its 90 % interval.
    gain: float
    width: float


def site_row(
    candidate: Candidate, graph: GraphTensors, facts: Mapping[fx.Node, Fact], effect: Effect
) -> Row:
    """The columns of `schema.SITE`. `graph` and `facts` are of the graph before the step."""
    pattern, match = candidate.pattern, candidate.match
    matched = [graph.places[node] for node in match.nodes if node in graph.places]
    nbytes = [facts[node].nbytes for node in match.nodes if node in facts]
    anchor = graph.places.get(match.anchor.node)
    before, after = effect.before, effect.after
    saved = [was - is_now for was, is_now in zip(before.taken, after.taken, strict=True)]
    total = max(before.seconds, 1e-12)
    row = [
        float(getattr(pattern, "direction", None) is Direction.HORIZONTAL),
        float(pattern.exactness is Exactness.REASSOCIATING),
        float(pattern.exactness is Exactness.RELAXED),
        math.log1p(len(match.nodes)),
        math.log1p(_members(match)),
        math.log1p(sum(nbytes)),
        math.log1p(max(nbytes, default=0.0)),
        *(float(graph.column(n)[anchor]) if anchor is not None else 0.0 for n in _STRESS),
        *(float(graph.column(n)[matched].max()) if matched else 0.0 for n in _STRESS),
    ]
    for group in (effect.removed, effect.inserted):
        row += _counts(group)
    for group in (effect.removed, effect.inserted):
        row += _largest(fact.sizes for fact in group if fact.sizes is not None)
    for group in (effect.removed, effect.inserted):
        row.append(math.log1p(sum(fact.nbytes for fact in group)))
    row += [_signed(before.kernels - after.kernels), *(_signed(1e6 * part) for part in saved)]
    row += [*(part / total for part in saved), effect.gain, effect.width]
    return np.array(row, np.float32)


def graph_row(cost: Cost, nodes: int, *, training: bool, half: bool, tf32: bool) -> Row:
    """The columns of `schema.GRAPH`."""
    total = max(cost.seconds, 1e-12)
    flags = map(float, (training, half, tf32))
    sizes = (math.log1p(nodes), math.log1p(cost.kernels), math.log1p(1e6 * total))
    return np.array([*sizes, *(part / total for part in cost.taken), *flags], np.float32)


_STRESS = ("criticality", "flow")


def _members(match: Match) -> int:
    """How many members it says it has; else its largest number, which counts pairs, pieces or the like."""
    numbers = {name: n for name, n in match.parameters if isinstance(n, int) and n > 0}
    return numbers.get("members", max(numbers.values(), default=0))


def _counts(facts: Iterable[Fact]) -> list[float]:
    found = Counter(fact.kind for fact in facts)
    return [math.log1p(found[kind]) for kind in schema.KINDS]


def _largest(sizes: Iterable[Sizes]) -> list[float]:
    largest = max(sizes, key=lambda size: size.work, default=None)
    return [0.0] * len(schema.PRODUCT) if largest is None else [math.log1p(x) for x in largest]


def _signed(value: float) -> float:
    return math.copysign(math.log1p(abs(value)), value)

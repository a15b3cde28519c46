"""Boosted regression trees as plain arrays: what they say beside a network, without what fitted them.

Trees see a candidate's own figures alone, and not the graph around it. They err in other places than
networks do, so that the mean of both is better than either (Breiman, Stacked Regressions, 1996).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from passwright.features import schema
from passwright.features.example import Example
from passwright.scheduler.predictor import Floats

#: Features of the candidate, its graph and the device; the pattern's place among `Trees.patterns` follows.
COLUMNS = len(schema.SITE) + len(schema.GRAPH) + len(schema.DEVICE)
_ARRAYS = ("column", "bound", "left", "right", "value", "blank_left")


@dataclass(frozen=True)
class Forest:
    """The sum of many trees, whose nodes lie one after the other.

    Attributes:
        roots: of each tree the number of its first node.
        column: of each node, which column it asks. A node that is a leaf leads to itself.
        bound: what is not above it goes left.
        left, right: where to go on.
        value: of a leaf.
        blank_left: where a column that is not a number goes: left if not 0.
        base: what is added to the sum.
        depth: so many questions lead to a leaf at most.
    """

    roots: NDArray[np.int64]
    column: NDArray[np.int64]
    bound: Floats
    left: NDArray[np.int64]
    right: NDArray[np.int64]
    value: Floats
    blank_left: NDArray[np.int64]
    base: float
    depth: int

    def __call__(self, rows: Floats) -> Floats:
        """(k, columns) -> (k,)."""
        at = np.broadcast_to(self.roots, (len(rows), len(self.roots)))
        places = np.arange(len(rows))[:, None]
        for _ in range(self.depth):
            asked = rows[places, self.column[at]]
            blank = np.isnan(asked)
            goes_left = np.where(blank, self.blank_left[at] != 0, asked <= self.bound[at])
            at = np.where(goes_left, self.left[at], self.right[at])
        found: Floats = self.value[at].sum(axis=1) + self.base
        return found

    def tensors(self) -> dict[str, Tensor]:
        """All of it, for a file."""
        arrays = {name: torch.from_numpy(getattr(self, name).copy()) for name in _ARRAYS}
        size = torch.tensor([self.base, self.depth], dtype=torch.float64)
        return {**arrays, "roots": torch.from_numpy(self.roots.copy()), "size": size}

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor]) -> Forest:
        """Of what `tensors` gave. Raises KeyError where something is missing, or leads nowhere."""
        found = {name: tensors[name].numpy() for name in (*_ARRAYS, "roots")}
        base, depth = tensors["size"].tolist()
        forest = cls(**found, base=base, depth=int(depth))
        nodes = len(forest.value)
        for name, most in (
            ("left", nodes),
            ("right", nodes),
            ("roots", nodes),
            ("column", COLUMNS + 1),
        ):
            values = found[name]
            if len(values) and not (values.min() >= 0 and values.max() < most):
                raise KeyError(f"trees whose {name} is out of range")
        return forest


@dataclass(frozen=True)
class Trees:
    """Forests for the gain of a step, and for what the best continuation from it gains.

    `patterns` are in the order of what they gain on average, so that a tree can part them by one bound
    (Fisher 1958); one that is not among them is no number.
    """

    patterns: tuple[str, ...]
    gain: Forest
    to_go: Forest

    def means(self, examples: Sequence[Example]) -> Floats:
        """(k, 2): gain, and gain-to-go."""
        rows = rows_of(examples, self.patterns)
        return np.column_stack([self.gain(rows), self.to_go(rows)])

    def tensors(self) -> dict[str, Tensor]:
        """Of both forests, for a file."""
        return {
            f"{head}.{name}": tensor
            for head in ("gain", "to_go")
            for name, tensor in getattr(self, head).tensors().items()
        }

    @classmethod
    def of(cls, patterns: Sequence[str], tensors: Mapping[str, Tensor]) -> Trees:
        """Of what `tensors` gave; raises as `Forest.of` does."""
        parts = {
            head: {n.removeprefix(f"{head}."): t for n, t in tensors.items() if n.startswith(head)}
            for head in ("gain", "to_go")
        }
        return cls(tuple(patterns), Forest.of(parts["gain"]), Forest.of(parts["to_go"]))


def rows_of(examples: Sequence[Example], patterns: Sequence[str]) -> Floats:
    """(k, COLUMNS + 1): features of each candidate, and the place of its pattern."""
    places = {name: float(number) for number, name in enumerate(patterns)}
    figures = [np.concatenate([e.site, e.graph, e.device]) for e in examples]
    known = [places.get(example.pattern, np.nan) for example in examples]
    return np.column_stack([np.array(figures, np.float64).reshape(-1, COLUMNS), known])

"""Which candidates are like something that was measured, and which are how far from it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from passwright.features import schema
from passwright.features.example import Example

#: A column of `schema.SITE` may lie outside of what was seen by this part of its range and still be like
#: it; by the whole range, and nothing is known any more.
_LIKE, _FAR = 0.1, 1.0


class Strange(NamedTuple):
    """Why nothing like a candidate was measured, or ""; and whether it is too far from all that was."""

    why: str
    far: bool


@dataclass(frozen=True)
class Familiar:
    """The patterns of what was learned from, and the bounds of each column of `schema.SITE`; without bounds
    nothing is known of the columns."""

    patterns: frozenset[str]
    lowest: tuple[float, ...] = ()
    highest: tuple[float, ...] = ()

    @classmethod
    def of(cls, examples: Sequence[Example]) -> Familiar:
        """Of no example, nothing is familiar."""
        if not examples:
            return cls(frozenset())
        rows = np.stack([example.site for example in examples]).astype(np.float64)
        low, high = rows.min(axis=0), rows.max(axis=0)
        patterns = frozenset(example.pattern for example in examples)
        return cls(patterns, tuple(low.tolist()), tuple(high.tolist()))

    def strange(self, examples: Iterable[Example]) -> list[Strange]:
        """Of each candidate, in order."""
        examples = list(examples)
        if not examples or not self.lowest:
            return [self._named(example, 0.0, 0) for example in examples]
        low, high = np.array(self.lowest), np.array(self.highest)
        rows = np.stack([example.site for example in examples]).astype(np.float64)
        # By how much of a column's range it lies outside; a hair is rounding.
        outside = np.maximum(low - rows, rows - high) - 1e-6
        beyond = outside / np.maximum(high - low, 1e-6)
        worst = beyond.argmax(axis=1)
        parts = beyond.max(axis=1).tolist()
        return [
            self._named(example, part, column)
            for example, part, column in zip(examples, parts, worst.tolist(), strict=True)
        ]

    def _named(self, example: Example, beyond: float, column: int) -> Strange:
        if beyond > _LIKE:
            return Strange(f"{schema.SITE[column]} is beyond what was measured", beyond > _FAR)
        if example.pattern not in self.patterns:
            return Strange(f"pattern {example.pattern} was never measured", far=False)
        return Strange("", far=False)

"""Who is learned from, and who is tested on: whole families, so that a test asks of what was never seen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Protocol, TypeVar

from passwright.passes.address import digest


class _OfFamily(Protocol):
    @property
    def family(self) -> str: ...


Sampled = TypeVar("Sampled", bound=_OfFamily)


def folds(families: Sequence[str], count: int) -> list[frozenset[str]]:
    """The families of workloads (one for each, so that large ones weigh more) in so many parts of about
    as many workloads. Which go together depends on their names alone."""
    sizes = Counter(families)
    parts: list[list[str]] = [[] for _ in range(min(count, len(sizes)))]
    weights = [0] * len(parts)
    for family in sorted(sizes, key=lambda name: (-sizes[name], digest("fold", name))):
        lightest = weights.index(min(weights))
        parts[lightest].append(family)
        weights[lightest] += sizes[family]
    return [frozenset(part) for part in parts]


def is_sealed(family: str) -> bool:
    """One family in sixteen, by its name alone: no model learns from these, so that they can tell whether a
    new one is better than the one in use."""
    return digest("sealed", family).startswith("1")


def open_ones(samples: Sequence[Sampled]) -> list[Sampled]:
    """Of families that are not sealed."""
    return [one for one in samples if not is_sealed(one.family)]

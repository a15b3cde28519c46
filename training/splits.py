"""Who is learned from, and who is tested on: whole families, so that a test asks of what was never seen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from passwright.passes.address import digest


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

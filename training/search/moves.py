"""Neighbours of a sequence: one label more, one less, one elsewhere, two exchanged, one replaced."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum

import numpy as np

from passwright.training.search.space import Labels, Space


class Kind(StrEnum):
    """What was done to a sequence."""

    INSERT = "insert"
    REMOVE = "remove"
    MOVE = "move"
    SWAP = "swap"
    REPLACE = "replace"


def neighbours(sequence: Labels, space: Space) -> Iterator[tuple[Kind, Labels]]:
    """All sequences of the space that are one move away, in a fixed order.

    Some come twice, by different moves: exchanging two that stand side by side moves one of them.
    """
    for kind, found in _moves(sequence, space.alphabet):
        if found != sequence and space.holds(found):
            yield kind, found


def _moves(sequence: Labels, alphabet: Labels) -> Iterator[tuple[Kind, Labels]]:
    count = len(sequence)
    for at in range(count + 1):
        for label in alphabet:
            yield Kind.INSERT, (*sequence[:at], label, *sequence[at:])
    for at in range(count):
        rest = (*sequence[:at], *sequence[at + 1 :])
        yield Kind.REMOVE, rest
        for to in range(count):
            yield Kind.MOVE, (*rest[:to], sequence[at], *rest[to:])
        for other in range(at + 1, count):
            swapped = list(sequence)
            swapped[at], swapped[other] = swapped[other], swapped[at]
            yield Kind.SWAP, tuple(swapped)
        for label in alphabet:
            yield Kind.REPLACE, (*sequence[:at], label, *sequence[at + 1 :])


def random_sequence(
    space: Space, rng: np.random.Generator, gains: Mapping[str, float] | None = None
) -> Labels:
    """A sequence of random length; what is predicted to gain more is likelier to be in it, and earlier.

    `gains` are predicted log gains of single labels. Ranks are perturbed by Gumbel noise, which draws
    without replacement with the odds of a softmax (Plackett-Luce); without gains all are alike.
    """
    pool = np.repeat(np.arange(len(space.alphabet)), space.repeats)
    weights = np.array([(gains or {}).get(label, 0.0) for label in space.alphabet])[pool]
    spread = float(np.std(weights)) or 1.0
    order = np.argsort(-(weights / spread + rng.gumbel(size=len(pool))))
    length = int(rng.integers(1, min(space.slots, len(pool)) + 1))
    return tuple(space.alphabet[pool[at]] for at in order[:length])

"""What a search is about, and what it finds: the interface to whoever has sequences measured."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Protocol

from passwright.training.search.space import Labels

#: Why a search ended.
TRIALS, TIME_LIMIT, EXHAUSTED, STOPPED = "trials", "time limit", "exhausted", "stopped"


class Problem(Protocol):
    """What is searched. All gains are log(time of doing nothing / time of the sequence)."""

    @property
    def alphabet(self) -> Labels:
        """Labels of what a sequence may be made of."""

    @property
    def starts(self) -> Sequence[Labels]:
        """Measured first: doing nothing, stock orders, what a gain model would choose."""

    def score(self, sequence: Labels) -> float | None:
        """The gain that a model predicts; None where it cannot tell."""

    def commute(self, one: str, other: str) -> bool:
        """Whether two steps side by side give the same in either order."""

    def result(self, sequence: Labels) -> Hashable | None:
        """The same for sequences that come to the same; None where only measuring can tell."""

    def effective(self, sequence: Labels) -> Labels:
        """The sequence without labels that do nothing where they stand, as far as that can be told."""

    def measure(self, sequences: Sequence[Labels]) -> Sequence[float | None]:
        """Gains, in order; None where compiling failed, results were wrong, or it took too long."""

    def confirm(self, sequences: Sequence[Labels]) -> Sequence[float | None]:
        """Gains measured anew, with more care, against doing nothing in the same run."""


@dataclass(frozen=True)
class Outcome:
    """How a search stands, over all workers and calls on this storage."""

    #: The best confirmed sequence, () where doing nothing is; None while nothing was confirmed.
    best: Labels | None
    #: Its gain as measured again.
    gain: float
    #: What was measured again: the sequence, its gain in the search, its gain now.
    confirmed: tuple[tuple[Labels, float, float | None], ...]
    #: Measured sequences, best first. The gains of the best are too good: they were chosen for them.
    ranking: tuple[tuple[Labels, float], ...]
    #: Trials that count, how many of their sequences failed, and proposals that were known already.
    trials: int
    failed: int
    copies: int
    why: str
    seconds: float

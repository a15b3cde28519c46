"""The interface of gain models: how much faster would the graph be after each candidate?"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from passwright.passes.matching import Rewriter
from passwright.passes.pattern import Candidate

#: So many independent errors are known to cancel out: of the plans that were measured and learned from,
#: less than one in a hundred has more steps (a test counts them).
CANCELLING = 24
#: Why a candidate is refused unseen.
OUT_OF_TIME = "not looked at: time budget reached"


@dataclass(frozen=True)
class Interval:
    """A predicted log(time before / time after) with a 90 % interval."""

    mean: float
    lower: float
    upper: float


def together(gains: Iterable[Interval], *, independent: bool) -> Interval:
    """Of steps one after the other: logs add up along a sequence.

    Errors that are `independent` partly cancel out, so that widths add up by squares; those with one cause,
    as a wrong figure of the device, add up. So do those of what comes after the first `CANCELLING` steps: a
    hundred like steps may all be wrong in the same way.
    """
    gains = tuple(gains)
    mean = sum(gain.mean for gain in gains)
    below = [gain.mean - gain.lower for gain in gains]
    above = [gain.upper - gain.mean for gain in gains]
    if independent:
        first = slice(CANCELLING)
        rest = slice(CANCELLING, None)
        below = [math.hypot(*below[first]), *below[rest]]
        above = [math.hypot(*above[first]), *above[rest]]
    return Interval(mean, mean - sum(below), mean + sum(above))


@dataclass(frozen=True)
class Prediction:
    """What a model says of one candidate."""

    #: Of this step alone.
    gain: Interval
    #: Of the best continuation that starts with this step. At least as informative as `gain`: a step
    #: that loses alone may open the way to one that wins.
    to_go: Interval
    #: Anchor and key of the follow-ups that reach `to_go`, where the model knows them.
    path: tuple[tuple[str, str], ...] = ()
    #: Why the candidate cannot be done after all, or "".
    refused: str = ""
    #: Why nothing like it was ever measured, or "": the interval is then wider for it.
    strange: str = ""


class GainModel(ABC):
    """Predicts gains for all candidates of a graph in one batched call.

    Implementations must be deterministic: equal graphs, candidates and device give equal numbers.
    """

    #: Errors of single steps have causes of their own (`together`).
    independent = False
    #: How much of the way from a plan's mean gain down to its lower bound is taken off before it counts as
    #: a gain; of 1, the lower bound counts.
    caution = 1.0

    @property
    @abstractmethod
    def version(self) -> str:
        """Changes whenever predictions may change; part of every plan's key."""

    def stop_when(self, late: Callable[[], bool]) -> None:  # noqa: B027 (not every model asks)
        """From when `late()` holds, candidates may be refused unseen, with OUT_OF_TIME.

        For a model that works through candidates one by one; one that is quick need not ask.
        """

    @abstractmethod
    def predict(
        self,
        rewriter: Rewriter,
        candidates: Sequence[Candidate],
        *,
        training: bool,
        ahead: bool = True,
    ) -> list[Prediction]:
        """One prediction a candidate, in order. Leaves the graph as it was.

        With `ahead=False` only the gain of each step itself is asked for, and it is wanted at any
        time: the step was chosen already.
        """

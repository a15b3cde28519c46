"""Exhaustive greedy search over macros, by measured time: policy only.

It starts from nothing, from the planner's plan and from everything at once. Then it tries all
neighbours of the best state (one macro more, one less), and of the first two starts, and moves on when
one is at least 1 % faster, until no neighbour is. Neighbours are tried in the order of what they are
predicted to take, which matters where the time does not suffice for all. Best states are tried with
combo kernels too.

What it asks for is done elsewhere, several things at a time: `next` gives a question, `tell` and
`told_neighbours` take the answers, in any order.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from passwright.training.macros import NOTHING, PLANNED, State

#: A state must be faster by this factor to take the place of the best.
BETTER = 1.01
#: How the reason of a trial starts whose results were wrong.
WRONG = "wrong: "
#: So many of the fastest states are tried with combo kernels at the end.
_WITH_COMBO = 3


@dataclass(frozen=True)
class Proposal:
    """A state worth a try: the hash of the graphs that it makes, and what they are predicted to take."""

    state: State
    digest: str
    predicted: float


@dataclass(frozen=True)
class Try:
    """Compile and measure the state, with combo kernels or without."""

    proposal: Proposal
    combo: bool = False


@dataclass(frozen=True)
class Expand:
    """Propose the neighbours of the state."""

    proposal: Proposal


@dataclass(frozen=True)
class Trial:
    """What was found of one state; `seconds` is None where it failed, and `why` says how."""

    state: str
    combo: bool
    digest: str
    predicted: float
    seconds: float | None = None
    why: str = ""
    #: Raw times, one figure a block, as measured.
    blocks: tuple[float, ...] = ()
    method: str = ""
    kernels: int | None = None
    compile_seconds: float | None = None
    steps: int = 0

    @property
    def proposal(self) -> Proposal:
        return Proposal(State.parse(self.state), self.digest, self.predicted)

    @property
    def key(self) -> tuple[str, bool]:
        return self.digest, self.combo

    @property
    def is_wrong(self) -> bool:
        """Its results were not those of the model."""
        return self.why.startswith(WRONG)


class Greedy:
    """One search. `known` are trials of an earlier run, which are not made again."""

    def __init__(self, starts: Sequence[Proposal], known: Iterable[Trial] = ()) -> None:
        self.trials: dict[tuple[str, bool], Trial] = {}
        self._queue: list[tuple[float, int, Proposal, State | None]] = []
        self._asked: set[tuple[str, bool]] = set()
        self._expanded: set[str] = set()
        self._running = 0
        self._proposed = 0
        self._cut = False
        #: No neighbour was left that could be better.
        self.exhausted = False
        self._best: Trial | None = None
        #: How often a faster state took the place of the best.
        self.rounds = 0
        self._starts = list(starts)
        self._combo: list[Proposal] = []
        for trial in known:
            self._asked.add(trial.key)
            self._take(trial)

    # ---- asking

    def next(self) -> Try | Expand | None:
        """What to do next; None if there is nothing until an answer comes, or `done`."""
        found = self._start() or self._with_combo() or self._expansion() or self._neighbour()
        if found is None and not self._running:
            found = self._last_combo()
        if found is not None:
            self._running += 1
        return found

    @property
    def done(self) -> bool:
        """Every answer has come, and there is nothing more to ask."""
        if self._running:
            return False
        waiting = self.next()
        if waiting is None:
            self.exhausted = not self._cut
            return True
        self._give_back(waiting)
        return False

    def _give_back(self, asked: Try | Expand) -> None:
        """The question was not put to anybody after all; it will be asked again."""
        self._running -= 1
        if isinstance(asked, Expand):
            self._expanded.discard(asked.proposal.digest)
            return
        self._asked.discard((asked.proposal.digest, asked.combo))
        (self._combo if asked.combo else self._starts).insert(0, asked.proposal)

    def _start(self) -> Try | None:
        while self._starts:
            asked = self._ask(self._starts.pop(0))
            if asked is not None:
                return asked
        return None

    def _with_combo(self) -> Try | None:
        while self._combo:
            asked = self._ask(self._combo.pop(0), combo=True)
            if asked is not None:
                return asked
        return None

    def _expansion(self) -> Expand | None:
        """The neighbours of the best state, of nothing and of the plan, once each."""
        for trial in (self._best, *self._roots()):
            if trial is not None and trial.digest not in self._expanded:
                self._expanded.add(trial.digest)
                return Expand(trial.proposal)
        return None

    def _neighbour(self) -> Try | None:
        living = [NOTHING, PLANNED, self._best and State.parse(self._best.state)]
        # Of a former best, what is not faster than the new one would have to be tried for nothing.
        self._queue = sorted(item for item in self._queue if item[3] in living)
        while self._queue:
            asked = self._ask(self._queue.pop(0)[2])
            if asked is not None:
                return asked
        return None

    def _last_combo(self) -> Try | None:
        for trial in self.ranking(combo=False)[:_WITH_COMBO]:
            asked = self._ask(trial.proposal, combo=True)
            if asked is not None:
                return asked
        return None

    def _ask(self, proposal: Proposal, *, combo: bool = False) -> Try | None:
        if (proposal.digest, combo) in self._asked:
            return None
        self._asked.add((proposal.digest, combo))
        return Try(proposal, combo)

    # ---- answers

    def tell(self, trial: Trial) -> None:
        """The answer to a Try."""
        self._running -= 1
        self._take(trial)

    def told_neighbours(
        self, of: Proposal, found: Sequence[Proposal], *, cut: bool = False
    ) -> None:
        """The answer to an Expand; `cut` where these are not all."""
        self._running -= 1
        self._cut |= cut
        measured = self.trials.get((of.digest, False))
        # The prediction of the neighbour, set right by how far off that of the state was.
        seconds = measured.seconds if measured else None
        scale = seconds / of.predicted if seconds and of.predicted else 1.0
        for proposal in found:
            self._proposed += 1
            guess = proposal.predicted * scale
            self._queue.append((guess, self._proposed, proposal, of.state))

    def _take(self, trial: Trial) -> None:
        self.trials[trial.key] = trial
        if trial.seconds is None or trial.combo:
            return
        if State.parse(trial.state) == NOTHING:
            self._combo.append(trial.proposal)
        best = self._best.seconds if self._best and self._best.seconds else math.inf
        if trial.seconds * BETTER <= best:
            self.rounds += self._best is not None
            self._best = trial
            self._combo.insert(0, trial.proposal)

    def reject(self, state: State, why: str) -> None:
        """The state turned out to be wrong: it counts as failed, with combo kernels and without."""
        for key, trial in self.trials.items():
            if trial.state == state.label:
                self.trials[key] = replace(trial, seconds=None, why=f"{WRONG}{why}")
        self._best = next(iter(self.ranking(combo=False)), None)

    # ---- results

    def _roots(self) -> list[Trial]:
        states = {trial.state: trial for trial in self.trials.values() if not trial.combo}
        found = (states.get(root.label) for root in (NOTHING, PLANNED))
        return [trial for trial in found if trial is not None and trial.seconds is not None]

    def ranking(self, *, combo: bool) -> list[Trial]:
        """The trials that were measured, fastest first."""
        found = [t for t in self.trials.values() if t.combo == combo and t.seconds is not None]
        return sorted(found, key=lambda trial: (trial.seconds or 0.0, trial.state))

    def best(self, *, combo: bool) -> Trial | None:
        """The best state. Without combo kernels, one that is less than 1 % faster than another does
        not count as better."""
        ranking = self.ranking(combo=combo)
        return (ranking[0] if ranking else None) if combo else self._best

    @property
    def nothing(self) -> Trial | None:
        """Default compile, in this search's own figures."""
        return next((t for t in self._roots() if t.state == NOTHING.label), None)

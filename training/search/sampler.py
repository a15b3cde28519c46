"""The proposer: a local search over sequences as a sampler of Optuna, warm-started by a gain model.

It goes from the best measured sequences to their neighbours (`moves.py`). Which neighbour is worth a
measurement is what the gain model says of it, corrected by what was measured (`surrogate.py`). Now and
then it takes a neighbour at random, or starts from a random sequence.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from optuna.samplers import BaseSampler

from passwright.training.search.canonical import Canon
from passwright.training.search.ledger import CLAIMED, Ledger, is_enqueued, read
from passwright.training.search.moves import neighbours, random_sequence
from passwright.training.search.space import NONE, Labels, Space
from passwright.training.search.surrogate import Array, Surrogate

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.study import Study
    from optuna.trial import FrozenTrial

#: Predicted log gain of a sequence over doing nothing; None where it is not known.
Score = Callable[[Labels], float | None]

#: Random sequences for a restart, and neighbours that are looked at for one proposal.
_RANDOM, _NEIGHBOURS = 64, 1200
#: So many of them are gone on from, once so many sequences were measured that they tell which to take.
_BEAM, _ENOUGH = 8, 10
#: So many neighbours are put to the gain model, which may have to rewrite graphs for it.
_SCORED = 16
#: Standard deviations added to a predicted gain: what is uncertain is worth a try.
_OPTIMISM = 1.0
#: How often a claim that another worker has made as well is given up for another.
_CLAIMS = 16


class LocalSearchSampler(BaseSampler):
    """Proposes a sequence of `space` that nobody has measured or is measuring.

    Deterministic by `seed`, the trial's number and the trials before it, so a resumed study goes on as
    it would have. Trials that run count as measured where they are, so that several workers spread out;
    a claim in the storage keeps two from the same sequence. Failed and pruned trials count as the worst
    that was measured, and are not repeated. Once all is measured that it can find, it returns what
    is known.

    `score` is a gain model's prediction and `order` its predictions for single labels, by which
    neighbours are put in order before the few best are scored. `noise` is the standard deviation of a
    measurement in log gain; the best are chosen by smoothed values, so a lucky one does not draw
    the search to itself. `elite` sequences are gone from; with the odds `epsilon` a neighbour is taken
    at random, with `restarts` a random sequence, and with `ahead` neighbours of neighbours are looked at
    as well: more is promised among so many, and more of that is error.
    """

    def __init__(
        self,
        space: Space,
        *,
        seed: int = 0,
        canon: Canon | None = None,
        score: Score | None = None,
        order: Mapping[str, float] | None = None,
        noise: float = 0.01,
        elite: int = 3,
        epsilon: float = 0.05,
        restarts: float = 0.05,
        ahead: float = 0.5,
    ) -> None:
        self.space = space
        self.canon = canon or Canon()
        self.epsilon = epsilon
        self.restarts = restarts
        self.ahead = ahead
        self.elite = elite
        self._seed = seed
        self._score = score
        self._order = dict(order or {})
        self._scores: dict[Labels, float] = {}
        self._surrogate = Surrogate(space.alphabet, noise)

    # ---- what Optuna asks for

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        return self.space.distributions()

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        if is_enqueued(trial):
            return {}
        rng = np.random.default_rng([self._seed, trial.number])
        for attempt in range(_CLAIMS):
            sequence = self.propose(read(study, self.space, self.canon), rng, attempt)
            # As Optuna's own samplers do: there is no public way to write to a trial from here.
            study._storage.set_trial_user_attr(trial._trial_id, CLAIMED, list(sequence))
            ledger = read(study, self.space, self.canon)
            if not ledger.others(self.canon(sequence), trial.number):
                break
            # Who claimed the same may have given way as well; not both should come back at once.
            time.sleep(float(rng.uniform(0.0, 0.02)))
        return self.space.encode(sequence)

    def sample_independent(
        self,
        study: Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """Only for a parameter that is none of the space's slots, or of a trial enqueued in part."""
        return NONE

    # ---- the search

    def propose(self, ledger: Ledger, rng: np.random.Generator, attempt: int = 0) -> Labels:
        """A sequence that is neither known nor claimed, if one can be found."""
        at_random, restart, ahead = rng.random(3) < (self.epsilon, self.restarts, self.ahead)
        for pool in self._pools(ledger, rng, restart=bool(restart), ahead=bool(ahead)):
            if at_random:
                at = int(rng.integers(len(pool)))
                fresh = self._fresh([*pool[at:], *pool[:at]], ledger, 1)
            else:
                fresh = self._by_promise(pool, ledger)
            if fresh:
                # A second attempt means that another worker came to the same conclusion.
                return fresh[min(int(rng.integers(3 * attempt + 1)), len(fresh) - 1)]
        return next((sequence for sequence, _ in ledger.ranking()), ())

    def _pools(
        self, ledger: Ledger, rng: np.random.Generator, *, restart: bool, ahead: bool
    ) -> Iterator[list[Labels]]:
        """Where to look, one after the other until something new is found."""
        if not restart:
            near = self._around(self._best(ledger), ledger, rng)
            yield from filter(None, [self._beyond(near, ledger, rng) if ahead else near])
        yield from filter(None, [self._anywhere(ledger, rng)])
        everything = [sequence for sequence, _ in ledger.ranking()]
        yield from filter(None, [self._around(everything, ledger, rng)])

    def _best(self, ledger: Ledger) -> list[Labels]:
        """The elite, by smoothed value; before anything is measured, what others are measuring."""
        known = list(ledger.values)
        if not known:
            return [*ledger.claims, ()][: self.elite]
        mean, _ = self._predict(ledger, known, self._by_order)
        order = np.argsort(-mean, kind="stable")
        return [known[at] for at in order[: self.elite]]

    def _around(
        self, parents: Sequence[Labels], ledger: Ledger, rng: np.random.Generator
    ) -> list[Labels]:
        """New neighbours, each once."""
        found: dict[Labels, None] = {}
        for parent in parents:
            for _, sequence in neighbours(parent, self.space):
                found[self.canon.form(sequence)] = None
        return self._thin(self._new(found, ledger), rng)

    def _beyond(self, near: list[Labels], ledger: Ledger, rng: np.random.Generator) -> list[Labels]:
        """Neighbours, and neighbours of the most promising of them: often two moves pay together, and
        neither alone."""
        if not near or len(ledger.values) < _ENOUGH:
            return near
        best = self._sorted(near, ledger, self._by_order)[:_BEAM]
        return list(dict.fromkeys([*near, *self._around(best, ledger, rng)]))

    def _anywhere(self, ledger: Ledger, rng: np.random.Generator) -> list[Labels]:
        drawn = (random_sequence(self.space, rng, self._order) for _ in range(_RANDOM))
        return self._new(dict.fromkeys(self.canon.form(sequence) for sequence in drawn), ledger)

    def _new(self, found: Iterable[Labels], ledger: Ledger) -> list[Labels]:
        return [s for s in found if not ledger.is_known(s) and s not in ledger.claims]

    def _thin(self, pool: list[Labels], rng: np.random.Generator) -> list[Labels]:
        if len(pool) <= _NEIGHBOURS:
            return pool
        kept = rng.choice(len(pool), _NEIGHBOURS, replace=False)
        return [pool[at] for at in sorted(kept)]

    # ---- what is promising

    def _by_promise(self, pool: list[Labels], ledger: Ledger) -> list[Labels]:
        """The best of the pool, best first: by the order of single labels, then by the gain model."""
        found = self._fresh(self._sorted(pool, ledger, self._by_order), ledger, _SCORED)
        return self._sorted(found, ledger, self._by_score) if found and self._score else found

    def _fresh(self, ordered: Sequence[Labels], ledger: Ledger, most: int) -> list[Labels]:
        """The first so many that come to something new, each to something else. What a sequence comes to
        may cost time to find out, so it is asked of no more than that takes."""
        found: dict[Hashable, Labels] = {}
        for sequence in ordered:
            if len(found) == most:
                break
            if self._new([self.canon.find(sequence)], ledger):
                found.setdefault(self.canon.key(sequence), self.canon.effective(sequence))
        return list(found.values())

    def _sorted(
        self, pool: list[Labels], ledger: Ledger, base: Callable[[Labels], float]
    ) -> list[Labels]:
        mean, deviation = self._predict(ledger, pool, base)
        order = np.argsort(-(mean + _OPTIMISM * deviation), kind="stable")
        return [pool[at] for at in order]

    def _predict(
        self, ledger: Ledger, wanted: Sequence[Labels], base: Callable[[Labels], float]
    ) -> tuple[Array, Array]:
        values = {sequence: ledger.value(sequence) or 0.0 for sequence in ledger.values}
        worst = min([0.0, *values.values()])
        values |= {sequence: worst for sequence in sorted(ledger.failed) if sequence not in values}
        running = [sequence for sequence in ledger.claims if sequence not in values]
        known = [*values, *running]
        return self._surrogate.predict(
            known,
            [*values.values(), *[0.0] * len(running)],
            [base(sequence) for sequence in known],
            wanted,
            [base(sequence) for sequence in wanted],
            running,
        )

    def _by_order(self, sequence: Labels) -> float:
        return sum(self._order.get(label, 0.0) for label in sequence)

    def _by_score(self, sequence: Labels) -> float:
        found = self._scores.get(sequence)
        if found is None:
            said = self._score(sequence) if self._score else None
            found = self._by_order(sequence) if said is None else said
            self._scores[sequence] = found
        return found

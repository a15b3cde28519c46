"""Runs a search: asks a sampler for sequences, has them measured, and keeps every trial in a study.

The same call on the same storage goes on where it ended, also after Ctrl-C or a crash, and several
workers may run it at once. What is reported as best was measured again.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import optuna
from optuna.trial import TrialState

from passwright.training.search.canonical import Canon
from passwright.training.search.ledger import (
    COPY_OF,
    IMPORTED,
    LOST,
    MEASURING,
    WORKER,
    Ledger,
    is_enqueued,
    read,
)
from passwright.training.search.problem import (
    EXHAUSTED,
    STOPPED,
    TIME_LIMIT,
    TRIALS,
    Outcome,
    Problem,
)
from passwright.training.search.sampler import LocalSearchSampler
from passwright.training.search.space import Labels, Space
from passwright.training.search.storage import Worker, open_study, release, release_abandoned

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler
    from optuna.storages import BaseStorage
    from optuna.study import Study
    from optuna.trial import Trial

#: So many proposals in a row that were known already: there is nothing new to find.
_KNOWN_IN_A_ROW = 50
#: Seconds that an enqueued trial waits for another worker to decide about the same sequence.
_WAIT, _POLL = 10.0, 0.02

SAMPLERS = ("local", "tpe", "random")


def search(
    problem: Problem,
    *,
    trials: int,
    storage: str | BaseStorage = "",
    seed: int = 0,
    sampler: str = "local",
    time_limit: float | Callable[[], float] | None = None,
    name: str = "passwright",
    slots: int = 12,
    repeats: int = 1,
    batch: int = 1,
    confirm: int = 3,
    min_gain: float = 0.01,
    noise: float = 0.01,
    known: Mapping[Labels, float | None] | None = None,
    begun: Sequence[tuple[Labels, float | None]] = (),
    told: Callable[[Labels, float | None], None] | None = None,
) -> Outcome:
    """Measures `trials` sequences in all, doing nothing among them, and confirms the best.

    `storage` is "" for memory, a path for a journal file (one host) or `postgresql://...` (several);
    `sampler` one of `SAMPLERS`; `time_limit` in seconds, for this call, asked before each measurement; or
    a function that says how many are left.
    `slots` and `repeats` bound a sequence (`space.py`). `batch` sequences are measured by one call.
    The `confirm` best are measured again (0: none, as for a worker that only helps); what gains
    less than `min_gain` is not better than doing nothing. `noise` is the standard deviation of one measured
    gain. `known` are earlier measurements, None for what failed; they are not trials. `begun` are the
    trials that a study had before, where its storage is gone. `told` hears each further result. Workers on
    one storage may go over `trials` by one each.

    Raises ValueError for a sequence that is not in the space, an unknown sampler, or a storage that
    holds a study over another space. What `measure` raises ends the search; its sequences wait.
    Ctrl-C does not raise: what was measured is kept, and the outcome says `STOPPED`.
    """
    start = time.monotonic()
    space = Space(tuple(problem.alphabet), slots, repeats)
    if sampler not in SAMPLERS:
        raise ValueError(f"sampler {sampler!r} is none of {', '.join(SAMPLERS)}")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = open_study(storage, name, space)
    canon = Canon(problem.commute, problem.result, problem.effective)
    run = _Run(study, problem, space, canon, seed, sampler, noise, told)
    confirmed: list[tuple[Labels, float, float | None]] = []
    try:
        with Worker() as worker:
            release_abandoned(study, space)
            run.take_up(begun)
            run.import_known(known or {})
            run.enqueue_starts()
            why = run.go(worker.name, trials, batch, _clock(time_limit, start))
        best = [item for item in run.read().ranking() if item[0] and item[1] > 0.0][:confirm]
        again = problem.confirm([sequence for sequence, _ in best]) if best else []
        confirmed = [(*item, now) for item, now in zip(best, again, strict=True)]
    except KeyboardInterrupt:
        why = STOPPED
    return _outcome(run.read(), confirmed, confirm > 0 and why != STOPPED, min_gain, why, start)


def _clock(limit: float | Callable[[], float] | None, start: float) -> Callable[[], float]:
    """Says how many seconds are left."""
    if callable(limit):
        return limit
    deadline = math.inf if limit is None else start + limit
    return lambda: deadline - time.monotonic()


def _outcome(
    ledger: Ledger,
    confirmed: list[tuple[Labels, float, float | None]],
    is_confirmed: bool,
    min_gain: float,
    why: str,
    start: float,
) -> Outcome:
    best: Labels | None = () if is_confirmed else None
    gain = 0.0
    for sequence, _, now in confirmed:
        if is_confirmed and now is not None and now >= max(min_gain, gain):
            best, gain = sequence, now
    return Outcome(
        best,
        gain,
        tuple(confirmed),
        tuple(ledger.ranking()),
        trials=ledger.finished,
        failed=len(ledger.failed),
        copies=ledger.copies,
        why=why,
        seconds=time.monotonic() - start,
    )


class _Run:
    """One worker's part."""

    def __init__(
        self,
        study: Study,
        problem: Problem,
        space: Space,
        canon: Canon,
        seed: int,
        sampler: str,
        noise: float,
        told: Callable[[Labels, float | None], None] | None,
    ) -> None:
        self.study = study
        self.problem = problem
        self.space = space
        self.canon = canon
        self._seed = seed
        self._told = told
        self._distributions = space.distributions()
        self._kind = sampler
        self._local: LocalSearchSampler | None = None
        if sampler == "local":
            single = {label: problem.score((label,)) for label in space.alphabet}
            order = {label: gain for label, gain in single.items() if gain is not None}
            self._local = LocalSearchSampler(
                space, seed=seed, canon=canon, score=problem.score, order=order, noise=noise
            )

    def read(self) -> Ledger:
        return read(self.study, self.space, self.canon)

    # ---- what is there before

    def take_up(self, begun: Sequence[tuple[Labels, float | None]]) -> None:
        """Adds trials that were made before, unless the study has any."""
        if not self.study.get_trials(deepcopy=False):
            for sequence, gain in begun:
                self._add(sequence, gain, {})

    def import_known(self, known: Mapping[Labels, float | None]) -> None:
        """Adds old measurements that are not there yet."""
        ledger = self.read()
        for sequence, gain in known.items():
            if not ledger.is_known(self.canon(sequence)):
                self._add(sequence, gain, {IMPORTED: True})

    def _add(self, sequence: Labels, gain: float | None, marks: dict[str, Any]) -> None:
        self.study.add_trial(
            optuna.trial.create_trial(
                params=dict(self.space.encode(sequence)),
                distributions=self._distributions,
                value=gain,
                state=TrialState.FAIL if gain is None else TrialState.COMPLETE,
                user_attrs=marks,
            )
        )

    def enqueue_starts(self) -> None:
        """Lets the starts wait, unless they, or what is equal, are there."""
        ledger = self.read()
        there = {*ledger.values, *ledger.failed, *ledger.claims}
        for sequence in self.problem.starts:
            key = self.canon(sequence)
            if key not in there:
                there.add(key)
                self.study.enqueue_trial(dict(self.space.encode(sequence)), skip_if_exists=True)

    # ---- trials

    def go(self, worker: str, trials: int, batch: int, seconds_left: Callable[[], float]) -> str:
        """Measures until something ends it; why it ended."""
        while True:
            ledger = self.read()
            left = trials - ledger.finished - ledger.running
            if left <= 0:
                return TRIALS
            if seconds_left() <= 0:
                return TIME_LIMIT
            asked: list[tuple[Trial, Labels]] = []
            try:
                self._ask(asked, worker, min(batch, left))
                if not asked:
                    return EXHAUSTED
                self._measure(asked)
            except BaseException:
                self._release(worker)
                raise

    def _ask(self, asked: list[tuple[Trial, Labels]], worker: str, count: int) -> None:
        """Adds new sequences of this worker's own; fewer than `count` if no more can be found."""
        for _ in range(_KNOWN_IN_A_ROW):
            self.study.sampler = self._sampler()
            trial = self.study.ask()
            trial.set_user_attr(WORKER, worker)
            for name in self.space.names:
                trial.suggest_categorical(name, self.space.choices)
            sequence = self.space.decode(trial.params)
            assert sequence is not None
            if self._is_mine(trial, self.canon(sequence)):
                asked.append((trial, sequence))
                if len(asked) == count:
                    return

    def _is_mine(self, trial: Trial, sequence: Labels) -> bool:
        """Whether the trial may be measured; ends it if not.

        Who sees another's claim on the same sequence gives way: both claim before they look, so at
        least one sees the other. A trial that was enqueued cannot be proposed again, so it waits for
        the other's decision, and of two enqueued ones the first is measured.
        """
        frozen = self.study._storage.get_trial(trial._trial_id)
        patience = time.monotonic() + _WAIT
        while True:
            ledger = self.read()
            if ledger.is_known(sequence):
                trial.set_user_attr(COPY_OF, ledger.first[sequence])
                value = ledger.value(sequence)
                self.study.tell(trial, value, TrialState.FAIL if value is None else None)
                return False
            others = ledger.others(sequence, trial.number)
            if is_enqueued(frozen):
                settled = [
                    other
                    for other in others
                    if MEASURING in other.user_attrs
                    or (is_enqueued(other) and other.number < trial.number)
                ]
                undecided = any(not is_enqueued(other) for other in others)
                if undecided and not settled and time.monotonic() < patience:
                    time.sleep(_POLL)
                    continue
                others = settled
            if others:
                trial.set_user_attr(LOST, others[0].number)
                self.study.tell(trial, state=TrialState.FAIL)
                return False
            trial.set_user_attr(MEASURING, True)
            trial.set_user_attr("sequence", " + ".join(sequence) or "nothing")
            return True

    def _measure(self, asked: Sequence[tuple[Trial, Labels]]) -> None:
        sequences = [sequence for _, sequence in asked]
        found = self.problem.measure(sequences)
        for (trial, sequence), gain in zip(asked, found, strict=True):
            failed = gain is None or math.isnan(gain)
            state = TrialState.FAIL if failed else None
            # Another host may have given it up after an hour.
            self.study.tell(trial, None if failed else gain, state, skip_if_finished=True)
            if self._told is not None:
                self._told(sequence, None if failed else gain)

    def _release(self, worker: str) -> None:
        """Puts back what this worker has begun and not measured."""
        for trial in self.study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            if trial.user_attrs.get(WORKER) == worker:
                release(self.study, self.space, trial)

    def _sampler(self) -> BaseSampler:
        if self._local is not None:
            return self._local
        # A new one for each trial: a resumed study goes on instead of proposing the same again.
        seed = (self._seed * 1_000_003 + len(self.study.get_trials(deepcopy=False))) % 2**32
        if self._kind == "tpe":
            return optuna.samplers.TPESampler(seed=seed)
        return optuna.samplers.RandomSampler(seed=seed)

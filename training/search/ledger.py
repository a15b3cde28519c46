"""What the trials of a study say: which sequences are measured, failed, or being measured by somebody.

A sequence is known by its canonical form. A trial goes through these marks, kept as its attributes:

    claimed      its sampler has settled on a sequence (or all its parameters are there)
    measuring    nobody else had claimed the same; it is being measured
    copy of      it was measured before: it has the known value, and does not count
    lost         somebody else had claimed the same at the same time; it does not count
    released     its worker was interrupted or died; the sequence waits in a new trial
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from passwright.training.search.canonical import Canon
from passwright.training.search.space import Labels, Space

if TYPE_CHECKING:
    from optuna.study import Study
    from optuna.trial import FrozenTrial

CLAIMED, MEASURING, WORKER = "claimed", "measuring", "worker"
COPY_OF, LOST, RELEASED, IMPORTED = "copy of", "lost", "released", "imported"
#: Trials with these do not count as trials.
_ASIDE = (COPY_OF, LOST, RELEASED, IMPORTED)
#: Of these, what the trial says about its sequence is nothing new.
_SILENT = (COPY_OF, LOST, RELEASED)


@dataclass
class Ledger:
    """Measured log gains, failures and claims by canonical sequence."""

    values: dict[Labels, list[float]] = field(default_factory=dict)
    failed: set[Labels] = field(default_factory=set)
    claims: dict[Labels, list[FrozenTrial]] = field(default_factory=dict)
    #: Which trial was the first to say what is known of the sequence.
    first: dict[Labels, int] = field(default_factory=dict)
    #: Finished trials that count, and those that are on their way.
    finished: int = 0
    running: int = 0
    copies: int = 0

    def value(self, sequence: Labels) -> float | None:
        """The mean of what was measured; None if it was not, or failed."""
        found = self.values.get(sequence)
        return sum(found) / len(found) if found else None

    def is_known(self, sequence: Labels) -> bool:
        """Measured, or failed."""
        return sequence in self.values or sequence in self.failed

    def others(self, sequence: Labels, number: int) -> list[FrozenTrial]:
        """Other trials that have claimed the sequence and are not finished."""
        return [trial for trial in self.claims.get(sequence, ()) if trial.number != number]

    def ranking(self) -> list[tuple[Labels, float]]:
        """Measured sequences and their mean log gains, best first; of equals, the shorter one first."""
        found = [(sequence, self.value(sequence) or 0.0) for sequence in self.values]
        return sorted(found, key=lambda item: (-item[1], len(item[0]), item[0]))


def read(study: Study, space: Space, canon: Canon) -> Ledger:
    """The ledger as it is now, with what other workers have written."""
    # The study's own list may be the one that was read at the beginning of a trial.
    storage = study._storage
    return read_trials(storage.get_all_trials(study._study_id, deepcopy=False), space, canon)


def read_trials(trials: Iterable[FrozenTrial], space: Space, canon: Canon) -> Ledger:
    """The ledger of these trials."""
    ledger = Ledger()
    for trial in trials:
        marks = trial.user_attrs
        ledger.copies += COPY_OF in marks
        if any(mark in marks for mark in _SILENT):
            continue
        counts = not any(mark in marks for mark in _ASIDE)
        if trial.state.is_finished():
            ledger.finished += counts
        elif trial.state.name == "RUNNING":
            ledger.running += counts
        sequence = claimed(trial, space)
        if sequence is None:
            continue
        sequence = canon(sequence)
        if not trial.state.is_finished():
            ledger.claims.setdefault(sequence, []).append(trial)
            continue
        ledger.first.setdefault(sequence, trial.number)
        if trial.state.name == "COMPLETE" and trial.value is not None:
            ledger.values.setdefault(sequence, []).append(trial.value)
        else:
            ledger.failed.add(sequence)
    return ledger


def claimed(trial: FrozenTrial, space: Space) -> Labels | None:
    """The sequence that the trial stands for; None while it has none."""
    found = space.decode(trial.system_attrs.get("fixed_params", trial.params))
    if found is None and CLAIMED in trial.user_attrs:
        return tuple(trial.user_attrs[CLAIMED])
    return found


def is_enqueued(trial: FrozenTrial) -> bool:
    """Whether the sequence was there before the trial began."""
    return "fixed_params" in trial.system_attrs

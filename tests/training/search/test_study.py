"""A search counts what it measures, measures nothing twice, and goes on where it ended."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import optuna
import pytest
from search_workers import PASSES, run_workers

from passwright.training.search import problem as problems
from passwright.training.search import storage as storages
from passwright.training.search import study as studies
from passwright.training.search.canonical import Canon
from passwright.training.search.ledger import (
    CLAIMED,
    COPY_OF,
    LOST,
    MEASURING,
    RELEASED,
    WORKER,
    read,
)
from passwright.training.search.space import Labels, Space
from passwright.training.search.storage import open_study
from passwright.training.search.study import search
from passwright.training.search.synthetic import Synthetic

SPACE = Space(Synthetic.generate(0, PASSES).alphabet, PASSES)


def problem(seed: int = 0) -> Synthetic:
    return Synthetic.generate(seed, PASSES)


class Interrupted(Synthetic):
    """Ctrl-C, or an error, in the middle of a measurement."""

    after = 4
    error: type[BaseException] = KeyboardInterrupt

    def measure(self, sequences: Sequence[Labels]) -> list[float | None]:
        if len(self.measured) == self.after:
            raise self.error
        return super().measure(sequences)


@pytest.mark.parametrize("sampler", studies.SAMPLERS)
def test_nothing_is_measured_twice_and_all_starts_are(sampler: str) -> None:
    made = problem()
    outcome = search(made, trials=20, slots=PASSES, sampler=sampler, confirm=0)
    canon = Canon(made.commute)
    assert len({canon(sequence) for sequence in made.measured}) == len(made.measured) == 20
    assert made.measured[:3] == list(made.starts)
    assert outcome.trials == len(outcome.ranking) + outcome.failed == 20
    assert outcome.why == problems.TRIALS


def test_equal_starts_are_measured_once() -> None:
    class Apart(Synthetic):
        @property
        def starts(self) -> tuple[Labels, ...]:
            return ("pass_0", "pass_1"), ("pass_1", "pass_0")

        def commute(self, one: str, other: str) -> bool:
            return True

    made = Apart.generate(0, PASSES)
    outcome = search(made, trials=2, slots=PASSES, confirm=0)
    assert made.measured[0] == ("pass_0", "pass_1")
    assert ("pass_1", "pass_0") not in made.measured
    assert outcome.copies == 0


def test_a_copy_has_the_known_value_and_does_not_count() -> None:
    """There are 16 sequences of three labels, fewer where passes commute."""
    made = Synthetic.generate(0, 3)
    storage = optuna.storages.InMemoryStorage()
    outcome = search(made, trials=100, storage=storage, slots=3, sampler="random")
    assert outcome.why == problems.EXHAUSTED
    space = Space(made.alphabet, 3)
    study = open_study(storage, "passwright", space)
    copies = [trial for trial in study.trials if COPY_OF in trial.user_attrs]
    assert len(copies) == outcome.copies >= 50
    assert outcome.trials == len(study.trials) - len(copies) <= 16
    for copy in copies:
        assert copy.value == study.trials[copy.user_attrs[COPY_OF]].value


def test_the_local_search_finds_all_there_is_and_stops() -> None:
    class Plain(Synthetic):
        def commute(self, one: str, other: str) -> bool:
            return False

    made = Plain.generate(0, 3)
    outcome = search(made, trials=100, slots=3)
    assert (outcome.why, outcome.trials) == (problems.EXHAUSTED, 16)


def test_what_fails_is_not_repeated_and_counts() -> None:
    class Failing(Synthetic):
        def gain(self, sequence: Labels) -> float | None:
            return None if "pass_1" in sequence else super().gain(sequence)

    made = Failing.generate(0, PASSES)
    outcome = search(made, trials=30, slots=PASSES)
    assert outcome.failed == sum("pass_1" in sequence for sequence in made.measured[:30]) > 0
    assert outcome.trials == 30
    # What fails is left alone before long.
    assert sum("pass_1" in sequence for sequence in made.measured[15:30]) < 5


def test_the_best_is_what_was_confirmed_not_what_looked_best() -> None:
    class Lucky(Synthetic):
        def measure(self, sequences: Sequence[Labels]) -> list[float | None]:
            return [
                0.9 if sequence == ("pass_1",) else 0.1 * len(sequence) for sequence in sequences
            ]

        def confirm(self, sequences: Sequence[Labels]) -> list[float | None]:
            return [None if sequence == ("pass_1",) else 0.3 for sequence in sequences]

    outcome = search(Lucky.generate(0, PASSES), trials=12, slots=PASSES, known={("pass_1",): 0.9})
    assert outcome.ranking[0][0] == ("pass_1",)
    assert outcome.best not in (("pass_1",), None)
    assert outcome.gain == 0.3
    assert outcome.confirmed[0] == (("pass_1",), 0.9, None)


def test_doing_nothing_wins_where_nothing_gains() -> None:
    class Useless(Synthetic):
        def measure(self, sequences: Sequence[Labels]) -> list[float | None]:
            return [0.005 * bool(sequence) for sequence in sequences]

    outcome = search(Useless.generate(0, PASSES), trials=5, slots=PASSES)
    assert (outcome.best, outcome.gain) == ((), 0.0)
    helper = search(Useless.generate(0, PASSES), trials=5, slots=PASSES, confirm=0)
    assert helper.best is None


def test_old_measurements_are_known_and_no_trials() -> None:
    made = problem()
    known: dict[Labels, float | None] = {(): 0.0, ("pass_0",): 0.1, ("pass_1",): None}
    outcome = search(made, trials=6, slots=PASSES, known=known, confirm=0)
    assert not set(known) & set(made.measured)
    assert (outcome.trials, len(made.measured), outcome.failed >= 1) == (6, 6, True)


@pytest.mark.parametrize("batch", [1, 3])
def test_ctrl_c_keeps_everything_and_the_next_call_goes_on(batch: int, tmp_path: Path) -> None:
    place = str(tmp_path / "search.journal")
    first = Interrupted.generate(0, PASSES)
    assert isinstance(first, Interrupted)
    first.after = 6
    cut = search(first, trials=15, storage=place, slots=PASSES, batch=batch)
    assert (cut.why, cut.best, cut.trials) == (problems.STOPPED, None, 6)
    left = read(open_study(place, "passwright", SPACE), SPACE, Canon(first.commute))
    assert (left.running, len(left.claims)) == (0, batch)  # they wait for anybody
    second = problem()
    outcome = search(second, trials=15, storage=place, slots=PASSES, batch=batch, confirm=0)
    assert (outcome.why, outcome.trials) == (problems.TRIALS, 15)
    together = first.measured + second.measured
    assert len({Canon(second.commute)(sequence) for sequence in together}) == 15
    assert len(second.measured) == 9
    whole = problem()
    search(whole, trials=7, slots=PASSES, batch=batch, confirm=0)
    # What was being measured when it was interrupted comes first.
    assert second.measured[0] == whole.measured[6]


def test_an_error_in_a_measurement_is_the_callers_and_loses_nothing(tmp_path: Path) -> None:
    place = str(tmp_path / "search.journal")
    made = Interrupted.generate(0, PASSES)
    assert isinstance(made, Interrupted)
    made.error, made.after = RuntimeError, 1
    with pytest.raises(RuntimeError):
        search(made, trials=5, storage=place, slots=PASSES)
    again = problem()
    assert search(again, trials=5, storage=place, slots=PASSES, confirm=0).trials == 5
    assert set(made.starts) == {*made.measured, *again.measured[:2]}


@pytest.mark.parametrize("worker", ["here", "elsewhere"])
def test_what_a_dead_worker_had_begun_is_measured_by_another(
    worker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = str(tmp_path / "search.journal")
    study = open_study(place, "passwright", SPACE)
    study.enqueue_trial(dict(SPACE.encode(("pass_2",))))
    trial = study.ask()
    # Numbers of processes come to an end long before this one.
    trial.set_user_attr(WORKER, f"{socket.gethostname()}:999999999:dead")
    if worker == "elsewhere":
        trial.set_user_attr(WORKER, "another.host:1:unknown")
        assert search(problem(), trials=4, storage=place, slots=PASSES, confirm=0).trials == 3
        monkeypatch.setattr(storages, "ABANDONED", 0.0)
        time.sleep(0.01)
    made = problem()
    search(made, trials=4, storage=place, slots=PASSES, confirm=0)
    assert ("pass_2",) in made.measured
    assert RELEASED in study.trials[0].user_attrs


def test_a_living_worker_keeps_its_trials() -> None:
    study = optuna.create_study(direction="maximize")
    with storages.Worker() as worker:
        study.ask().set_user_attr(WORKER, worker.name)
        study.ask().set_user_attr(WORKER, f"{socket.gethostname()}:{os.getppid()}:x")
        assert storages.release_abandoned(study, SPACE) == 0
    assert storages.release_abandoned(study, SPACE) == 1


@pytest.mark.parametrize("sampler", ["local", "random"])
def test_two_processes_on_one_journal_measure_different_sequences(
    sampler: str, tmp_path: Path
) -> None:
    place = str(tmp_path / "search.journal")
    measured = run_workers(place, 24, tmp_path / "measured", sampler=sampler)
    canon = Canon(problem().commute)
    sequences = [canon(sequence) for _, sequence in measured]
    assert len(set(sequences)) == len(sequences)
    assert 24 <= len(sequences) <= 25
    ledger = read(open_study(place, "passwright", SPACE), SPACE, canon)
    assert ledger.finished == len(sequences)
    assert ledger.running == 0
    assert len({pid for pid, _ in measured}) == 2


def test_a_claim_of_the_same_sequence_gives_way() -> None:
    """As TPE and random sampling may propose it, which do not look at what others are doing."""
    study = open_study("", "passwright", SPACE)
    run = studies._Run(study, problem(), SPACE, Canon(), 0, "random", 0.01, None)
    for _ in range(2):
        study.enqueue_trial(dict(SPACE.encode(("pass_2",))))
    one, two = study.ask(), study.ask()
    # The second one comes first to where it is decided.
    assert not run._is_mine(two, ("pass_2",))
    assert run._is_mine(one, ("pass_2",))
    assert LOST in study.trials[1].user_attrs


@pytest.mark.parametrize("goes_on", [True, False])
def test_an_enqueued_trial_waits_for_the_decision_about_the_same(goes_on: bool) -> None:
    """Somebody proposed it before it was enqueued, and has not yet looked who else does."""
    study = open_study("", "passwright", SPACE)
    run = studies._Run(study, problem(), SPACE, Canon(), 0, "random", 0.01, None)
    proposed = study.ask()
    proposed.set_user_attr(CLAIMED, ["pass_2"])
    study.enqueue_trial(dict(SPACE.encode(("pass_2",))))
    waiting = study.ask()
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(run._is_mine, waiting, ("pass_2",))
        with pytest.raises(TimeoutError):
            answer.result(timeout=0.2)
        proposed.set_user_attr(MEASURING if goes_on else LOST, True)
        assert answer.result(timeout=5) is not goes_on


def test_the_time_limit_ends_it() -> None:
    outcome = search(problem(), trials=5, slots=PASSES, time_limit=0.0)
    assert (outcome.why, outcome.trials, outcome.best) == (problems.TIME_LIMIT, 0, ())


def test_a_study_over_another_space_is_refused(tmp_path: Path) -> None:
    place = str(tmp_path / "search.journal")
    search(problem(), trials=1, storage=place, slots=PASSES, confirm=0)
    with pytest.raises(ValueError, match="another space"):
        search(problem(), trials=1, storage=place, slots=PASSES + 1)
    with pytest.raises(ValueError, match="none of local, tpe, random"):
        search(problem(), trials=1, sampler="best")

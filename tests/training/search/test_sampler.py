"""The local search proposes what is new and promising, by its seed, and to no two the same."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np
import optuna
import pytest
from optuna.trial import TrialState

from passwright.training.search import compare
from passwright.training.search.canonical import Canon
from passwright.training.search.ledger import Ledger, read
from passwright.training.search.sampler import LocalSearchSampler
from passwright.training.search.space import Labels, Space
from passwright.training.search.surrogate import Surrogate

SPACE = Space(tuple("abcde"), slots=5)


def measured(values: dict[str, float], failed: Sequence[str] = ()) -> Ledger:
    ledger = Ledger({tuple(text): [value] for text, value in values.items()})
    ledger.failed = {tuple(text) for text in failed}
    return ledger


def proposals(sampler: LocalSearchSampler, ledger: Ledger, count: int = 30) -> list[str]:
    found = [sampler.propose(ledger, np.random.default_rng(seed)) for seed in range(count)]
    return ["".join(sequence) for sequence in found]


def greedy(**options: object) -> LocalSearchSampler:
    return LocalSearchSampler(SPACE, epsilon=0.0, restarts=0.0, **options)  # type: ignore[arg-type]


def test_it_does_what_the_model_says_before_anything_else_is_known() -> None:
    order = {"a": 0.0, "b": 0.0, "c": 0.5, "d": 0.0, "e": 0.0}
    assert set(proposals(greedy(order=order), measured({"": 0.0}))) == {"c"}


def test_the_model_orders_what_single_labels_do_not_tell_apart() -> None:
    def score(sequence: Labels) -> float:
        return 0.5 if sequence == ("b", "a") else 0.0

    found = proposals(greedy(score=score), measured({"": 0.0, "a": 0.01, "b": 0.01}))
    assert set(found) == {"ba"}


def test_it_looks_two_moves_ahead_once_enough_is_known() -> None:
    known = {"": 0.0, "b": 0.3, "a": 0.2, "d": 0.2, "c": -0.3, "e": -0.3, "ca": -0.2, "ed": -0.2}
    rng, sampler = np.random.default_rng(0), greedy()

    def looked_at(known: dict[str, float]) -> set[str]:
        ledger = measured(known)
        near = sampler._around([("b",)], ledger, rng)
        assert not any({"a", "d", "b"} <= set(sequence) for sequence in near)
        found = sampler._beyond(near, ledger, rng)
        assert len(found) == len(set(found))
        return {"".join(sequence) for sequence in found} - {"".join(s) for s in near}

    assert not looked_at(known)
    further = looked_at({**known, "ce": -0.5, "ec": -0.5})
    assert {"abd", "adb", "bad", "dab"} & further


def test_what_is_measured_outweighs_a_wrong_model() -> None:
    order = {"a": 0.3, "b": 0.0, "c": 0.0, "d": 0.0, "e": 0.0}
    known = {"": 0.0, "a": -0.4, "b": 0.3, "ab": -0.1, "ba": -0.1, "c": 0.0, "ac": -0.4, "d": 0.2}
    for sequence in proposals(greedy(order=order), measured(known)):
        assert "a" not in sequence
        assert "b" in sequence


def test_nothing_known_failed_or_claimed_is_proposed() -> None:
    ledger = measured({"": 0.0, "a": 0.3, "b": 0.2}, failed=["ab"])
    ledger.claims = {("b", "a"): []}
    found = proposals(LocalSearchSampler(SPACE, epsilon=0.5, restarts=0.3), ledger, 100)
    assert not {"", "a", "b", "ab", "ba"} & set(found)
    assert len(set(found)) > 20


def test_equal_sequences_are_known_by_one() -> None:
    canon = Canon(lambda *_: True)
    sampler = LocalSearchSampler(SPACE, canon=canon, epsilon=1.0)
    found = proposals(sampler, measured({"": 0.0, "ab": 0.2}), 100)
    assert "ba" not in found
    assert all(text == "".join(sorted(text)) for text in found)


def test_the_neighbours_of_failures_are_avoided() -> None:
    """a gained once, and failed with all that came after it."""
    ledger = measured({"": 0.0, "a": 0.02, "b": 0.02, "bc": 0.04}, ["ab", "ac", "ad", "ba", "ca"])
    assert all("a" not in text for text in proposals(greedy(), ledger))


def test_a_lucky_measurement_does_not_draw_the_search_to_itself() -> None:
    """By all its neighbours e gains nothing, so e alone cannot gain what was measured once."""
    values = {"": 0.0, "a": 0.2, "b": 0.2, "ab": 0.4, "abc": 0.41, "d": 0.0}
    luck = {"e": 0.45, "ae": 0.2, "be": 0.2, "ce": 0.0, "de": 0.0, "ea": 0.2, "eb": 0.2, "eab": 0.4}
    sampler = LocalSearchSampler(SPACE, noise=0.15, elite=3)
    best = ["".join(sequence) for sequence in sampler._best(measured({**values, **luck}))]
    assert "e" not in best
    assert "abc" in best


def test_when_all_is_known_it_returns_the_best() -> None:
    space = Space(("a",), slots=1)
    ledger = measured({"": 0.0, "a": 0.2})
    assert LocalSearchSampler(space).propose(ledger, np.random.default_rng(0)) == ("a",)


def test_the_surrogate_tells_orders_apart() -> None:
    known = [(), ("a",), ("b",), ("a", "b"), ("b", "a"), ("a", "b", "c"), ("c",)]
    values = [0.0, 0.1, 0.1, 0.6, 0.1, 0.6, 0.0]
    wanted = [("c", "a", "b"), ("c", "b", "a")]
    mean, deviation = Surrogate(tuple("abc")).predict(known, values, [0.0] * 7, wanted, [0.0] * 2)
    assert mean[0] > mean[1] + 0.2
    again, _ = Surrogate(tuple("abc")).predict(known, values, [0.0] * 7, known, [0.0] * 7)
    assert np.abs(again - values).max() < 0.1
    assert (deviation > 0).all()


def test_what_runs_makes_the_like_of_it_less_uncertain_and_no_better() -> None:
    known: list[Labels] = [(), ("a",), ("b",), ("c",)]
    values, wanted = [0.0, 0.1, 0.2, 0.0], [("a", "b")]
    surrogate = Surrogate(tuple("abc"))
    mean, deviation = surrogate.predict(known, values, [0.0] * 4, wanted, [0.0])
    running: list[Labels] = [("a", "b", "c")]
    more = [*known, *running]
    liar, surer = surrogate.predict(more, [*values, 9.0], [0.0] * 5, wanted, [0.0], running)
    assert liar == pytest.approx(mean)
    assert surer[0] < deviation[0]


def objective(trial: optuna.Trial) -> float:
    slots = {name: trial.suggest_categorical(name, SPACE.choices) for name in SPACE.names}
    sequence = SPACE.decode(slots)
    assert sequence is not None
    if len(sequence) == 4:
        raise optuna.TrialPruned
    return 0.1 * len(sequence) + 0.2 * (sequence[:1] == ("c",))


def test_it_is_an_optuna_sampler_and_repeats_by_its_seed() -> None:
    def run(seed: int) -> list[dict[str, object]]:
        study = optuna.create_study(
            direction="maximize", sampler=LocalSearchSampler(SPACE, seed=seed)
        )
        study.enqueue_trial(dict(SPACE.encode(())))
        study.optimize(objective, n_trials=25)
        assert len({SPACE.decode(trial.params) for trial in study.trials}) == 25
        assert any(trial.state is TrialState.PRUNED for trial in study.trials)
        return [trial.params for trial in study.trials]

    assert run(0) == run(0)
    assert run(0) != run(1)


def test_a_trial_that_is_enqueued_in_part_is_no_more_than_that() -> None:
    study = optuna.create_study(direction="maximize", sampler=LocalSearchSampler(SPACE))
    study.enqueue_trial({"slot_01": "d"})
    study.optimize(objective, n_trials=1)
    assert SPACE.decode(study.trials[0].params) == ("d",)


def test_threads_never_propose_the_same() -> None:
    """All six know the same, so they would all choose the same; each starts when all are there."""
    study = optuna.create_study(
        direction="maximize", sampler=LocalSearchSampler(SPACE, epsilon=0.0)
    )
    study.add_trial(
        optuna.create_trial(
            params=dict(SPACE.encode(())), distributions=SPACE.distributions(), value=0.0
        )
    )
    barrier = threading.Barrier(6)

    def ask() -> None:
        for _ in range(4):
            barrier.wait(timeout=20)
            trial = study.ask()
            for name in SPACE.names:
                trial.suggest_categorical(name, SPACE.choices)

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ledger = read(study, SPACE, Canon())
    assert ledger.running == len(ledger.claims) == 24


def test_it_beats_optunas_samplers_at_equal_trials() -> None:
    """Share of the optimum, mean over five instances with interactions, noise and failures."""
    rows = compare.curves(5, 6, points=(15, 30), noise=0.01)
    share = {row["sampler"]: row["share"] for row in rows}
    for guided in ("local", compare.UNGUIDED):
        for plain in ("tpe", "random"):
            assert share[guided][1] > share[plain][1] + 0.05
    assert share["local"][0] > max(share["tpe"][0], share["random"][0]) + 0.1
    assert share["local"][1] > 0.85


def test_of_what_comes_to_the_same_one_is_proposed() -> None:
    asked: list[Labels] = []

    def result(sequence: Labels) -> frozenset[str]:
        asked.append(sequence)
        return frozenset(sequence) - {"e"}  # order does not matter, and "e" does nothing

    canon = Canon(result=result)
    ledger = measured({"": 0.0, "a": 0.3, "b": 0.2, "ab": 0.4})
    for sequence in ledger.values:
        canon(sequence)
    found = proposals(greedy(canon=canon), ledger)
    assert not any(frozenset(text) - {"e"} in ({"a"}, {"b"}, {"a", "b"}, set()) for text in found)


def test_all_neighbours_are_looked_at_before_it_gives_up() -> None:
    canon = Canon(result=lambda sequence: sequence == ("d",))
    ledger = measured({"": 0.0})
    canon(())
    order = dict.fromkeys("abcde", 0.0) | {"d": -0.5}
    assert set(proposals(greedy(canon=canon, order=order), ledger, 3)) == {"d"}

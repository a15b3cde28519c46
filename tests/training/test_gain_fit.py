"""Networks learn what steps gain from plans of several; so do the baselines."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from passwright.features.example import Example
from passwright.scheduler.ensemble import Ensemble
from passwright.scheduler.gain_network import Collator, NetworkConfig
from passwright.scheduler.predictor import Predictor
from passwright.training.baselines import BASELINES, Baseline, Trees
from passwright.training.gain_eval import held_out
from passwright.training.gain_fit import Fit, fit
from passwright.training.gain_metrics import scores
from passwright.training.prepared import joined, prepare, vocabulary
from passwright.training.samples import WorkloadSamples
from tests.support.gains import PATTERNS, gain, samples

SMALL = NetworkConfig((), (), width=16, trunk=32, blocks=1, layers=1)
QUICK = Fit(epochs=20, together=8, learning_rate=5e-3)


def learned(train: list[WorkloadSamples], seed: int = 0) -> Ensemble:
    config = vocabulary(train, SMALL)
    return Ensemble([fit(prepare(train, config), config, QUICK, seed=seed)])


def fresh() -> list[Example]:
    return [step.example for one in samples(8, seed=99) for step in one.steps]


def error(predictor: Predictor) -> float:
    """Mean absolute error of the gains of steps that it has not seen; 0.21 if it says the mean."""
    found = fresh()
    predicted = predictor.forecast(found).gain[:, 0]
    return float(np.mean([abs(p - gain(e)) for p, e in zip(predicted, found, strict=True)]))


@pytest.fixture(scope="module")
def network() -> Ensemble:
    return learned(samples(40))


def test_a_network_learns_single_steps_from_plans(network: Ensemble) -> None:
    assert error(network) < 0.1


def test_the_same_seed_gives_the_same_network_and_leaves_the_generator(network: Ensemble) -> None:
    state = torch.get_rng_state()
    train = samples(4)
    config = vocabulary(train, SMALL)
    prepared = prepare(train, config)
    first, again, other = (
        fit(prepared, config, Fit(epochs=2), seed=seed).state_dict() for seed in (1, 1, 2)
    )
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["heads.weight"], other["heads.weight"])
    assert torch.equal(torch.get_rng_state(), state)


def test_rare_words_have_no_embedding_of_their_own() -> None:
    [few] = samples(1)  # six steps: words that stand twice in each are twelve nodes
    assert vocabulary([few], SMALL).words == ()
    assert vocabulary([few], SMALL).patterns == tuple(
        sorted({step.example.pattern for step in few.steps})
    )
    many = samples(10)
    assert vocabulary(many, SMALL).words == ("Binary add", "Linear", "Unary relu", "placeholder")


def test_joined_batches_predict_what_they_predict_alone(network: Ensemble) -> None:
    collate, [member] = Collator(network.config), network.members
    parts = [collate([step.example for step in one.steps]) for one in samples(3, seed=5)]
    with torch.inference_mode():
        together = member(joined(parts))
        alone = torch.cat([member(part) for part in parts])
    torch.testing.assert_close(together, alone)


def test_nothing_to_learn_from_is_an_error() -> None:
    with pytest.raises(ValueError, match="no measured steps"):
        fit([], SMALL)
    for kind in BASELINES.values():
        with pytest.raises(ValueError, match="no measured steps"):
            kind().fit([])


@pytest.mark.parametrize(
    ("name", "most"), [("ridge", 0.05), ("trees", 0.13), ("pattern mean", 0.25)]
)
def test_baselines_learn_single_steps_from_plans(
    monkeypatch: pytest.MonkeyPatch, name: str, most: float
) -> None:
    monkeypatch.setattr(Trees, "iterations", 25)
    baseline: Baseline = BASELINES[name]().fit(samples(40))
    assert error(baseline) < most
    found = baseline.forecast(fresh())
    assert found.gain.shape == found.to_go.shape == (48, 3)
    assert (found.gain[:, 1:] >= 0).all()


def test_the_pattern_mean_is_just_that() -> None:
    baseline = BASELINES["pattern mean"]().fit(samples(60))
    found = fresh()
    predicted = baseline.forecast(found).gain[:, 0]
    by_pattern = {
        name: {round(p, 9) for p, e in zip(predicted, found, strict=True) if e.pattern == name}
        for name in PATTERNS
    }
    assert all(len(values) == 1 for values in by_pattern.values())


def test_of_no_step_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Trees, "iterations", 2)
    for kind in BASELINES.values():
        assert kind().fit(samples(10)).forecast([]).gain.shape == (0, 3)


def test_families_that_are_asked_were_not_learned_from() -> None:
    every = samples(36)
    seen: list[set[str]] = []

    def learn(train: list[WorkloadSamples], seed: int) -> Predictor:
        seen.append({one.family for one in train})
        return BASELINES["ridge"](seed).fit(train)

    found = held_out(every, learn, count=3)
    assert [plans.workload for plans in found] == [one.workload for one in every]
    assert [len(families) for families in seen] == [4, 4, 4]
    assert scores(found).tau > 0.8

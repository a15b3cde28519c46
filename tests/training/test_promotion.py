"""A model is taken into use if it does no worse on families that nobody learned from."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from passwright.features.example import Example
from passwright.passes.errors import WorkloadError
from passwright.scheduler import model_store
from passwright.scheduler.cli import app
from passwright.scheduler.predictor import Forecast, Predictor
from passwright.training import promotion, sample_file
from passwright.training.gain_metrics import Plans
from passwright.training.policy import choice, choices, least_caution
from passwright.training.samples import WorkloadSamples
from passwright.training.splits import is_sealed
from tests.support.gains import gain, samples

SEALED = next(f"family{n}" for n in range(100) if is_sealed(f"family{n}"))


@dataclass
class Knows(Predictor):
    """The gain of every step, wrong by `off`."""

    off: float = 0.0
    width: float = 0.01
    version = "knows"

    def forecast(self, examples: Sequence[Example]) -> Forecast:
        rows = [[gain(e) * (1 + self.off), self.width, self.width] for e in examples]
        found = np.array(rows).reshape(-1, 3)
        return Forecast(found, found)


@pytest.fixture
def frozen() -> list[WorkloadSamples]:
    return [replace(one, family=SEALED) for one in samples(12)]


def test_one_that_knows_takes_the_place_of_one_that_guesses(frozen: list[WorkloadSamples]) -> None:
    found = promotion.judged(Knows(), Knows(off=-2.0), frozen)
    assert found.why == ""
    assert found.new.slower == 0
    assert found.new.speedup > found.old.speedup
    assert found.new_tau > 0.9 > -0.9 > found.old_tau


def test_one_that_guesses_is_refused_with_the_reason(frozen: list[WorkloadSamples]) -> None:
    found = promotion.judged(Knows(off=-2.0), Knows(), frozen)
    assert "slower than 0.98x" in found.why
    assert found.new.worst < 0.98


def test_one_that_gains_less_is_refused(frozen: list[WorkloadSamples]) -> None:
    found = promotion.judged(Knows(width=9.0), Knows(), frozen)
    assert found.new.abstained == 1.0
    assert "on average" in found.why


def test_one_that_seems_to_gain_less_on_few_graphs_is_not(frozen: list[WorkloadSamples]) -> None:
    found = promotion.judged(Knows(width=9.0), Knows(), frozen[:3])
    assert found.new.speedup < found.old.speedup
    assert found.why == ""


def test_without_the_suite_nothing_is_judged() -> None:
    known = [one for one in samples(6) if not is_sealed(one.family)]
    with pytest.raises(WorkloadError, match="passwright collect"):
        promotion.judged(Knows(), Knows(), known)


def plans(gains: Sequence[float], lower: Sequence[float] | None) -> Plans:
    array = np.array([0.0, *gains])
    low = None if lower is None else np.array([0.0, *lower])
    return Plans("w", "f", array, np.zeros(len(array)), array, low, low)


def test_the_surest_plan_is_chosen_or_none() -> None:
    assert choice(plans([0.5, 0.2], [0.05, 0.1])) == 2
    assert choice(plans([0.5, 0.2], [0.001, 0.002])) == 0
    assert choice(plans([0.5, 0.2], [0.001, 0.002]), least=0.0) == 2
    assert choice(plans([0.5, 0.2], None)) == 1
    assert choice(plans([], [])) == 0


def test_with_less_caution_less_of_the_way_to_the_lower_bound_counts() -> None:
    unsure = plans([0.5], [-0.1])
    assert choice(unsure) == 0
    assert choice(replace(unsure, caution=0.8)) == 1  # 0.5 - 0.8 * 0.6
    assert choice(replace(unsure, caution=0.82)) == 0


def test_as_little_caution_as_leaves_hardly_any_graph_slower() -> None:
    # Those that lose need more caution than those that gain.
    wins = [plans([0.5], [-0.4])] * 198
    loses = replace(plans([-0.1], [-0.4]), predicted=np.array([0.0, 0.2]))
    cut = replace(loses, workload="cut:a")
    # Of 0.5, half of 0.9 below it; of 0.2, a third of 0.6.
    assert least_caution(wins) == 0.0
    assert least_caution([*wins, cut]) == 0.0  # one of 200 and one more are few enough
    three = least_caution([*wins, cut, cut, cut, cut])
    assert 0.3 < three < 0.4
    assert choice(replace(cut, caution=three)) == 0
    # A whole model may not become slower.
    assert least_caution([*wins, loses]) == three
    assert least_caution([]) == 1.0


def test_what_choices_come_to() -> None:
    good, bad, left = plans([0.4], [0.3]), plans([-0.1], [0.2]), plans([0.3], [-0.3])
    found = choices([good, bad, left])
    assert (found.graphs, found.slower) == (3, 1)
    assert found.speedup == pytest.approx(np.exp(0.1))
    assert found.best == pytest.approx(np.exp(0.7 / 3))
    assert found.captured == pytest.approx(0.3 / 0.7)
    assert found.worst == pytest.approx(np.exp(-0.1))
    assert found.abstained == pytest.approx(1 / 3)


def test_the_command(tmp_path: Path, frozen: list[WorkloadSamples]) -> None:
    file, model = tmp_path / "samples.safetensors", tmp_path / "model"
    sample_file.save([*samples(12), *frozen], file)
    run = CliRunner()
    few = ["--members", "1", "--epochs", "1", "--folds", "2", "--samples", str(file)]
    trained = run.invoke(app, ["train", *few, "--output", str(model)])
    assert trained.exit_code == 0, trained.output
    asked = ["promote", str(model), "--samples", str(file), "--json"]
    found = run.invoke(app, asked)
    verdict = json.loads(found.stdout)
    place = model_store.promoted("a device")
    assert (found.exit_code == 0) == (verdict["why_not"] == "") == place.exists()
    over = run.invoke(app, [*asked, "--over", str(model), "--to", str(tmp_path / "best")])
    assert over.exit_code == 0, over.output  # no worse than itself
    assert (tmp_path / "best" / "config.json").exists()
    assert (tmp_path / "best" / "README.md").exists()
    nothing = run.invoke(app, ["promote", str(tmp_path), "--samples", str(file)])
    assert nothing.exit_code != 0
    assert "no gain model" in nothing.output

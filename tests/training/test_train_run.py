"""Training and comparing models, on samples whose gains are known."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from passwright.scheduler.cli import app
from passwright.scheduler.ensemble import load
from passwright.scheduler.gain_network import NetworkConfig
from passwright.training import sample_file, train_run
from passwright.training.baselines import Trees
from passwright.training.conformal import conformal_scale, held_out_coverage
from passwright.training.evaluate_run import evaluate
from passwright.training.gain_fit import Fit
from passwright.training.gain_metrics import Plans
from passwright.training.train_run import Request, train
from tests.support.gains import samples

SMALL = NetworkConfig((), (), width=8, trunk=16, blocks=1, layers=1)


def request(output: Path, **other: int) -> Request:
    return Request(output, members=2, folds=2, fit=Fit(epochs=3), config=SMALL, **other)


def test_a_model_is_written_and_predicts(tmp_path: Path) -> None:
    given = samples(12)
    trained = train(given, request(tmp_path / "model"))
    read = load(tmp_path / "model")
    examples = [step.example for step in given[0].steps]
    np.testing.assert_array_equal(
        read.forecast(examples).gain, trained.ensemble.forecast(examples).gain
    )
    assert read.calibration.scale == trained.ensemble.calibration.scale != 1.0
    assert all(read.unlike(example) == "" for example in examples)
    config = json.loads((tmp_path / "model" / "config.json").read_text(encoding="utf-8"))
    assert config["about"]["workloads"] == 12
    assert config["about"]["held out"]["tau"] == trained.scores.tau
    card = (tmp_path / "model" / "README.md").read_text(encoding="utf-8")
    assert f"| Kendall's tau within a graph | {trained.scores.tau:.3f} |" in card
    assert "family0, family1" in card
    assert set(trained.coverage) == {one.family for one in given}


def test_training_goes_on_from_the_networks_that_are_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fits: list[int] = []
    fit = train_run.fit

    def stopped(*arguments: object, **named: object) -> object:
        if len(fits) == 3:
            raise KeyboardInterrupt
        fits.append(1)
        return fit(*arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(train_run, "fit", stopped)
    with pytest.raises(KeyboardInterrupt):
        train(samples(12), request(tmp_path / "model"))
    assert not (tmp_path / "model" / "config.json").exists()
    monkeypatch.setattr(train_run, "fit", lambda *a, **k: fits.append(2) or fit(*a, **k))
    again = train(samples(12), request(tmp_path / "model"))
    # Two networks for each of two folds, and two of everything.
    assert fits == [1, 1, 1, 2, 2, 2]
    monkeypatch.setattr(train_run, "fit", fit)
    fresh = train(samples(12), request(tmp_path / "other"))
    assert again.scores == fresh.scores
    # Of other data nothing is taken.
    monkeypatch.setattr(train_run, "fit", lambda *a, **k: fits.append(3) or fit(*a, **k))
    train(samples(12, seed=1), request(tmp_path / "model"))
    assert fits[6:] == [3] * 6


def test_evaluation_compares_on_the_same_families(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Trees, "iterations", 10)
    found = evaluate(
        samples(12), ("ridge", "trees", "analytic"), seeds=2, folds=2, members=1, how=Fit(epochs=2)
    )
    ridge, trees, analytic = found["models"]
    assert [len(row["seeds"]) for row in found["models"]] == [1, 2, 1]
    assert ridge["mean"]["workloads"] == trees["mean"]["workloads"] == 12
    assert "tau_difference" not in ridge
    # The analytic model says nothing of these, and so orders nothing.
    assert analytic["mean"]["tau"] == 0.0
    assert analytic["tau_difference"]["mean"] == pytest.approx(-ridge["mean"]["tau"])
    assert analytic["tau_difference"]["p"] < 0.05
    assert analytic["interval"]["tau"] is None
    json.dumps(found, allow_nan=False)


def plans(family: str, errors: list[float], width: float = 0.1) -> Plans:
    """Plans that gain nothing, predicted off by these."""
    off = np.array([0.0, *errors])
    return Plans(family, family, np.zeros(len(off)), off, off, off - width, off + width)


def test_the_scale_is_the_quantile_of_errors_in_widths() -> None:
    nine = [0.01 * n for n in range(1, 10)]
    # Of nine scores the ninth: (9 + 1) * 0.9.
    assert conformal_scale([plans("f", nine)]) == pytest.approx(0.9)
    assert conformal_scale([plans("f", [-error for error in nine])]) == pytest.approx(0.9)
    assert conformal_scale([plans("f", nine, width=0.2)]) == pytest.approx(0.45)
    assert conformal_scale([]) == 1.0


def test_coverage_of_a_family_is_by_the_scale_of_the_others() -> None:
    easy, hard = plans("easy", [0.01] * 20), plans("hard", [0.3] * 20)
    assert held_out_coverage([easy, hard]) == {"easy": 1.0, "hard": 0.0}
    assert held_out_coverage([easy]) == {}


def test_the_commands(tmp_path: Path) -> None:
    file, model = tmp_path / "samples.safetensors", tmp_path / "model"
    sample_file.save(samples(8), file)
    few = ["--samples", str(file), "--members", "1", "--epochs", "1", "--folds", "2"]
    run = CliRunner()
    trained = run.invoke(app, ["train", *few, "--output", str(model), "--json"])
    assert trained.exit_code == 0, trained.output
    assert json.loads(trained.stdout)["scores"]["workloads"] == 8
    assert load(model).config.patterns
    report = tmp_path / "evaluation.json"
    options = ["--seeds", "1", "--model", "ridge", "--model", "analytic", "--json", str(report)]
    compared = run.invoke(app, ["evaluate", *few, *options])
    assert compared.exit_code == 0, compared.output
    assert "analytic" in compared.stdout
    rows = json.loads(report.read_text(encoding="utf-8"))["models"]
    assert [row["model"] for row in rows] == ["ridge", "analytic"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["train", "--for", "an abacus"], "nothing was measured on"),
        (["evaluate", "--model", "oracle"], "none of network, trees"),
    ],
)
def test_wrong_wishes_are_answered(tmp_path: Path, options: list[str], says: str) -> None:
    file = tmp_path / "samples.safetensors"
    sample_file.save(samples(2), file)
    found = CliRunner().invoke(app, [*options, "--samples", str(file)])
    assert found.exit_code == 2
    assert says in found.output

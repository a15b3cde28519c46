"""Training and comparing models, on samples whose gains are known."""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from passwright.passes.errors import SettingsError
from passwright.scheduler.cli import app
from passwright.scheduler.ensemble import load
from passwright.scheduler.gain_network import NetworkConfig
from passwright.training import ensembles, gain_fit, sample_file, train_logs, train_run
from passwright.training.baselines import Trees
from passwright.training.conformal import (
    calibrated,
    conformal_scale,
    held_out_coverage,
    to_go_scale,
)
from passwright.training.evaluate_run import evaluate, paired
from passwright.training.gain_fit import Epoch, Fit
from passwright.training.gain_metrics import Plans
from passwright.training.kept import Kept
from passwright.training.splits import is_sealed
from passwright.training.train_logs import curves
from passwright.training.train_run import Request, train
from tests.support.gains import samples

SMALL = NetworkConfig((), (), width=8, trunk=16, blocks=1, layers=1)


def request(output: Path, **other: Any) -> Request:
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
    assert set(read.forecast(examples).strange) == {""}
    config = json.loads((tmp_path / "model" / "config.json").read_text(encoding="utf-8"))
    assert config["about"]["workloads"] == 12
    assert config["about"]["held out"]["tau"] == trained.scores.tau
    card = (tmp_path / "model" / "README.md").read_text(encoding="utf-8")
    assert f"| Kendall's tau within a graph | {trained.scores.tau:.3f} |" in card
    assert "family0, family1" in card
    assert set(trained.coverage) == {one.family for one in given}


def test_evaluations_take_the_networks_that_a_training_has_fitted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given, asked = samples(12), request(tmp_path)
    train(given, asked)

    def fails(*_: object, **__: object) -> None:
        raise AssertionError("fitted again")

    monkeypatch.setattr(ensembles, "fit", fails)
    kept = Kept(tmp_path, given, asdict(asked.fit), SMALL.to_json())
    how = {"folds": 2, "members": 1, "how": asked.fit, "config": SMALL, "kept": kept}
    found = evaluate(given, ("network",), seeds=2, **how)
    assert len(found["models"][0]["seeds"]) == 2
    with pytest.raises(AssertionError, match="fitted again"):
        evaluate(given, ("network",), seeds=3, **how)


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


def test_a_network_that_was_under_way_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gain_fit, "_EVERY", 0.0)
    steps: list[int] = []
    step = gain_fit._Run.step

    def counted(run: gain_fit._Run) -> gain_fit.Epoch:
        if len(steps) == 5:
            raise KeyboardInterrupt
        steps.append(1)
        return step(run)

    monkeypatch.setattr(gain_fit._Run, "step", counted)
    with pytest.raises(KeyboardInterrupt):
        train(samples(12), request(tmp_path / "model"))
    [file] = (tmp_path / "model").rglob("*.under-way")
    monkeypatch.setattr(gain_fit._Run, "step", lambda run: steps.append(2) or step(run))
    again = train(samples(12), request(tmp_path / "model"))
    # Six networks of three epochs each, of which one network and two epochs were done.
    assert steps.count(2) == 13
    assert not file.exists()
    whole = train(samples(12), request(tmp_path / "other"))
    one, other = again.ensemble.members, whole.ensemble.members
    assert all(
        torch.equal(value, theirs.state_dict()[name])
        for mine, theirs in zip(one, other, strict=True)
        for name, value in mine.state_dict().items()
    )


def test_two_processes_train_a_model(tmp_path: Path) -> None:
    few = Request(tmp_path, members=1, folds=2, fit=Fit(epochs=1), config=SMALL, devices=2)
    trained = train(samples(6), replace(few, logs=tmp_path / "logs"))
    assert load(tmp_path).members[0].config == trained.ensemble.config
    # The first of them alone writes curves.
    assert len(list((tmp_path / "logs").rglob("events.*"))) == 2 * 3


def test_curves_are_written_for_each_network(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    how = Fit(epochs=3, patience=9, together=2)
    with suppress(KeyboardInterrupt), curves(tmp_path, "a/b", {"seed": 1}) as told:
        for number in range(3):
            told(Epoch(number, 9.0, 0.1, None))
        raise KeyboardInterrupt
    train(samples(12), replace(request(tmp_path / "model", logs=tmp_path), fit=how))
    names = {str(file.parent.relative_to(tmp_path)) for file in tmp_path.rglob("events.*")}
    ensembles = {f"ensemble{n}/network{m}" for n in (1, 2, 3) for m in (1, 2)}
    assert names == ensembles | {"a/b"}
    events = EventAccumulator(str(tmp_path / "ensemble1" / "network1")).Reload()
    assert {"loss", "held-out loss", "tau", "learning rate"} <= set(events.Tags()["scalars"])
    assert [one.step for one in events.Scalars("loss")] == [0, 1, 2]
    assert "_hparams_/session_start_info" in events.PluginTagToContent("hparams")
    # Of one that was stopped, what is written anew takes the place of what was.
    with curves(tmp_path, "a/b", {"seed": 1}) as told:
        told(Epoch(1, 5.0, 0.1, None))
    again = EventAccumulator(str(tmp_path / "a" / "b")).Reload()
    assert [(one.step, one.value) for one in again.Scalars("loss")] == [(0, 9.0), (1, 5.0)]


def test_a_missing_tensorboard_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(SettingsError, match=r"pip install 'passwright\[train\]'"):
        train_logs.require()


def test_evaluation_compares_on_the_same_families(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Trees, "iterations", 10)
    found = evaluate(
        samples(12), ("ridge", "trees", "analytic"), seeds=2, folds=2, members=1, how=Fit(epochs=2)
    )
    ridge, trees, analytic = found["models"]
    assert [len(row["seeds"]) for row in found["models"]] == [1, 1, 1]  # none has a seed
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


def test_means_are_told_from_how_often_one_is_ahead() -> None:
    # Ahead by little in most families, behind by much in two of twelve.
    families = [f"family{n}" for n in range(12) for _ in range(4)]
    mine = [1.0 if n < 8 else -0.2 for n in range(48)]
    found = paired(mine, [0.0] * 48, families)
    assert found["mean"] == pytest.approx(0.0)
    assert found["p"] < 0.05
    assert found["p_mean"] > 0.5
    same = paired([0.1, 0.2], [0.1, 0.2], ["a", "b"])
    assert same == {"mean": 0.0, "p": 1.0, "p_mean": 1.0, "workloads": 2}
    # What all workloads of one family say is said once.
    ahead = paired([1.0] * 48, [0.0] * 48, families)
    once = paired([1.0] * 48, [0.0] * 48, ["one"] * 48)
    assert ahead["p_mean"] < 0.01 < 0.9 < once["p_mean"]


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


def test_intervals_are_scaled_by_the_other_families_alone() -> None:
    easy, hard = plans("easy", [0.01] * 20), plans("hard", [0.3] * 20)
    for own, other, found in zip((easy, hard), (hard, easy), calibrated([easy, hard]), strict=True):
        assert own.upper is not None
        assert found.upper is not None
        wider = (found.upper - found.predicted)[1:] / (own.upper - own.predicted)[1:]
        assert wider == pytest.approx(conformal_scale([other]))


def test_gain_to_go_has_a_scale_of_its_own() -> None:
    labels = np.array([0.1 * n for n in range(1, 10)])
    forecast = np.column_stack([np.zeros(9), np.ones(9), np.ones(9)])
    found = replace(plans("f", [0.0]), to_go=labels, to_go_forecast=forecast)
    assert to_go_scale([found]) == pytest.approx(0.9)
    assert to_go_scale([plans("f", [0.5])]) == 1.0


def test_the_commands(tmp_path: Path) -> None:
    file, model = tmp_path / "samples.safetensors", tmp_path / "model"
    sample_file.save(samples(8), file)
    few = ["--samples", str(file), "--members", "1", "--epochs", "1", "--folds", "2"]
    run = CliRunner()
    trained = run.invoke(app, ["train", *few, "--output", str(model), "--json"])
    assert trained.exit_code == 0, trained.output
    assert list((model / "logs").rglob("events.*"))
    learned_from = [one for one in samples(8) if not is_sealed(one.family)]
    assert json.loads(trained.stdout)["scores"]["workloads"] == len(learned_from) < 8
    assert load(model).config.patterns
    study = run.invoke(app, ["train", *few, "--output", str(model), "--study", "1"])
    assert study.exit_code == 0, study.output
    settings = json.loads((model / "settings.json").read_text(encoding="utf-8"))
    assert settings == json.loads(study.stdout)["settings"]
    given = ["--settings", str(model / "settings.json"), "--patience", "1"]
    again = run.invoke(app, ["train", *few, *given, "--output", str(model), "--json"])
    assert again.exit_code == 0, again.output
    about = json.loads((model / "config.json").read_text(encoding="utf-8"))["about"]
    assert about["fit"] == {**settings["fit"], "epochs": 1, "patience": 1}
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
        (["train", "--device", "tpu"], "not on 'tpu'"),
        (["train", "--settings", "nowhere.json"], "cannot be read"),
        (["train", "--study", "1", "--devices", "2"], "one process"),
    ],
)
def test_wrong_wishes_are_answered(tmp_path: Path, options: list[str], says: str) -> None:
    file = tmp_path / "samples.safetensors"
    sample_file.save(samples(2), file)
    found = CliRunner().invoke(app, [*options, "--samples", str(file)])
    assert found.exit_code == 2
    assert says in found.output

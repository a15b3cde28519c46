"""What more data brings, on samples whose gains are known."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from passwright.passes.errors import WorkloadError
from passwright.scheduler.cli import app
from passwright.scheduler.gain_network import NetworkConfig
from passwright.training import curve_table, ensembles, readme, sample_file
from passwright.training.baselines import Analytic
from passwright.training.evaluate_run import evaluate
from passwright.training.gain_eval import plans_of
from passwright.training.gain_fit import Fit
from passwright.training.kept import Kept
from passwright.training.learning_curve import SHARES, learning_curve, part_of
from passwright.training.model_card import card
from tests.support.gains import samples

SMALL = NetworkConfig((), (), width=8, trunk=16, blocks=1, layers=1)
HOW = Fit(epochs=2)


def test_a_part_lies_within_every_larger_one() -> None:
    known = samples(24)
    parts = [part_of(known, share, seed=3) for share in SHARES]
    assert [len(part) for part in parts] == [3, 6, 12, 24]
    names = [{one.workload for one in part} for part in parts]
    assert names[0] < names[1] < names[2] < names[3]
    assert parts[3] == known
    assert part_of(known, 0.5, seed=4) != parts[2]


def test_more_graphs_predict_better() -> None:
    found = learning_curve(samples(24, noise=0.05), ("ridge",), seeds=3, folds=3)
    few, *_, all_of_them = found["points"]
    assert (few["share"], few["graphs"], few["plans"]) == (0.125, 2, 18)
    assert (all_of_them["share"], all_of_them["graphs"]) == (1.0, 16)
    assert few["mean"]["tau"] < all_of_them["mean"]["tau"]
    assert few["mean"]["error"] > all_of_them["mean"]["error"]
    # Families that are asked of are the same, and all of them.
    assert few["mean"]["workloads"] == all_of_them["mean"]["workloads"] == 24
    # Which graphs are learned from differs by seed, unless it is all.
    assert len({one["tau"] for one in few["seeds"]}) == 3
    assert few["interval"]["tau"] > 0
    assert len(all_of_them["seeds"]) == 1
    assert {"coverage", "width", "sign", "top1"} <= few["mean"].keys()
    json.dumps(found, allow_nan=False)


def test_without_steps_there_is_nothing_to_learn_from() -> None:
    bare = [replace(one, steps=(), plans=()) for one in samples(12)]
    with pytest.raises(WorkloadError, match=r"12.5% of the graphs have no measured step"):
        learning_curve(bare, ("ridge",), seeds=1, folds=2)


def test_a_stopped_curve_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known, fits, fit = samples(12), list[int](), ensembles.fit
    kept = Kept(tmp_path, known, asdict(HOW), SMALL.to_json())
    how: dict[str, Any] = {"seeds": 2, "folds": 2, "members": 1, "how": HOW, "config": SMALL}

    def stopped(*given: Any, **named: Any) -> Any:
        if len(fits) == 3:
            raise KeyboardInterrupt
        fits.append(1)
        return fit(*given, **named)

    monkeypatch.setattr(ensembles, "fit", stopped)
    with pytest.raises(KeyboardInterrupt):
        learning_curve(known, **how, shares=(0.5, 1.0), kept=kept)
    monkeypatch.setattr(ensembles, "fit", lambda *a, **k: fits.append(2) or fit(*a, **k))
    again = learning_curve(known, **how, shares=(0.5, 1.0), kept=kept)
    # Two shares, two seeds and two folds: eight networks, of which three were done.
    assert fits == [1] * 3 + [2] * 5
    # An evaluation learns from all, and so from networks that the curve has fitted.
    evaluated = evaluate(known, ("network",), **how, kept=kept)
    assert len(fits) == 8
    monkeypatch.setattr(ensembles, "fit", fit)
    fresh = learning_curve(known, **how, shares=(0.5, 1.0))
    assert again == fresh
    assert evaluated["models"][0]["mean"]["tau"] == fresh["points"][1]["mean"]["tau"]


def test_what_is_written_about_it(tmp_path: Path) -> None:
    found = learning_curve(samples(12), ("ridge", "analytic"), seeds=2, folds=2)
    (tmp_path / "curve.json").write_text(json.dumps(found), encoding="utf-8")
    text = readme.with_tables("<!-- curve curve.json -->\n<!-- end -->", tmp_path)
    assert text.count("\n| ridge |") == len(SHARES)
    assert "| analytic | 100 % | 6 | 54 |" in text
    line = curve_table.line(found)
    assert "from 12.5 %, " in line
    apart = found["points"][3]["mean"]["tau"] - found["points"][2]["mean"]["tau"]
    assert f"tau changes by {apart:+.3f}" in line
    about = {"device": "d", "plans": 1, "workloads": 1, "families": ["f"]}
    given = [plans_of(one, Analytic()) for one in samples(6)]
    written = card({**about, "passwright": "0", "seed": 0}, given, curve=found)
    assert f"by the share of the other families' graphs: {line}." in written
    assert "| 2-4 | 12 | 6 |" in written
    assert "Learning curve" not in card({**about, "passwright": "0", "seed": 0}, given)


def test_the_commands(tmp_path: Path) -> None:
    file, curve = tmp_path / "samples.safetensors", tmp_path / "curve.json"
    sample_file.save(samples(16), file)
    few = ["--samples", str(file), "--members", "1", "--epochs", "1", "--folds", "2"]
    run = CliRunner()
    wanted = ["evaluate", *few, "--curve", "--seeds", "1", "--json", str(curve)]
    first = run.invoke(app, [*wanted, "--output", str(tmp_path / "kept")])
    assert first.exit_code == 0, first.output
    assert "12.5 %" in first.stdout
    points = json.loads(curve.read_text(encoding="utf-8"))["points"]
    assert [point["model"] for point in points] == ["network"] * len(SHARES)
    assert list((tmp_path / "kept").rglob("*.safetensors"))
    train = ["train", *few, "--output", str(tmp_path / "model"), "--curve", str(curve)]
    trained = run.invoke(app, train)
    assert trained.exit_code == 0, trained.output
    text = (tmp_path / "model" / "README.md").read_text(encoding="utf-8")
    assert curve_table.line(json.loads(curve.read_text(encoding="utf-8"))) in text


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "cannot be read"),
        ("{", "cannot be read"),
        ("{}", "holds no learning curve"),
        ('{"device": "an abacus", "members": 1, "points": []}', "is of an abacus"),
    ],
)
def test_what_is_no_curve_of_the_device_is_refused(
    tmp_path: Path, text: str | None, says: str
) -> None:
    file, curve = tmp_path / "samples.safetensors", tmp_path / "curve.json"
    sample_file.save(samples(2), file)
    if text is not None:
        curve.write_text(text, encoding="utf-8")
    options = ["--samples", str(file), "--curve", str(curve), "--output", str(tmp_path / "model")]
    found = CliRunner().invoke(app, ["train", *options])
    assert found.exit_code == 2
    assert says in found.output
    assert not (tmp_path / "model").exists()

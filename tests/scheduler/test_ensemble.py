"""Gain networks: shapes, what they may look at, and as folders."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from passwright.features import schema
from passwright.features.example import Example
from passwright.scheduler.ensemble import CONFIG, WEIGHTS, Calibration, Ensemble, load, save
from passwright.scheduler.familiar import Familiar
from passwright.scheduler.gain import CANCELLING
from passwright.scheduler.gain_network import Collator, GainNetwork, NetworkConfig
from passwright.scheduler.predictor import sum_of
from tests.support.gains import PATTERNS, example

CONFIGURATION = NetworkConfig(PATTERNS, ("Linear", "placeholder"), width=8, trunk=16, blocks=2)


@pytest.fixture
def ensemble() -> Ensemble:
    """Two members that differ."""
    torch.manual_seed(0)
    members = [GainNetwork(CONFIGURATION).eval() for _ in range(2)]
    for member in members:
        torch.nn.init.normal_(member.heads.weight, std=0.3)
        torch.nn.init.normal_(member.around.weight, std=0.3)
    return Ensemble(members)


@pytest.fixture
def examples() -> list:
    draw = np.random.default_rng(0)
    return [example(n % 3, draw) for n in range(7)]


def test_examples_do_not_look_at_each_other(ensemble: Ensemble, examples: list) -> None:
    together = ensemble.forecast(examples)
    for place, one in enumerate(examples):
        alone = ensemble.forecast([one])
        np.testing.assert_allclose(together.gain[place], alone.gain[0], atol=1e-5)
        np.testing.assert_allclose(together.to_go[place], alone.to_go[0], atol=1e-5)
    assert ensemble.forecast([]).gain.shape == (0, 3)


def test_without_a_neighbourhood_there_is_a_forecast(ensemble: Ensemble, examples: list) -> None:
    """A clean-up of the whole graph has none."""
    bare = replace(
        examples[0],
        words=(),
        nodes=np.zeros((0, len(schema.NODE)), np.float32),
        roles=np.zeros((0, len(schema.ROLE)), np.float32),
        edges=np.zeros((2, 0), np.int64),
        edge_features=np.zeros((0, len(schema.EDGE)), np.float32),
    )
    assert np.isfinite(ensemble.forecast([bare]).gain).all()
    assert np.isfinite(ensemble.forecast([bare, *examples]).gain).all()


def test_messages_go_along_edges(ensemble: Ensemble, examples: list) -> None:
    """A far node matters, until nothing leads there."""
    found = examples[0]
    changed = replace(found, nodes=found.nodes + np.eye(5, 1, dtype=np.float32) * 3.0)
    assert not np.allclose(*(ensemble.forecast([e]).gain for e in (found, changed)))
    [member, _] = ensemble.members
    batch, other = (Collator(CONFIGURATION)([e]) for e in (found, changed))
    with torch.inference_mode():
        one, two = (member._read(b, member.pattern(b.patterns))[0, :8] for b in (batch, other))
        cut = replace(found, edges=found.edges[:, 2:], edge_features=found.edge_features[2:])
        batch, other = (
            Collator(CONFIGURATION)([replace(cut, nodes=n)]) for n in (found.nodes, changed.nodes)
        )
        three, four = (member._read(b, member.pattern(b.patterns))[0, :8] for b in (batch, other))
    assert not torch.allclose(one, two)
    torch.testing.assert_close(three, four)


def test_members_that_disagree_widen_the_interval(ensemble: Ensemble, examples: list) -> None:
    both = ensemble.forecast(examples).gain
    single = [Ensemble([member]).forecast(examples).gain for member in ensemble.members]
    np.testing.assert_allclose(both[:, 0], np.mean([s[:, 0] for s in single], axis=0), atol=1e-6)
    apart = np.abs(single[0][:, 0] - single[1][:, 0]) / 2 * 1.645
    narrow = np.mean([s[:, 1] for s in single], axis=0)
    np.testing.assert_allclose(both[:, 1], np.hypot(narrow, apart), rtol=1e-4)


def test_calibration_scales_widths_and_leaves_means(ensemble: Ensemble, examples: list) -> None:
    wide = replace(ensemble, calibration=Calibration(2.0, 3.0))
    plain, scaled = ensemble.forecast(examples), wide.forecast(examples)
    np.testing.assert_allclose(scaled.gain, plain.gain * [1, 2, 2])
    np.testing.assert_allclose(scaled.to_go, plain.to_go * [1, 3, 3])


def test_what_was_never_measured_is_said_to_be(ensemble: Ensemble, examples: list) -> None:
    seen = Familiar.of(examples)
    known = Calibration(lowest=seen.lowest, highest=seen.highest)
    column = schema.SITE.index("log_matched")
    low, high = seen.lowest[column], seen.highest[column]

    def moved(by: float) -> Example:
        site = examples[0].site.copy()
        site[column] = high + by * (high - low)
        return replace(examples[0], site=site)

    asked = [*examples, replace(examples[0], pattern="mine"), moved(0.09), moved(0.9), moved(1.1)]
    beyond = "log_matched is beyond what was measured"
    strange = (*[""] * 7, "pattern mine was never measured", "", beyond, beyond)
    refusing = replace(ensemble, calibration=known).forecast(asked)
    assert refusing.strange == refusing.refused == strange
    # With a scale for them, all but what is too far are predicted, in wider intervals.
    wider = replace(ensemble, calibration=replace(known, strange_scale=1.5)).forecast(asked)
    assert wider.strange == strange
    assert wider.refused == (*[""] * 10, beyond)
    factor = np.where(np.array(strange) == "", 1.0, 1.5)[:, None] * np.ones(2)
    np.testing.assert_allclose(wider.gain[:, 1:], refusing.gain[:, 1:] * factor)
    np.testing.assert_allclose(wider.gain[:, 0], refusing.gain[:, 0])


def test_a_saved_model_predicts_the_same(
    tmp_path: Path, ensemble: Ensemble, examples: list
) -> None:
    seen = Familiar.of(examples)
    calibration = Calibration(1.5, 2.5, 0.5, 1.2, seen.lowest, seen.highest)
    ensemble = replace(ensemble, calibration=calibration)
    save(ensemble, tmp_path / "model", {"device": "a device"})
    again = load(tmp_path / "model")
    assert again.config == ensemble.config
    np.testing.assert_array_equal(again.forecast(examples).gain, ensemble.forecast(examples).gain)
    assert again.calibration == calibration
    assert set(again.forecast(examples).strange) == {""}
    assert again.caution == 0.5
    bolder = replace(ensemble, calibration=replace(ensemble.calibration, caution=0.4))
    save(bolder, tmp_path / "bolder", {"device": "a device"})
    assert load(tmp_path / "bolder").version != again.version
    assert again.version == load(tmp_path / "model").version
    assert {file.name for file in (tmp_path / "model").iterdir()} == {CONFIG, WEIGHTS}


@pytest.mark.parametrize("broken", ["nothing", "schema", "format", "weights", "json", "member"])
def test_what_is_no_model_of_this_version_is_refused(
    tmp_path: Path, ensemble: Ensemble, broken: str
) -> None:
    folder = tmp_path / "model"
    if broken != "nothing":
        save(ensemble, folder, {})
        config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
        if broken == "schema":
            config["network"]["schema"] += 1
        if broken == "format":
            config["format"] = 99
        if broken == "member":
            config["members"] = 3
        text = "{" if broken == "json" else json.dumps(config)
        (folder / CONFIG).write_text(text, encoding="utf-8")
        if broken == "weights":
            (folder / WEIGHTS).write_bytes(b"nothing")
    says = {"schema": "train it anew", "format": "no model of format"}
    with pytest.raises(ValueError, match=says.get(broken, "passwright train")):
        load(folder)


def test_a_plan_is_the_sum_of_its_steps() -> None:
    steps = np.array([[0.3, 0.3, 0.1], [-0.1, 0.4, 0.0]])
    assert sum_of(steps) == pytest.approx((0.2, 0.2 - 0.5, 0.3))
    assert sum_of(np.zeros((0, 3))) == (0.0, 0.0, 0.0)
    # Behind very many steps, errors add up, as they do where a plan is made.
    many = np.tile([0.1, 0.2, 0.3], (CANCELLING + 5, 1))
    _, lower, _ = sum_of(many)
    assert lower == pytest.approx(0.1 * len(many) - 0.2 * CANCELLING**0.5 - 0.2 * 5)

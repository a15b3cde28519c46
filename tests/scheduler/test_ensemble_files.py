"""Folders of gain models that other versions wrote, or somebody edited."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from passwright.scheduler.ensemble import CONFIG, Calibration, Ensemble, load, save
from passwright.scheduler.gain_network import GainNetwork, NetworkConfig
from passwright.training.forest_fit import fit_trees
from tests.support.gains import PATTERNS, samples


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    network = GainNetwork(NetworkConfig(PATTERNS, ("Linear",), width=8, trunk=16)).eval()
    calibration = Calibration(scale=1.5, to_go_scale=2.5, caution=0.5)
    save(Ensemble([network], calibration), tmp_path, {"device": "a device"})
    return tmp_path


def edit(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Changes the configuration in place."""
    config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    change(config)
    (folder / CONFIG).write_text(json.dumps(config), encoding="utf-8")


def test_a_model_from_before_caution_is_as_cautious_as_it_was(folder: Path) -> None:
    edit(folder, lambda config: config["calibration"].pop("caution"))
    found = load(folder)
    assert (found.caution, found.calibration.scale, found.device) == (1.0, 1.5, "a device")


@pytest.mark.parametrize(
    "change",
    [
        lambda config: config["calibration"].update(boldness=2.0),
        lambda config: config["network"].update(heads=4),
        lambda config: config.update(network=[]),
        lambda config: config.update(calibration=[]),
        lambda config: config.update(calibration=None),
        lambda config: config.pop("about"),
        lambda config: config.update(about="the H200"),
    ],
    ids=["more", "wider", "network", "calibration", "none", "no about", "about"],
)
def test_what_this_version_cannot_read_says_what_to_do(
    folder: Path, change: Callable[[dict[str, Any]], object]
) -> None:
    load(folder)
    edit(folder, change)
    with pytest.raises(ValueError, match=r"no gain model that can be read.*passwright train"):
        load(folder)


def test_a_model_from_before_trees_is_read(folder: Path) -> None:
    def before(config: dict[str, Any]) -> None:
        config["format"] = 1
        del config["trees"]

    edit(folder, before)
    assert load(folder).trees is None


def test_trees_are_kept_with_the_networks(folder: Path) -> None:
    trees = fit_trees(samples(8))
    whole = replace(load(folder), trees=trees)
    save(whole, folder, {"device": "a device"})
    found = load(folder)
    examples = [step.example for one in samples(3, seed=5) for step in one.steps]
    assert found.trees is not None
    assert found.trees.patterns == trees.patterns
    assert len(found.members) == 1
    np.testing.assert_array_equal(found.forecast(examples).gain, whole.forecast(examples).gain)
    edit(folder, lambda config: config.update(trees=None))
    assert not np.allclose(load(folder).forecast(examples).gain, whole.forecast(examples).gain)


def test_trees_that_are_not_there_are_missed(folder: Path) -> None:
    edit(folder, lambda config: config.update(trees=["batch_linears"]))
    with pytest.raises(ValueError, match=r"no gain model that can be read.*passwright train"):
        load(folder)

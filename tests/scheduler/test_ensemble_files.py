"""Folders of gain models that other versions wrote, or somebody edited."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from passwright.scheduler.ensemble import CONFIG, Calibration, Ensemble, load, save
from passwright.scheduler.gain_network import GainNetwork, NetworkConfig
from tests.support.gains import PATTERNS


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

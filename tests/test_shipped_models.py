"""The gain models that come with the package load, say what they are, and predict on their devices."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch

from passwright.features import schema
from passwright.passes.dialect import Dialect
from passwright.passes.graph import GraphView
from passwright.passes.matching import Rewriter
from passwright.passes.table import default_table
from passwright.scheduler import model_store
from passwright.scheduler.device import DeviceDescriptor, describe_cpu, describe_gpu
from passwright.scheduler.ensemble import load
from passwright.scheduler.gain_models import gain_model
from passwright.scheduler.inductor import clone_for_compile
from passwright.scheduler.learned import LearnedGainModel
from passwright.scheduler.planner import Planner
from passwright.scheduler.settings import Settings
from passwright.training.workloads import build
from passwright.training.workloads.capture import captured

pytestmark = pytest.mark.shipped_models

DEVICES = {
    "NVIDIA H200": describe_gpu("NVIDIA H200", tf32=True),
    "AMD EPYC AVX512": describe_cpu("AVX512", threads=1, name="AMD EPYC", cache_bytes=32 << 20),
}


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> DeviceDescriptor:
    found = DEVICES[request.param]
    assert found.name == request.param
    return found


@pytest.fixture
def folder(device: DeviceDescriptor) -> Path:
    found = model_store.find(device.name)
    assert found is not None
    assert found == model_store.shipped(device.name)
    return found


def test_it_loads_and_has_a_card(folder: Path, device: DeviceDescriptor) -> None:
    found = load(folder)
    assert model_store.slug(found.device) == folder.name
    assert found.config.schema == schema.VERSION
    assert len(found.members) >= 5
    assert found.calibration.scale > 1.0
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert card.startswith(f"# Gain model for {device.name}")
    assert "frozen suite" in card
    # No machine's paths, no code: a card, a configuration, numbers.
    assert {file.name for file in folder.iterdir()} == {
        "README.md",
        "config.json",
        "model.safetensors",
    }
    about = json.loads((folder / "config.json").read_text(encoding="utf-8"))["about"]
    assert about["workloads"] > 100


def test_its_intervals_held_on_families_that_it_never_saw(folder: Path) -> None:
    """As the card has it: nine of ten plans, scaled by other families."""
    card = (folder / "README.md").read_text(encoding="utf-8")
    found = re.search(r"other\s+families: ([\d.]+)% of plans inside", card)
    assert found is not None
    assert 87 <= float(found[1]) <= 93


def test_nobody_learned_from_the_frozen_suite(folder: Path) -> None:
    from passwright.training.splits import is_sealed

    about = json.loads((folder / "config.json").read_text(encoding="utf-8"))["about"]
    assert not [family for family in about["families"] if is_sealed(family)]


def test_it_is_what_predicts_there(device: DeviceDescriptor) -> None:
    settings = Settings(time_budget=600.0)
    model = gain_model(settings, device, Dialect.TORCH)
    assert isinstance(model, LearnedGainModel)
    module, inputs = build("own:norm_branches?fields=8", batch=64)
    [graph] = captured(module, inputs, train=False)
    plans = []
    for _ in range(2):
        with torch.no_grad():
            rewriter = Rewriter(GraphView(clone_for_compile(graph).graph), default_table())
            plans.append(Planner(rewriter, model, settings, training=False).plan())
    assert plans[0] == plans[1]
    if device.kind == "cuda":  # eight branches of small kernels
        assert plans[0].predicted.lower > 0.5

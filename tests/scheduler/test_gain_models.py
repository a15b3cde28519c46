"""Which gain model predicts."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest
import torch

from passwright.passes.dialect import Dialect
from passwright.scheduler import gain_models, once
from passwright.scheduler.analytic import AnalyticGainModel
from passwright.scheduler.device import DeviceDescriptor
from passwright.scheduler.ensemble import CONFIG, Calibration, Ensemble, bounds, save
from passwright.scheduler.gain_models import gain_model
from passwright.scheduler.gain_network import GainNetwork, NetworkConfig
from passwright.scheduler.learned import LearnedGainModel
from passwright.scheduler.settings import Settings
from tests.support.gains import PATTERNS, example


@pytest.fixture(autouse=True)
def forget() -> None:
    once.warn_once.cache_clear()
    gain_models._loaded.cache_clear()


def trained(folder: Path, device: str, seed: int = 0) -> Settings:
    """Settings with a model that was trained for this device."""
    torch.manual_seed(seed)
    config = NetworkConfig(PATTERNS, ("Linear",), width=8, trunk=16)
    draw = np.random.default_rng(0)
    low, high = bounds([example(n % 3, draw) for n in range(6)])
    calibration = Calibration(1.0, 1.0, tuple(low.tolist()), tuple(high.tolist()))
    save(Ensemble([GainNetwork(config).eval()], calibration), folder, {"device": device})
    return Settings(gain_model=str(folder))


def test_without_a_trained_one_it_is_the_analytic_one(device: DeviceDescriptor) -> None:
    assert isinstance(gain_model(Settings(), device, Dialect.TORCH), AnalyticGainModel)


def test_a_trained_model_predicts_for_its_device_on_torch_ir(
    tmp_path: Path, device: DeviceDescriptor
) -> None:
    settings = trained(tmp_path / "model", f"{device.name}, 1 threads")
    found = gain_model(settings, device, Dialect.TORCH)
    assert isinstance(found, LearnedGainModel)
    assert found.version != gain_model(Settings(), device, Dialect.TORCH).version
    assert isinstance(gain_model(settings, device, Dialect.ATEN), AnalyticGainModel)


def test_a_model_that_was_trained_anew_is_read_anew(
    tmp_path: Path, device: DeviceDescriptor
) -> None:
    versions = []
    for seed in (0, 1):
        settings = trained(tmp_path / "model", device.name, seed)
        versions.append(gain_model(settings, device, Dialect.TORCH).version)
        versions.append(gain_model(settings, device, Dialect.TORCH).version)
    assert versions[0] == versions[1] != versions[2] == versions[3]


def test_a_model_for_another_device_costs_one_warning(
    tmp_path: Path, device: DeviceDescriptor, caplog: pytest.LogCaptureFixture
) -> None:
    settings = trained(tmp_path / "model", "an abacus")
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert isinstance(gain_model(settings, device, Dialect.TORCH), AnalyticGainModel)
    [record] = caplog.records
    assert "is for 'an abacus'" in record.message
    assert "passwright train" in record.message


@pytest.mark.parametrize("there", [True, False])
def test_a_model_that_cannot_be_read_costs_one_warning(
    tmp_path: Path, device: DeviceDescriptor, caplog: pytest.LogCaptureFixture, there: bool
) -> None:
    folder = tmp_path / "model"
    if there:
        folder.mkdir()
        (folder / CONFIG).write_text("{}", encoding="utf-8")
    settings = Settings(gain_model=str(folder))
    with caplog.at_level(logging.WARNING):
        assert isinstance(gain_model(settings, device, Dialect.TORCH), AnalyticGainModel)
    [record] = caplog.records
    assert "the analytic one is used" in record.message

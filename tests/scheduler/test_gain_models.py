"""Which gain model predicts."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from passwright.passes.dialect import Dialect
from passwright.scheduler import gain_models, model_store, once
from passwright.scheduler.analytic import AnalyticGainModel
from passwright.scheduler.device import DeviceDescriptor, Source, assumed
from passwright.scheduler.ensemble import CONFIG, Calibration, Ensemble, save
from passwright.scheduler.familiar import Familiar
from passwright.scheduler.gain_models import gain_model
from passwright.scheduler.gain_network import GainNetwork, NetworkConfig
from passwright.scheduler.learned import LearnedGainModel
from passwright.scheduler.settings import Settings
from tests.support.gains import PATTERNS, example

#: Before the tests' own takes its place.
REAL_FIND = model_store.find


@pytest.fixture(autouse=True)
def forget() -> None:
    once.warn_once.cache_clear()
    gain_models._loaded.cache_clear()


def trained(folder: Path, device: str, seed: int = 0) -> Settings:
    """Settings with a model that was trained for this device."""
    torch.manual_seed(seed)
    config = NetworkConfig(PATTERNS, ("Linear",), width=8, trunk=16)
    draw = np.random.default_rng(0)
    seen = Familiar.of([example(n % 3, draw) for n in range(6)])
    calibration = Calibration(lowest=seen.lowest, highest=seen.highest)
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


def test_the_one_for_the_device_is_used_unless_another_is_wanted(
    tmp_path: Path, device: DeviceDescriptor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(model_store, "find", REAL_FIND)
    here = model_store.promoted(f"{device.name}, 3 threads")
    trained(here, device.name)
    assert model_store.find(device.name) == here
    assert isinstance(gain_model(Settings(), device, Dialect.TORCH), LearnedGainModel)
    analytic = Settings(gain_model="analytic")
    assert isinstance(gain_model(analytic, device, Dialect.TORCH), AnalyticGainModel)


def test_a_learned_model_sees_the_figures_it_learned_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = assumed(torch.device("cpu"))
    probed = replace(known, memory_bandwidth=1.0, source=Source.PROBE)
    settings = trained(tmp_path / "model", known.name)
    found = gain_model(settings, probed, Dialect.TORCH)
    assert isinstance(found, LearnedGainModel)
    assert found.device == known


def test_who_has_no_home_gets_the_one_that_comes_with_the_package(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def homeless(path: Path) -> Path:
        raise RuntimeError("no home directory")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "expanduser", homeless)
    assert REAL_FIND("NVIDIA H200") == model_store.shipped("NVIDIA H200")
    assert REAL_FIND("an abacus") is None


def test_folders_are_named_after_devices() -> None:
    assert model_store.slug("NVIDIA H200") == "nvidia-h200"
    assert model_store.slug("AMD EPYC AVX512, 1 threads") == "amd-epyc-avx512"
    assert model_store.shipped("NVIDIA H200").parts[-3:] == ("data", "models", "nvidia-h200")

"""GPUs that a benchmark runs on: of one kind, each with a worker at least."""

from __future__ import annotations

import pytest
import torch

from passwright.passes.errors import SettingsError
from passwright.scheduler.device import DeviceDescriptor, describe_gpu
from passwright.training.bench import devices

GPUS = tuple(torch.device("cuda", number) for number in range(4))


def test_there_are_workers_for_the_cores_and_one_for_each_gpu(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(devices, "cores", lambda: 64)
    assert devices.default_jobs(GPUS) == 12
    assert devices.default_jobs((torch.device("cpu"),)) == 32
    monkeypatch.setattr(devices, "cores", lambda: 2)
    assert devices.default_jobs(GPUS) == 4
    assert devices.default_jobs((torch.device("cpu"),)) == 1


def describe(device: torch.device) -> DeviceDescriptor:
    """The last is another one."""
    return describe_gpu("NVIDIA A100-SXM4-80GB" if device == GPUS[-1] else "NVIDIA H200")


def test_gpus_of_one_kind_are_described_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "describe", describe)
    assert devices.one_kind(GPUS[:3]) == describe(GPUS[0])


def test_gpus_of_several_kinds_are_refused_with_what_there_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(devices, "describe", describe)
    with pytest.raises(SettingsError, match=r"cuda:0 NVIDIA H200 .*cuda:3 NVIDIA A100"):
        devices.one_kind(GPUS)

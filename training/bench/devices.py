"""Where the benchmark runs: one device, or several GPUs of one kind, among which cases are dealt out."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from passwright.passes.errors import SettingsError
from passwright.scheduler.device import DeviceDescriptor, describe
from passwright.training.processes import cores

#: A worker on a GPU compiles with so many processes more.
_CORES_A_JOB = {"cpu": 2, "cuda": 5}


def default_jobs(devices: Sequence[torch.device]) -> int:
    """So many that compiles are not in each other's way, since their seconds are compared; but one for each
    device at least."""
    return max(len(devices), cores() // _CORES_A_JOB[devices[0].type])


def one_kind(devices: Sequence[torch.device]) -> DeviceDescriptor:
    """What describes each of them. Raises SettingsError where they differ: a report is about one kind of
    device, and a case may fall to any of them."""
    found = {device: describe(device) for device in devices}
    first = found[devices[0]]
    if any(other.key() != first.key() for other in found.values()):
        listed = ", ".join(f"{device} {one.name} ({one.cores})" for device, one in found.items())
        raise SettingsError(
            "--device cuda: GPUs of several kinds have no report in common. Choose one with --device"
            " cuda:N, or those of one kind with CUDA_VISIBLE_DEVICES. With their multiprocessors there"
            f" are {listed}"
        )
    return first

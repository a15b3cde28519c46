"""What networks are trained on: a CPU or a GPU, or several processes that share each step.

Lightning Fabric starts the processes, moves what is to be moved, and averages gradients (PyTorch's
distributed data parallel; gloo between CPUs, NCCL between GPUs). It is loaded by training alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from passwright.passes.errors import SettingsError
from passwright.passes.originals import torch_as_it_was

if TYPE_CHECKING:
    from lightning_fabric import Fabric


def _hush() -> None:
    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)


# In a process that was started to share steps, this module is loaded after Fabric, and before it speaks.
_hush()


def fabric_for(device: str = "cpu", devices: int = 1) -> Fabric:
    """`device`: cpu, cuda or cuda:N. `devices`: processes, each with its own GPU or its part of the cores.

    Raises SettingsError if there are none such, with what there is.
    """
    kind, _, index = device.partition(":")
    there = torch.cuda.device_count() if kind == "cuda" else devices
    if kind not in ("cpu", "cuda") or (index and not index.isdigit()):
        raise SettingsError(f"networks are trained on cpu, cuda or cuda:N, not on {device!r}")
    if index and devices > 1:
        raise SettingsError(f"{device} is one GPU; ask for cuda to train on {devices}")
    if max(devices, int(index or 0) + 1) > there:
        raise SettingsError(f"{device} for {devices} processes: there are only {there} GPUs")
    # It would put a function of its own into the place of torch.compile.
    with torch_as_it_was("lightning_fabric"):
        from lightning_fabric import Fabric

    _hush()
    return Fabric(
        accelerator=kind,
        devices=[int(index)] if index else devices,
        strategy="ddp_spawn" if devices > 1 else "auto",
    )


def together(device: str, devices: int, work: Callable[..., Any], *arguments: Any) -> None:
    """Calls `work(fabric, *arguments)` in each of several processes, which share steps, and waits for all.

    Everything is sent to them, so it has to be picklable; what they find they have to write to files.
    """
    fabric = fabric_for(device, devices)
    fabric.launch(partial(_begin, work, arguments))


def _begin(work: Callable[..., Any], arguments: tuple[Any, ...], fabric: Fabric) -> None:
    from passwright.training.processes import end_with_parent

    end_with_parent()
    work(fabric, *arguments)

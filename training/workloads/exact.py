"""A workload from its exact name, whatever kind it is of: a model, a cut of one, or a random graph."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from passwright.scheduler.commands.models import load_model
from passwright.training.agreement import without_dropout
from passwright.training.workloads.registry import build
from passwright.training.workloads.spec import Spec


def build_exact(name: str, device: torch.device) -> tuple[nn.Module, Any]:
    """Module and inputs of one call, on the device; of a user's own model too, by `file.py:callable`.

    Every rate of dropout is 0, since runs that draw other numbers cannot be compared.
    Raises WorkloadError if they cannot be had.
    """
    module, inputs = _built(name, device)
    return without_dropout(module), inputs


def _built(name: str, device: torch.device) -> tuple[nn.Module, Any]:
    kind = name.partition(":")[0]
    if kind == "cut":
        from passwright.training.workloads import cuts

        return cuts.build(name, device=device)
    if kind == "random":
        from passwright.training.workloads.random_workloads import build_random

        return Spec.parse(name).build(build_random, device)
    return Spec.parse(name).build(_any_model, device)


def _any_model(
    name: str, *, batch: int | None, seed: int, device: torch.device, train: bool
) -> tuple[nn.Module, Any]:
    found = load_model(name, build, batch=batch, seed=seed, device=device, train=train)
    return found.module, found.inputs

"""Tasks of a user's checkout of KernelBench (Ouyang et al., arXiv 2502.10517) as models to measure.

A task is a Python file with a class `Model`, and functions `get_inputs` and `get_init_inputs` that give the
arguments of a call and of the constructor. Nothing of KernelBench comes with this package.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from passwright.passes.errors import WorkloadError, cause
from passwright.training.workloads.workload import quiet, seeded

PREFIX = "kernelbench:"
_LEVEL = "level*/*.py"
#: Where a checkout keeps its levels.
_FOLDERS = ("", "KernelBench", "KernelBench/KernelBench")


def tasks(home: Path) -> list[str]:
    """Names of the tasks, `kernelbench:level1/19_ReLU`. Raises WorkloadError where there are none."""
    root = _root(home)
    found = sorted(root.glob(_LEVEL), key=lambda path: (path.parent.name, _number(path), path.name))
    return [f"{PREFIX}{path.parent.name}/{path.stem}" for path in found]


def _root(home: Path) -> Path:
    for folder in _FOLDERS:
        if any((home / folder).glob(_LEVEL)):
            return home / folder
    raise WorkloadError(f"{home} holds no KernelBench tasks: there is no file {_LEVEL} in it")


def _number(path: Path) -> int:
    number = path.stem.partition("_")[0]
    return int(number) if number.isdecimal() else 0


def builder(home: Path) -> Callable[..., tuple[nn.Module, tuple[Any, ...]]]:
    """What builds a task by its name, as `workloads.build` builds a workload."""

    def build(
        name: str,
        *,
        batch: int | None = None,
        seed: int = 0,
        device: str | torch.device = "cpu",
        train: bool = False,
    ) -> tuple[nn.Module, tuple[Any, ...]]:
        if batch is not None:
            raise WorkloadError(f"{name}: the file says how many rows its inputs have")
        path = _root(home) / f"{name.removeprefix(PREFIX)}.py"
        try:
            with quiet(), seeded(seed):
                task = _loaded(path)
                module = task.Model(*task.get_init_inputs())
                inputs = tuple(task.get_inputs())
        except Exception as error:  # somebody else's code
            raise WorkloadError(f"{name}: {cause(error)}") from error
        module = module.to(device).train(train)
        inputs = pytree.tree_map_only(torch.Tensor, lambda t: t.detach().to(device), inputs)
        if train and not any(p.requires_grad for p in module.parameters()):
            _require_gradients(name, inputs)
        return module, inputs

    return build


def _loaded(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        f"kernelbench_{path.parent.name}_{path.stem}", path
    )
    if spec is None or spec.loader is None or not path.is_file():
        raise FileNotFoundError(f"there is no file {path.name} in {path.parent.name}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _require_gradients(name: str, inputs: tuple[Any, ...]) -> None:
    """As if the inputs came from a layer below: most tasks have no parameters of their own."""
    leaves = [leaf for leaf in pytree.tree_leaves(inputs) if isinstance(leaf, torch.Tensor)]
    numbers = [leaf for leaf in leaves if leaf.is_floating_point()]
    if not numbers:
        raise WorkloadError(f"{name}: there is nothing to train; run it in inference")
    for leaf in numbers:
        leaf.requires_grad_()

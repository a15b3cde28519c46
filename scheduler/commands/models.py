"""From a name on the command line to a module with inputs that can be run."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn

from passwright.passes.errors import SettingsError, WorkloadError
from passwright.scheduler.steps import inference_step, training_step

#: Builds a workload by name: (name, batch, seed, device, train) -> module and inputs.
BuildWorkload = Callable[..., tuple[nn.Module, tuple[Any, ...]]]

_WORKLOADS = ("zoo:", "own:", "case:")
_HOW = "A model is module:callable, path/to/file.py:callable, zoo:SOURCE/MODEL or own:MODEL"


@dataclass(frozen=True)
class Subject:
    """A model to work on: the module, what to call it with, and whether gradients are wanted."""

    name: str
    module: nn.Module
    inputs: Sequence[Any] | Mapping[str, Any] | torch.Tensor
    train: bool

    @property
    def phase(self) -> str:
        return "training" if self.train else "inference"

    def step(self, module: Callable[..., Any]) -> Callable[[], object]:
        """One inference or training step of the module, or of what was compiled from it."""
        make = training_step if self.train else inference_step
        return make(module, self.inputs)


def pick_device(name: str | None) -> torch.device:
    """The device of that name; CUDA where there is one if none is named. Raises SettingsError."""
    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise SettingsError(f"--device {name}: no such kind of device; try cpu or cuda") from error
    if device.type not in ("cpu", "cuda"):
        raise SettingsError(f"--device {name}: only cpu and cuda are supported")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        count = torch.cuda.device_count()
        raise SettingsError(f"--device {name}: torch sees {count} CUDA devices here")
    return device


def devices_of(device: torch.device) -> tuple[torch.device, ...]:
    """Where work goes that can be spread: `cuda` without a number means every GPU there is."""
    on_all = device.type == "cuda" and device.index is None
    count = torch.cuda.device_count() if on_all else 0
    return tuple(torch.device("cuda", number) for number in range(count)) or (device,)


def load_model(
    name: str,
    build_workload: BuildWorkload,
    *,
    batch: int | None = None,
    seed: int = 0,
    device: torch.device,
    train: bool = False,
) -> Subject:
    """The model of that name on the device. Raises WorkloadError if it cannot be had."""
    if name.startswith(_WORKLOADS):
        module, inputs = build_workload(name, batch=batch, seed=seed, device=device, train=train)
        return Subject(name, module, inputs, train)
    home, colon, attribute = name.rpartition(":")
    if not colon or not home or not attribute:
        raise WorkloadError(f"{name!r} names no model. {_HOW}")
    source = _from_file(Path(home)) if home.endswith(".py") else _from_module(home)
    torch.manual_seed(seed)
    with _blamed_on(name):
        made = _make(source, attribute, batch, name)
    if not (isinstance(made, Sequence) and len(made) == 2 and isinstance(made[0], nn.Module)):
        raise WorkloadError(f"{name} must return (module, inputs), not {type(made).__name__}")
    module = made[0].to(device).train(train)
    inputs = torch.utils._pytree.tree_map_only(torch.Tensor, lambda t: t.to(device), made[1])
    if not isinstance(inputs, (Sequence, Mapping, torch.Tensor)):
        raise WorkloadError(f"{name}: inputs must be a tuple, a dict or a tensor")
    return Subject(name, module, inputs, train)


def _make(source: ModuleType, attribute: str, batch: int | None, name: str) -> Any:
    maker = getattr(source, attribute, None)
    if not callable(maker):
        known = [key for key, value in vars(source).items() if callable(value) and key[0] != "_"]
        near = difflib.get_close_matches(attribute, known, n=3)
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        raise WorkloadError(f"{name}: there is no callable {attribute!r}{hint}")
    if batch is None:
        return maker()
    if "batch" not in inspect.signature(maker).parameters:
        raise WorkloadError(f"{name} takes no argument `batch`, so --batch cannot be given")
    return maker(batch=batch)


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise WorkloadError(f"there is no file {path}")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # As when Python runs a script: its neighbours can be imported, and it can be found by name.
    sys.path.insert(0, str(path.parent.resolve()))
    sys.modules.setdefault(path.stem, module)
    with _blamed_on(str(path)):
        spec.loader.exec_module(module)
    return module


def _from_module(name: str) -> ModuleType:
    if "" not in sys.path:  # a console script does not look into the working directory by itself
        sys.path.insert(0, "")
    try:
        found = importlib.util.find_spec(name)
    except (ImportError, ValueError):  # a parent is missing, or is no package
        found = None
    if found is None:
        hint = f"; a public model is zoo:{name}/MODEL" if name.isidentifier() else ""
        raise WorkloadError(f"there is no module {name!r}{hint}. {_HOW}")
    with _blamed_on(name):
        return importlib.import_module(name)


@contextmanager
def _blamed_on(name: str) -> Iterator[None]:
    """Names the user's file and line instead of a traceback through this package."""
    try:
        yield
    except WorkloadError:
        raise
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{frame.filename}:{frame.lineno}"
        raise WorkloadError(f"{name}: {type(error).__name__}: {error} ({where})") from error

"""A workload: a named model with inputs that fit it, rebuilt exactly from a seed."""

from __future__ import annotations

import contextlib
import importlib
import io
import random
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils import _pytree as pytree

from passwright.passes.errors import WorkloadError
from passwright.training.workloads.inputs import FIELDS, InputSource

INSTALL_ZOO = "pip install 'passwright[zoo]'"
#: With fewer there is nothing left of what the models do with several.
SMALLEST = {"fields": 3, "experts": 1, "width": 4, "layers": 1}


@dataclass(frozen=True)
class Setup:
    """What a model's constructor may need to know besides its own sizes."""

    seed: int
    device: torch.device
    #: How many fields, pieces or branches.
    size: int = FIELDS
    #: How many experts of each kind.
    experts: int = 0
    #: Columns of an embedding, a piece or a hidden state.
    width: int = 0
    #: How many layers or blocks.
    layers: int = 0


@dataclass(frozen=True)
class Workload:
    """A model by name.

    Attributes:
        name: as the command line spells it, `zoo:<source>/<model>` or `own:<model>`.
        family: the architecture in lower case. Codings of one architecture by several packages
            share it, so that a split by family keeps them on one side.
        package: the distribution that holds the model; None for our own.
        construct: makes the module; it is called with the random generators seeded.
        inputs: draws the positional arguments of one call.
        batch: the batch that is used when none is asked for.
        size: how many fields, pieces or branches the model has, which decides how long it compiles;
            None where nothing of the kind can be chosen.
        experts: likewise, how many experts of each kind a multi-task model has.
        width: likewise, the columns of an embedding, a piece or a hidden state.
        layers: likewise, how many layers or blocks.
        width_multiple: what the width has to be a multiple of, e.g. the number of heads.
        fewest_experts: with which the package builds the model.
        float32_only: what of the model is in float32 whatever its parameters are, so that it does not run
            in bfloat16; empty if it does.
        cpu_only: why the model does not run on a GPU; empty if it does.
    """

    name: str
    family: str
    package: str | None
    construct: Callable[[Setup], nn.Module]
    inputs: Callable[[InputSource], tuple[Any, ...]]
    batch: int = 512
    size: int | None = FIELDS
    experts: int | None = None
    width: int | None = None
    layers: int | None = None
    width_multiple: int = 1
    fewest_experts: int = SMALLEST["experts"]
    float32_only: str = ""
    cpu_only: str = ""

    def sized(
        self,
        *,
        fields: int | None = None,
        experts: int | None = None,
        width: int | None = None,
        layers: int | None = None,
    ) -> Workload:
        """The same model with another number of fields (pieces, branches), experts, columns or layers.

        Raises:
            WorkloadError: that cannot be chosen for this model, is too small, or does not divide.
        """
        wanted = {
            "fields": (fields, self.size),
            "experts": (experts, self.experts),
            "width": (width, self.width),
            "layers": (layers, self.layers),
        }
        plain, _, query = self.name.partition("?")
        chosen = dict(item.partition("=")[::2] for item in query.split(",") if item)
        for what, (number, usual) in wanted.items():
            if number is not None:
                self._check(what, number, usual, [name for name, (_, n) in wanted.items() if n])
                chosen[what] = str(number)
        # In one order, whichever was asked for first: one model has one name.
        sizes = [f"{what}={chosen[what]}" for what in wanted if what in chosen]
        return replace(
            self,
            name="?".join([plain, ",".join(sizes)]) if sizes else plain,
            size=fields or self.size,
            experts=experts or self.experts,
            width=width or self.width,
            layers=layers or self.layers,
        )

    def _check(self, what: str, number: int, usual: int | None, known: Sequence[str]) -> None:
        width = what == "width"
        if usual is None:
            others = f"what it takes is {', '.join(known)}" if known else "it takes no sizes"
            raise WorkloadError(
                f"{self.name} has no {'width' if width else f'number of {what}'} to choose;"
                f" leave {what}={number} out ({others})"
            )
        smallest = self.fewest_experts if what == "experts" else SMALLEST[what]
        if number < smallest:
            least = f"a width of {smallest}" if width else f"{smallest} {what}"
            raise WorkloadError(f"{self.name} needs {least} or more")
        if width and number % self.width_multiple:
            raise WorkloadError(
                f"{self.name} needs a width that is a multiple of {self.width_multiple}"
            )

    @property
    def source(self) -> str:
        """The part of the name that says whose model it is: `rechub`, `own`, ..."""
        return short_name(self.name).partition(":")[0]

    def build(
        self,
        *,
        batch: int | None = None,
        seed: int = 0,
        device: str | torch.device = "cpu",
        train: bool = False,
    ) -> tuple[nn.Module, tuple[Any, ...]]:
        """Make the module and the arguments of one call.

        Weights and inputs are drawn on the CPU and then moved, so every device gets the same ones.
        The caller's random state is left as it was.

        Args:
            batch: rows of the inputs.
            seed: of the weights and of the inputs.
            device: where both are put.
            train: training mode (dropout is on and batch norms use the batch) or evaluation mode. The
                inputs of a model without parameters then require a gradient, as if they came from a
                layer that has some.

        Raises:
            WorkloadError: the package that holds the model is not installed, there is nothing to train, or
                the model does not run on such a device.
        """
        if self.cpu_only and torch.device(device).type != "cpu":
            raise WorkloadError(f"{self.name} runs on a CPU alone: {self.cpu_only}")
        setup = Setup(
            seed,
            torch.device(device),
            self.size or FIELDS,
            self.experts or 0,
            self.width or 0,
            self.layers or 0,
        )
        with quiet(), seeded(seed):
            module = self.construct(setup)
        module = module.to(setup.device).train(train)
        inputs = self.example_inputs(batch=batch, seed=seed, device=device)
        if train and not any(p.requires_grad for p in module.parameters()):
            self._require_gradients(inputs)
        return module, inputs

    def _require_gradients(self, inputs: tuple[Any, ...]) -> None:
        numbers = [t for t in _tensors(inputs) if t.is_floating_point()]
        if not numbers:
            raise WorkloadError(
                f"{self.name} has no parameters and no inputs of floating point, so that there is nothing"
                " to train; run it in inference"
            )
        for tensor in numbers:
            tensor.requires_grad_()

    def example_inputs(
        self, *, batch: int | None = None, seed: int = 0, device: str | torch.device = "cpu"
    ) -> tuple[Any, ...]:
        """Draw the arguments of one call, without making the module."""
        rows = self.batch if batch is None else batch
        source = InputSource(rows, seed, self.size or FIELDS, self.width or 0)
        return tuple(_move(value, torch.device(device)) for value in self.inputs(source))


def short_name(name: str) -> str:
    """`zoo:rechub/MMOE` and `rechub:MMOE` both as `rechub:MMOE`."""
    return name.strip().removeprefix("zoo:").replace("/", ":", 1)


def require(module: str, package: str) -> ModuleType:
    """Import a module of a package that is not among Passwright's own dependencies.

    Raises:
        WorkloadError: the package, or one that it needs in turn, is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        missing = (error.name or module).partition(".")[0]
        reason = f"{package} is not installed"
        if missing != module.partition(".")[0]:
            reason = f"{package} needs the module {missing}, which is not installed"
        raise WorkloadError(f"{reason}. Get the public models with: {INSTALL_ZOO}") from error


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed the generators of torch, numpy and random; put their states back at the end."""
    # An uninitialised CUDA has no state to save, and asking for it would start it.
    cuda = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    numpy_state, python_state = np.random.get_state(), random.getstate()
    with torch.random.fork_rng(range(torch.cuda.device_count()) if cuda else ()):
        try:
            torch.manual_seed(seed)
            np.random.seed(seed % 2**32)
            random.seed(seed)
            yield
        finally:
            np.random.set_state(numpy_state)
            random.setstate(python_state)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep what a package prints and warns of while it is imported and built off the terminal."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        yield


def _tensors(inputs: Any) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(inputs) if isinstance(leaf, torch.Tensor)]


def _move(value: Any, device: torch.device) -> Any:
    if isinstance(value, dict):
        return {key: _move(item, device) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_move(item, device) for item in value)
    return value.to(device) if isinstance(value, torch.Tensor) else value

"""Whether compiled variants of a model compute what the model does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor, nn

from passwright.training.agreement import (
    Inputs,
    Observation,
    agreement,
    observe,
    oracle,
    shaken,
)


class Judge:
    """Compares outputs and gradients of variants with eager and a float64 run.

    Inputs are a tuple, a mapping of keyword arguments, or one tensor. Runs the module at once, in eager and
    in float64. Every run starts from the state that the module has now (`State`), and leaves it behind.
    Raises TypeError for other inputs.
    """

    def __init__(self, module: nn.Module, inputs: Any, *, train: bool, seed: int = 0) -> None:
        self._module, self._inputs = module, _called_with(inputs)
        self._how: dict[str, Any] = {"train": train, "seed": seed}
        self._state = State(module)
        # First, since a module that keeps a tensor of its last run cannot be copied any more.
        self._oracle = oracle(module, self._inputs, **self._how)
        self._expected = self._observed(module)
        self._shaken: list[Observation] | None = None

    def verdict(self, run: Any) -> dict[str, Any]:
        """Of anything that is called as the module is."""
        actual = self._observed(run)
        return asdict(agreement(self._expected, actual, self._oracle, self._shake))

    def _observed(self, run: Any) -> Observation:
        self._state.put_back()  # it may have run since, to be compiled or timed
        try:
            found = observe(self._module, run, self._inputs, **self._how)
            return self._state.apart(found)
        finally:
            self._state.put_back()

    def _shake(self) -> list[Observation]:
        if self._shaken is None:
            self._state.put_back()
            self._shaken = shaken(self._module, self._inputs, **self._how)
        return self._shaken


def _called_with(inputs: Any) -> Inputs:
    if isinstance(inputs, Tensor):
        return (inputs,)
    if isinstance(inputs, Mapping):
        return dict(inputs)
    if isinstance(inputs, Sequence):
        return tuple(inputs)
    raise TypeError(f"inputs must be a tuple, a dict or a tensor, not {type(inputs).__name__}")


class State:
    """What a run of a module may change and a later run may read: its buffers, and the numbers and tensors
    that its layers keep as plain attributes. Copied once; what a layer adds later to its attributes stays.
    """

    def __init__(self, module: nn.Module) -> None:
        self._layers = list(module.modules())
        self._buffers = [dict(layer._buffers) for layer in self._layers]
        self._attributes = [_kept(layer) for layer in self._layers]
        held = [v for d in (*self._buffers, *self._attributes) for v in d.values()]
        tensors = {id(v): v for v in held if isinstance(v, Tensor) and v.layout == torch.strided}
        self._values = [(value, value.detach().clone()) for value in tensors.values()]
        self._memory = {value.untyped_storage()._cdata for value in tensors.values()}

    def put_back(self) -> None:
        """Into the same tensors: what was compiled reads those."""
        for layer, buffers, attributes in zip(
            self._layers, self._buffers, self._attributes, strict=True
        ):
            if [*map(id, layer._buffers.values())] != [*map(id, buffers.values())]:
                layer._buffers.clear()
                layer._buffers.update(buffers)
            vars(layer).update(attributes)
        with torch.no_grad():
            for value, was in self._values:
                # What was expanded cannot be written, not even with what it holds.
                if not torch.equal(value, was):
                    value.copy_(was)

    def apart(self, found: Observation) -> Observation:
        """The observation without tensors that the next run writes."""
        return Observation(
            tuple(
                output.clone() if self._is_written(output) else output for output in found.outputs
            ),
            found.gradients,
        )

    def _is_written(self, output: Tensor) -> bool:
        return output.layout == torch.strided and output.untyped_storage()._cdata in self._memory


def _kept(layer: nn.Module) -> dict[str, Any]:
    """Tensors with a history are results of a call, and no state."""
    return {
        name: value
        for name, value in vars(layer).items()
        if isinstance(value, (bool, int, float))
        or (isinstance(value, Tensor) and not value.requires_grad)
    }

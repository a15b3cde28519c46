"""Callables without arguments to measure: one inference step, or one training step."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

#: Positional arguments, keyword arguments, or one tensor.
Inputs = Sequence[Any] | Mapping[str, Any] | Tensor


def call_arguments(inputs: Inputs) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and keyword arguments of a call with these inputs."""
    if isinstance(inputs, Tensor):
        return (inputs,), {}
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    return tuple(inputs), {}


def inference_step(module: Callable[..., Any], inputs: Inputs) -> Callable[[], object]:
    """A call of `module` without gradients; returns what the module returns.

    Train or eval mode is the caller's choice. The inputs are kept alive, and not copied.
    """
    args, kwargs = call_arguments(inputs)

    def step() -> object:
        with torch.no_grad():
            return module(*args, **kwargs)

    return step


def training_step(
    module: Callable[..., Any],
    inputs: Inputs,
    *,
    loss: Callable[[Any], Tensor] | None = None,
    seed: int = 0,
) -> Callable[[], None]:
    """A forward and a backward of `module`; afterwards `.grad` holds this step's gradients alone.

    Gradients of parameters (of a `torch.nn.Module`) and of inputs are set to None first, so the
    backward writes them instead of adding to them. When the step is captured as a CUDA graph, that
    happens once: each replay writes the same static gradients.

    Without `loss`, what is differentiated is the sum of all differentiable outputs, nested ones
    too, each element weighted by a fixed random number: gradients then differ from element to
    element, where those of a plain sum would be constant and let a wrong backward pass unnoticed.
    The weights are drawn in the first call (from `seed`, on the CPU, hence the same on any device)
    and given to autograd as they are, so no kernel of a loss is timed. Outputs of integers, and
    those that do not depend on anything that requires grad, are passed over.

    The step returns None, for outputs kept alive would tie the parameters' autograd nodes to the
    stream they were used on. Raises ValueError when no output can be differentiated.
    """
    args, kwargs = call_arguments(inputs)
    leaves = [t for t in _tensors((args, kwargs)) if t.is_leaf and t.requires_grad]
    if isinstance(module, torch.nn.Module):
        leaves += module.parameters()
    weights: list[Tensor] = []

    def step() -> None:
        for leaf in leaves:
            leaf.grad = None
        with torch.enable_grad():
            result = module(*args, **kwargs)
            if loss is not None:
                torch.autograd.backward([loss(result)])
                return
            outputs = [t for t in _tensors(result) if t.requires_grad]
            if not outputs:
                raise ValueError(
                    "nothing to train: no output requires a gradient; measure inference instead"
                )
            if [w.shape for w in weights] != [t.shape for t in outputs]:
                weights[:] = _weights(outputs, seed)
            torch.autograd.backward(outputs, weights)

    return step


def graph_step(
    compiled: Callable[..., Any], inputs: Sequence[Any], *, training: bool, seed: int = 0
) -> Callable[[], object]:
    """A step of a compiled graph, whose inputs include its parameters."""
    if training:
        return training_step(compiled, inputs, seed=seed)
    return inference_step(compiled, inputs)


def peak_memory(step: Callable[[], object], device: torch.device) -> int | None:
    """Bytes that one call needs at its peak beyond what was allocated before it.

    It is called once before, to compile and to settle; None on a CPU, where torch keeps no count.
    """
    if device.type != "cuda":
        return None
    step()
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    step()
    torch.cuda.synchronize(device)
    return torch.cuda.max_memory_allocated(device) - before


def _tensors(value: Any) -> Iterator[Tensor]:
    """The tensors in nested sequences, mappings and dataclasses, in order."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _tensors(item)
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _tensors(item)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for entry in dataclasses.fields(value):
            yield from _tensors(getattr(value, entry.name))


def _weights(outputs: Sequence[Tensor], seed: int) -> list[Tensor]:
    """Random cotangents with each output's shape, dtype, device and, where dense, strides."""
    generator = torch.Generator().manual_seed(seed)
    weights = []
    for output in outputs:
        wide = torch.complex128 if output.is_complex() else torch.float64
        drawn = torch.randn(output.shape, dtype=wide, generator=generator)
        weights.append(torch.empty_like(output, requires_grad=False).copy_(drawn))
    return weights

"""The graphs that Dynamo makes of a model, and what it calls them with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn

from passwright.scheduler.inductor import clone_for_compile, many_compiles
from passwright.scheduler.steps import call_arguments


@dataclass(frozen=True)
class Captured:
    """A graph of Torch-IR, and the arguments of its first call.

    Attributes:
        graph: a copy with nodes of its own; tensors that it holds are shared with the model.
        arguments: one for each placeholder, tensors copied as they were before the call.
        parameters: positions of the arguments that are parameters of the model.
        buffers: positions of those that are its buffers.
    """

    graph: fx.GraphModule
    arguments: tuple[Any, ...]
    parameters: frozenset[int]
    buffers: frozenset[int]


Around = Callable[[], AbstractContextManager[None]]


def captured(
    module: nn.Module, inputs: Any, *, train: bool, around: Around = nullcontext
) -> list[fx.GraphModule]:
    """The Torch-IR graphs of one call, as Dynamo hands them to a backend; see `capture`."""
    return [found.graph for found in capture(module, inputs, train=train, around=around)]


def capture(
    module: nn.Module, inputs: Any, *, train: bool, around: Around = nullcontext
) -> list[Captured]:
    """Calls the module once, eagerly, and returns its graphs in the order of their calls.

    The call is a forward; it leaves in the module's buffers what a forward leaves there. Sizes are
    static, whatever was compiled before, and what was compiled before stays usable.

    Args:
        module: in the mode that is wanted; `train` does not set it.
        inputs: positional arguments, keyword arguments, or one tensor.
        train: with gradients, as before a backward; without them otherwise.
        around: is entered while a graph runs, and not while Dynamo thinks.
    """
    found: list[Captured] = []
    buffers = {id(buffer) for buffer in module.buffers()}

    def backend(gm: fx.GraphModule, _: Sequence[Any]) -> Callable[..., Any]:
        graph = clone_for_compile(gm)
        called = False

        def run(*arguments: Any) -> Any:
            nonlocal called
            with around():
                if not called:
                    called = True
                    found.append(_captured(graph, arguments, buffers))
                return gm.forward(*arguments)

        return run

    arguments, named = call_arguments(inputs)
    # Not `dynamo.reset()`, after which all that the process has compiled would compile again.
    with many_compiles(), torch.set_grad_enabled(train):
        torch.compile(module, backend=backend, dynamic=False)(*arguments, **named)
    return found


def copy_of(value: Tensor, device: torch.device | None = None) -> Tensor:
    """A leaf with the same numbers, sizes and strides in memory of its own, on its device or another."""
    if value.layout != torch.strided or value.numel() == 0:
        return value.detach().to(device, copy=True).requires_grad_(value.requires_grad)
    pairs = zip(value.shape, value.stride(), strict=True)
    extent = 1 + sum((size - 1) * step for size, step in pairs)
    memory = value.detach().as_strided((extent,), (1,), value.storage_offset())
    made = memory.to(device, copy=True).as_strided(value.shape, value.stride()).detach()
    return made.requires_grad_(value.requires_grad)


def _captured(graph: fx.GraphModule, arguments: Sequence[Any], buffers: set[int]) -> Captured:
    numbered = list(enumerate(arguments))
    return Captured(
        graph,
        tuple(copy_of(v) if isinstance(v, Tensor) else v for v in arguments),
        frozenset(i for i, v in numbered if isinstance(v, nn.Parameter)),
        frozenset(i for i, v in numbered if id(v) in buffers),
    )

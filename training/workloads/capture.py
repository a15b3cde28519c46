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
    return copies_of([value], device)[0]


def copies_of(values: Sequence[Tensor], device: torch.device | None = None) -> list[Tensor]:
    """Leaves as by `copy_of`. Those whose originals overlap share memory, and lie in it as these do, also
    those of different types.

    Slices of one tensor take no more memory than it does; what lies between two that do not overlap is
    not copied.
    """
    made: dict[int, Tensor] = {}
    for numbers in _overlapping(values):
        places = [_place(values[number]) for number in numbers]
        start = min(place.start for place in places) // _WHOLE * _WHOLE
        size = max(place.stop for place in places) - start
        there = values[numbers[0]].untyped_storage()
        memory = _laid(there, torch.uint8, start, (size,), (1,)).to(device, copy=True)
        for number, place in zip(numbers, places, strict=True):
            value = values[number]
            offset = (place.start - start) // value.itemsize
            copy = _laid(memory.untyped_storage(), value.dtype, offset, value.shape, value.stride())
            copy = copy.conj() if value.is_conj() else copy
            made[number] = torch._neg_view(copy) if value.is_neg() else copy
    return [
        (made[number] if number in made else value.to(device, copy=True))
        .detach()
        .requires_grad_(value.requires_grad)
        for number, value in enumerate(values)
    ]


#: Bytes of the largest element: elements of all types lie as before in memory cut at a multiple of it.
_WHOLE = torch.complex128.itemsize


def _laid(
    memory: torch.UntypedStorage,
    dtype: torch.dtype,
    offset: int,
    shape: Sequence[int],
    strides: Sequence[int],
) -> Tensor:
    """What lies there in memory; no view of anything, so that neither bits nor gradients are handed on."""
    empty = torch.empty(0, dtype=dtype, device=memory.device)
    return empty.set_(memory, offset, tuple(shape), tuple(strides))


def _overlapping(values: Sequence[Tensor]) -> list[list[int]]:
    """Numbers of those that lie in one stretch of memory; without those that have none, or of a kind that
    bytes do not tell all of."""
    storages: dict[int, list[int]] = {}
    for number, value in enumerate(values):
        plain = type(value) in (Tensor, nn.Parameter) and not value.is_quantized
        if plain and value.layout == torch.strided and value.numel():
            storages.setdefault(value.untyped_storage()._cdata, []).append(number)
    found: list[list[int]] = []
    for numbers in storages.values():
        end = -1
        for number in sorted(numbers, key=lambda number: _place(values[number]).start):
            place = _place(values[number])
            if place.start >= end:
                found.append([])
            found[-1].append(number)
            end = max(end, place.stop)
    return found


def _place(value: Tensor) -> range:
    """From the first of its bytes to the last, in its storage."""
    pairs = zip(value.shape, value.stride(), strict=True)
    extent = 1 + sum((size - 1) * step for size, step in pairs)
    start = value.storage_offset()
    return range(start * value.itemsize, (start + extent) * value.itemsize)


def copied(arguments: Sequence[Any]) -> tuple[Any, ...]:
    """The arguments with copies of the tensors among them."""
    copies = iter(copies_of([value for value in arguments if isinstance(value, Tensor)]))
    return tuple(next(copies) if isinstance(value, Tensor) else value for value in arguments)


def _captured(graph: fx.GraphModule, arguments: Sequence[Any], buffers: set[int]) -> Captured:
    numbered = list(enumerate(arguments))
    return Captured(
        graph,
        copied(arguments),
        frozenset(i for i, v in numbered if isinstance(v, nn.Parameter)),
        frozenset(i for i, v in numbered if id(v) in buffers),
    )

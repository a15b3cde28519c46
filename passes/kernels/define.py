"""How the ops are made known to torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from passwright.passes.kernels import importable

#: Types with a kernel; what else there is, plain torch computes.
HALF = (torch.bfloat16, torch.float16)
SINGLE = (*HALF, torch.float32)
SINGLE_OR_DOUBLE = (*SINGLE, torch.float64)


def define(
    name: str, function: Callable[..., Any], shapes: Callable[..., Any]
) -> torch._ops.OpOverload:
    """The op `passwright::name`; `shapes` makes its results, of any content. They are to be new memory,
    row by row, whatever the strides of its inputs are: `passes.strides` counts on it.

    With Triton it is a `triton_op`: AOTAutograd looks inside, so Inductor compiles the kernels into
    the graph. That is so for a CPU's tensors as well, and it is why `function` itself turns to plain
    torch for them: what is registered for one device alone is not seen when AOTAutograd traces.
    """
    from torch.library import custom_op, triton_op

    # `triton_op` warns where there is no Triton.
    make: Any = triton_op if importable() else custom_op
    made = make(f"passwright::{name}", function, mutates_args=())
    made.register_fake(shapes)
    found = getattr(torch.ops.passwright, name).default
    assert isinstance(found, torch._ops.OpOverload)
    return found


def has_kernel(tensor: Tensor, types: tuple[torch.dtype, ...]) -> bool:
    """The tensor lies where Triton's kernels run, in a type that they take."""
    return tensor.device.type == "cuda" and tensor.dtype in types and importable()


def rows_of(tensors: list[Tensor]) -> list[Tensor]:
    """The matrices with each row in one piece, which is how the kernels read them."""
    return [t if t.stride(-1) == 1 else t.contiguous() for t in tensors]


def pieces(x: Tensor, sizes: list[int], dim: int = 0) -> list[Tensor]:
    """Views of consecutive parts along `dim`."""
    return list(x.split(sizes, dim))  # type: ignore[no-untyped-call]


def common(tensors: list[Tensor], what: str) -> None:
    """Raises ValueError unless all have one type and lie on one device."""
    kinds = {(t.dtype, t.device) for t in tensors}
    if len(kinds) != 1:
        raise ValueError(f"{what}: tensors of several types or devices: {sorted(map(str, kinds))}")

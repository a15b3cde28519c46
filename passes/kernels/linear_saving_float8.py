"""A Linear that keeps its input for the backward in 8 bits.

    linear_saving_float8(x, weight, bias) = linear(x, weight, bias)

The result is that of a Linear, bit for bit, and so is the gradient of `x`. The gradient of `weight`,
which alone needs `x`, is made of `x` rounded to float8 (e4m3, one scale for the whole tensor): a
relative error of up to 2**-4 an element. What is kept takes a quarter of the memory of float32. Known
from Optimus' activation_quantization_aten.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from passwright.passes.kernels.define import define

_TYPE = torch.float8_e4m3fn
_LARGEST = torch.finfo(_TYPE).max
_TINY = torch.finfo(torch.float32).tiny


def to_float8(x: Tensor) -> tuple[Tensor, Tensor]:
    """`x` in 8 bits, and the float32 factor by which to multiply it to have `x` again."""
    wide = x.float()
    scale = (wide.abs().amax() / _LARGEST).clamp(min=_TINY)
    return (wide / scale).to(_TYPE), scale


def _forward(x: Tensor, weight: Tensor, bias: Tensor | None, version: str) -> Tensor:
    return F.linear(x, weight, bias)


def _shapes(x: Tensor, weight: Tensor, bias: Tensor | None, version: str) -> Tensor:
    return x.new_empty((*x.shape[:-1], weight.shape[0]))


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, weight, _, _ = inputs
    with torch.no_grad():
        small, scale = to_float8(x)
    ctx.save_for_backward(small, scale, weight)
    ctx.dtype = x.dtype


def _backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    small, scale, weight = ctx.saved_tensors
    wanted = ctx.needs_input_grad
    rows = gradient.flatten(0, -2)
    of_x = gradient @ weight if wanted[0] else None
    of_weight = None
    if wanted[1]:
        x = (small.float() * scale).to(ctx.dtype)
        of_weight = rows.t() @ x.flatten(0, -2)
    of_bias = rows.sum(0) if wanted[2] else None
    return of_x, of_weight, of_bias, None


LINEAR_SAVING_FLOAT8 = define("linear_saving_float8", _forward, _shapes)
torch.library.register_autograd("passwright::linear_saving_float8", _backward, setup_context=_keep)

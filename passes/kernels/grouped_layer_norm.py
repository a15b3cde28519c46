"""k layer norms in one launch, of any widths, each with a weight and a bias of its own.

    grouped_layer_norm([x_0, x_1], [w_0, w_1], [b_0, b_1], eps)
        = cat([layer_norm(x_0, w_0, b_0), layer_norm(x_1, w_1, b_1)], -1)

Inputs are (rows, width_i), pieces of one tensor or not, weights and biases (width_i) or none at all;
the result is (rows, sum of width_i). A program normalises some rows of one member, which it reads once.
In the backward it walks over its part of the rows, so that the gradients of weight and bias leave it as
one row of partial sums, added up in a fixed order.

Where it pays, against separate norms and against one over stacked inputs, by widths:
data/devices/kernels-h200.json, made and shown by `python -m passwright.training.kernel_sweep FILE`.

Half precision is normalised in float32, as in torch's own kernel.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from passwright.passes.kernels.define import (
    SINGLE_OR_DOUBLE,
    common,
    define,
    has_kernel,
    pieces,
    rows_of,
)
from passwright.passes.kernels.text import (
    Steps,
    blocks,
    kernel,
    launch,
    numbered,
    parts_of,
    pick,
    power_of_two,
    starts_of,
)

aten = torch.ops.aten

#: Widest row that one program holds.
WIDEST = 4096
#: Elements of a tile, and programs over all members of a backward.
_TILE, _PROGRAMS = 2048, 512


def _forward(
    inputs: list[Tensor], weights: list[Tensor], biases: list[Tensor], eps: float, version: str
) -> Tensor:
    common([*inputs, *weights, *biases], "grouped_layer_norm")
    if has_kernel(inputs[0], SINGLE_OR_DOUBLE):
        return forward_kernel(inputs, weights, biases, eps)
    empty = [None] * len(inputs)
    return torch.cat(
        [
            F.layer_norm(x, x.shape[-1:], w, b, eps)
            for x, w, b in zip(inputs, weights or empty, biases or empty, strict=True)
        ],
        1,
    )


def _forward_shape(
    inputs: list[Tensor], weights: list[Tensor], biases: list[Tensor], eps: float, version: str
) -> Tensor:
    return inputs[0].new_empty((inputs[0].shape[0], sum(x.shape[1] for x in inputs)))


def _gradient(
    gradient: Tensor, inputs: list[Tensor], weights: list[Tensor], eps: float, version: str
) -> tuple[Tensor, Tensor, Tensor]:
    if has_kernel(gradient, SINGLE_OR_DOUBLE):
        return backward_kernel(gradient, inputs, weights, eps)
    found = []
    parts = pieces(gradient, [x.shape[1] for x in inputs], 1)
    for n, (part, x) in enumerate(zip(parts, inputs, strict=True)):
        weight, bias = (weights[n] if weights else torch.ones_like(x[0])), torch.zeros_like(x[0])
        shape = list(x.shape[1:])
        _, mean, scale = aten.native_layer_norm(x, shape, weight, bias, eps)
        found.append(
            aten.native_layer_norm_backward(
                part.contiguous(), x, shape, mean, scale, weight, bias, [True, True, True]
            )
        )
    of_inputs, of_weights, of_biases = zip(*found, strict=True)
    return torch.cat(of_inputs, 1), torch.cat(of_weights), torch.cat(of_biases)


def _gradient_shape(
    gradient: Tensor, inputs: list[Tensor], weights: list[Tensor], eps: float, version: str
) -> tuple[Tensor, Tensor, Tensor]:
    total = sum(x.shape[1] for x in inputs)
    return (
        gradient.new_empty((gradient.shape[0], total)),
        gradient.new_empty((total,)),
        gradient.new_empty((total,)),
    )


# ---- launches


def forward_kernel(
    inputs: list[Tensor], weights: list[Tensor], biases: list[Tensor], eps: float
) -> Tensor:
    """The result, by Triton."""
    inputs = rows_of(inputs)
    weights, biases = [w.contiguous() for w in weights], [b.contiguous() for b in biases]
    rows, widths = inputs[0].shape[0], [int(x.shape[1]) for x in inputs]
    columns = starts_of(widths)
    y = inputs[0].new_empty((rows, columns[-1]))
    for members in parts_of(len(inputs)):
        own = [inputs[i] for i in members]
        steps = Steps.of(own)
        block = _block([widths[i] for i in members])
        lines = [
            "member = tl.program_id(1)",
            *_members(members, steps, widths, columns, bool(weights), bool(biases)),
            (
                f"norm_rows(x, w, b, y + column, rows, width, step, {columns[-1]}, tl.program_id(0),"
                f" {float(eps)!r}, {bool(weights)}, {bool(biases)}, {_wide(y)}, {block[0]}, {block[1]})"
            ),
        ]
        count = len(members)
        names = [*numbered("x", count), *numbered("w", count * bool(weights))]
        names += [*numbered("b", count * bool(biases)), "y", "rows", *steps.names]
        affine = [values[i] for values in (weights, biases) if values for i in members]
        launch(
            kernel("grouped_layer_norm", names, lines),
            (blocks(rows, block[0]), count),
            *own,
            *affine,
            y,
            rows,
            *steps.values,
        )
    return y


def backward_kernel(
    gradient: Tensor, inputs: list[Tensor], weights: list[Tensor], eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of the inputs (rows, sum of width_i), the weights and the biases (sum of width_i)."""
    gradient, inputs = gradient.contiguous(), rows_of(inputs)
    weights = [w.contiguous() for w in weights]
    rows, widths = gradient.shape[0], [int(x.shape[1]) for x in inputs]
    columns = starts_of(widths)
    of_inputs = torch.empty_like(gradient)
    parts = max(8, _PROGRAMS // len(inputs))
    wide = torch.float64 if gradient.dtype is torch.float64 else torch.float32
    of_weights = gradient.new_empty((parts, columns[-1]), dtype=wide)
    of_biases = gradient.new_empty((parts, columns[-1]), dtype=wide)
    for members in parts_of(len(inputs)):
        own = [inputs[i] for i in members]
        steps = Steps.of(own)
        block = _block([widths[i] for i in members])
        lines = [
            "part = tl.program_id(0)",
            "member = tl.program_id(1)",
            *_members(members, steps, widths, columns, bool(weights), False),
            f"size = tl.cdiv(rows, {parts * block[0]}) * {block[0]}",
            f"place = part * {columns[-1]} + column",
            (
                "norm_rows_backward(g + column, x, w, gx + column, gw + place, gb + place, rows, width,"
                f" step, {columns[-1]}, part * size, tl.minimum(part * size + size, rows),"
                f" {float(eps)!r}, {bool(weights)}, {_wide(gradient)}, {block[0]}, {block[1]})"
            ),
        ]
        count = len(members)
        names = ["g", *numbered("x", count), *numbered("w", count * bool(weights))]
        names += ["gx", "gw", "gb", "rows", *steps.names]
        launch(
            kernel("grouped_layer_norm_gradient", names, lines),
            (parts, count),
            gradient,
            *own,
            *(weights[i] for i in members if weights),
            of_inputs,
            of_weights,
            of_biases,
            rows,
            *steps.values,
        )
    sums = [value.sum(0).to(gradient.dtype) for value in (of_weights, of_biases)]
    return of_inputs, sums[0], sums[1]


def _members(
    members: range,
    steps: Steps,
    widths: list[int],
    columns: list[int],
    has_weight: bool,
    has_bias: bool,
) -> list[str]:
    """Lines that pick a member's pointers and sizes."""
    choices: list[dict[str, object]] = [
        {"x": f"x{n}", "w": f"w{n}" if has_weight else 0, "b": f"b{n}" if has_bias else 0,
         "step": steps.texts[n], "width": widths[i], "column": columns[i]}
        for n, i in enumerate(members)
    ]  # fmt: skip
    return pick("member", range(len(members)), choices)


def _block(widths: list[int]) -> tuple[int, int]:
    """Rows and columns of a tile."""
    width = max(16, power_of_two(max(widths)))
    return max(1, _TILE // width), width


def _wide(value: Tensor) -> str:
    return "tl.float64" if value.dtype is torch.float64 else "tl.float32"


# ---- autograd


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    sources, weights, biases, eps, version = inputs
    ctx.save_for_backward(*sources, *weights)
    ctx.count, ctx.eps, ctx.version = len(sources), eps, version
    ctx.has_weight, ctx.has_bias = bool(weights), bool(biases)


def _backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
    sources, weights = list(ctx.saved_tensors[: ctx.count]), list(ctx.saved_tensors[ctx.count :])
    widths = [x.shape[1] for x in sources]
    of_inputs, of_weights, of_biases = GRADIENT(
        gradient.contiguous(), sources, weights, ctx.eps, ctx.version
    )
    return (
        pieces(of_inputs, widths, 1),
        pieces(of_weights, widths) if ctx.has_weight else [],
        pieces(of_biases, widths) if ctx.has_bias else [],
        None,
        None,
    )


GRADIENT = define("grouped_layer_norm_gradient", _gradient, _gradient_shape)
#: (inputs, weights, biases, eps, version) -> (rows, sum of width_i)
GROUPED_LAYER_NORM = define("grouped_layer_norm", _forward, _forward_shape)
torch.library.register_autograd("passwright::grouped_layer_norm", _backward, setup_context=_save)

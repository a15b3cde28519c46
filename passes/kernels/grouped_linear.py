"""k Linears of any widths in one launch, each with an input of its own; bias and activation with them.

    grouped_linear([x_0, x_1], [w_0, w_1], [b_0, b_1], "relu")
        = cat([relu(x_0 @ w_0.T + b_0), relu(x_1 @ w_1.T + b_1)], -1)

Inputs (rows, in_i) may be pieces of one tensor, weights are (out_i, in_i), biases (out_i) or none at
all; the result is (rows, sum of out_i). Tiles of all members are numbered through; see the package for
how a program finds its member. The gradient of the inputs is one more such launch. That of the weights
sums over the rows: where the members are few and small the rows are parted, and the parts added in a
fixed order, so that the same call gives the same bits.

Where it pays, against separate Linears and against one batched GEMM of copies, by widths and precision:
data/devices/kernels-h200.json, made and shown by `python -m passwright.training.kernel_sweep FILE`.

Sums are in float32, products of float32 in TF32 where torch allows it, as in its own Linear. float64
is computed by plain torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from passwright.passes.kernels.define import (
    HALF,
    SINGLE,
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

ACTIVATIONS = ("none", "relu", "sigmoid", "tanh")
#: Programs that fill a large GPU twice.
_FILL = 264
#: Most parts of the rows in a gradient of the weights.
_PARTS = 16


def _forward(
    inputs: list[Tensor],
    weights: list[Tensor],
    biases: list[Tensor],
    activation: str,
    version: str,
) -> Tensor:
    common([*inputs, *weights, *biases], "grouped_linear")
    if has_kernel(inputs[0], SINGLE):
        return forward_kernel(inputs, weights, biases, activation)
    given = biases or [None] * len(inputs)  # type: ignore[list-item]
    parts = [F.linear(x, w, b) for x, w, b in zip(inputs, weights, given, strict=True)]
    return _activated(torch.cat(parts, 1), activation)


def _forward_shape(
    inputs: list[Tensor], weights: list[Tensor], biases: list[Tensor], activation: str, version: str
) -> Tensor:
    return inputs[0].new_empty((inputs[0].shape[0], sum(w.shape[0] for w in weights)))


def _input_gradient(gradient: Tensor, weights: list[Tensor], version: str) -> Tensor:
    if has_kernel(gradient, SINGLE):
        return input_gradient_kernel(gradient, weights)
    parts = pieces(gradient, [w.shape[0] for w in weights], 1)
    return torch.cat([part @ w for part, w in zip(parts, weights, strict=True)], 1)


def _input_gradient_shape(gradient: Tensor, weights: list[Tensor], version: str) -> Tensor:
    return gradient.new_empty((gradient.shape[0], sum(w.shape[1] for w in weights)))


def _weight_gradient(
    gradient: Tensor, inputs: list[Tensor], widths: list[int], version: str
) -> Tensor:
    if has_kernel(gradient, SINGLE):
        return weight_gradient_kernel(gradient, inputs, widths)
    parts = pieces(gradient, widths, 1)
    return torch.cat([(part.T @ x).reshape(-1) for part, x in zip(parts, inputs, strict=True)])


def _weight_gradient_shape(
    gradient: Tensor, inputs: list[Tensor], widths: list[int], version: str
) -> Tensor:
    return gradient.new_empty((sum(n * x.shape[1] for n, x in zip(widths, inputs, strict=True)),))


# ---- launches


def forward_kernel(
    inputs: list[Tensor], weights: list[Tensor], biases: list[Tensor], activation: str
) -> Tensor:
    """The result, by Triton."""
    inputs, weights = rows_of(inputs), [w.contiguous() for w in weights]
    biases = [b.contiguous() for b in biases]
    rows, widths = inputs[0].shape[0], [int(w.shape[0]) for w in weights]
    y = inputs[0].new_empty((rows, sum(widths)))
    columns = starts_of(widths)
    for members in parts_of(len(inputs)):
        own = [widths[i] for i in members]
        inner = [int(weights[i].shape[1]) for i in members]
        block = _block(rows, own, inner, y.dtype)
        tiles = _tiles(own, block[1])
        steps = Steps.of([inputs[i] for i in members])
        choices: list[dict[str, object]] = [
            {"x": f"x{n}", "w": f"w{n}", "b": f"b{n}" if biases else 0,
             "step": steps.texts[n], "inner": inner[n], "width": own[n],
             "column": columns[i], "first": tiles[n]}
            for n, i in enumerate(members)
        ]  # fmt: skip
        lines = [
            "tile = tl.program_id(1)",
            *pick("tile", tiles, choices),
            (
                f"product_tile(x, w, b, y + column, rows, width, 0, inner, step, 1, 1, inner,"
                f" {columns[-1]}, tl.program_id(0), tile - first, {bool(biases)}, {activation!r},"
                f" {_precision(y.dtype)!r}, {', '.join(map(str, block))})"
            ),
        ]
        count = len(members)
        names = [*numbered("x", count), *numbered("w", count)]
        names += [*numbered("b", count * bool(biases)), "y", "rows", *steps.names]
        launch(
            kernel("grouped_linear", names, lines),
            (blocks(rows, block[0]), tiles[-1]),
            *(inputs[i] for i in members),
            *(weights[i] for i in members),
            *(biases[i] for i in members if biases),
            y,
            rows,
            *steps.values,
        )
    return y


def input_gradient_kernel(gradient: Tensor, weights: list[Tensor]) -> Tensor:
    """(rows, sum of in_i): what `gradient` (rows, sum of out_i) makes of each weight."""
    gradient, weights = gradient.contiguous(), [w.contiguous() for w in weights]
    rows = gradient.shape[0]
    sums, widths = [int(w.shape[0]) for w in weights], [int(w.shape[1]) for w in weights]
    y = gradient.new_empty((rows, sum(widths)))
    columns, sources = starts_of(widths), starts_of(sums)
    for members in parts_of(len(weights)):
        own, inner = [widths[i] for i in members], [sums[i] for i in members]
        block = _block(rows, own, inner, y.dtype)
        tiles = _tiles(own, block[1])
        choices: list[dict[str, object]] = [
            {"w": f"w{n}", "source": sources[i], "inner": inner[n], "width": own[n],
             "column": columns[i], "first": tiles[n]}
            for n, i in enumerate(members)
        ]  # fmt: skip
        lines = [
            "tile = tl.program_id(1)",
            *pick("tile", tiles, choices),
            (
                f"product_tile(g + source, w, 0, y + column, rows, width, 0, inner, {sources[-1]}, 1,"
                f" width, 1, {columns[-1]}, tl.program_id(0), tile - first, False, 'none',"
                f" {_precision(y.dtype)!r}, {', '.join(map(str, block))})"
            ),
        ]
        names = ["g", *numbered("w", len(members)), "y", "rows"]
        made = kernel("grouped_linear_input_gradient", names, lines)
        grid = (blocks(rows, block[0]), tiles[-1])
        launch(made, grid, gradient, *(weights[i] for i in members), y, rows)
    return y


def weight_gradient_kernel(gradient: Tensor, inputs: list[Tensor], widths: list[int]) -> Tensor:
    """All gradients of weights one after the other, each (out_i, in_i) in row-major order."""
    gradient, inputs = gradient.contiguous(), rows_of(inputs)
    # Sizes become part of the text: a symbolic one is narrowed to its value.
    widths, inner = [int(n) for n in widths], [int(x.shape[1]) for x in inputs]
    rows = gradient.shape[0]
    places = starts_of([n * k for n, k in zip(widths, inner, strict=True)])
    sources = starts_of(widths)
    block = _block(max(widths), inner, [4096], gradient.dtype)
    grids = [(blocks(n, block[0]), blocks(k, block[1])) for n, k in zip(widths, inner, strict=True)]
    parts = max(1, min(_PARTS, _FILL // sum(m * n for m, n in grids)))
    total = gradient.new_empty((parts, places[-1]), dtype=torch.float32)
    for members in parts_of(len(inputs)):
        tiles = starts_of([grids[i][0] * grids[i][1] for i in members])
        own = [inputs[i] for i in members]
        steps = Steps.of(own)
        choices: list[dict[str, object]] = [
            {"x": f"x{n}", "step": steps.texts[n], "source": sources[i],
             "height": widths[i], "width": inner[i], "place": places[i], "first": tiles[n],
             "across": grids[i][1]}
            for n, i in enumerate(members)
        ]  # fmt: skip
        lines = [
            "tile = tl.program_id(0)",
            "part = tl.program_id(1)",
            *pick("tile", tiles, choices),
            "tile = tile - first",
            f"size = tl.cdiv(rows, {parts * block[2]}) * {block[2]}",
            (
                f"product_tile(g + source, x, 0, y + part.to(tl.int64) * {places[-1]} + place, height,"
                " width, part * size, tl.minimum(part * size + size, rows),"
                f" 1, {sources[-1]}, step, 1, width, tile // across, tile % across, False, 'none',"
                f" {_precision(gradient.dtype)!r}, {', '.join(map(str, block))})"
            ),
        ]
        count = len(members)
        names = ["g", *numbered("x", count), "y", "rows", *steps.names]
        made = kernel("grouped_linear_weight_gradient", names, lines)
        launch(made, (tiles[-1], parts), gradient, *own, total, rows, *steps.values)
    return (total.sum(0) if parts > 1 else total.reshape(-1)).to(gradient.dtype)


def _block(
    rows: Any, widths: Sequence[int], inner: Sequence[int], dtype: torch.dtype
) -> tuple[int, int, int]:
    """Rows, columns and inner length of a tile: small where tiles would be few."""
    columns = min(64, max(16, power_of_two(max(widths))))
    length = min(64 if dtype in HALF else 32, max(16, power_of_two(max(inner))))
    # A symbolic number of rows is not asked for its value: that would be a guard.
    known = rows if type(rows) is int else 4096
    programs = blocks(known, 64) * _tiles(widths, columns)[-1]
    return (64 if programs >= _FILL else 32, columns, length)


def _tiles(widths: Sequence[int], block: int) -> list[int]:
    return starts_of([blocks(width, block) for width in widths])


def _precision(dtype: torch.dtype) -> str:
    tf32 = dtype is torch.float32 and torch.get_float32_matmul_precision() != "highest"
    return "tf32" if tf32 else "ieee"


# ---- autograd


def _activated(y: Tensor, activation: str) -> Tensor:
    if activation not in ACTIVATIONS:
        raise ValueError(f"no activation {activation!r}; there are {', '.join(ACTIVATIONS)}")
    return y if activation == "none" else getattr(torch, activation)(y)


def _before_activation(gradient: Tensor, y: Tensor | None, activation: str) -> Tensor:
    """The gradient of the sums, from that of the result and the result."""
    if activation == "relu":
        return aten.threshold_backward(gradient, y, 0)  # type: ignore[no-any-return]
    if activation == "sigmoid":
        return aten.sigmoid_backward(gradient, y)  # type: ignore[no-any-return]
    if activation == "tanh":
        return aten.tanh_backward(gradient, y)  # type: ignore[no-any-return]
    return gradient


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    sources, weights, biases, activation, version = inputs
    kept = [] if activation == "none" else [output]
    ctx.save_for_backward(*sources, *weights, *kept)
    ctx.count, ctx.activation, ctx.version = len(sources), activation, version
    ctx.has_bias = bool(biases)


def _backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
    count, version = ctx.count, ctx.version
    saved = list(ctx.saved_tensors)
    sources, weights, kept = saved[:count], saved[count : 2 * count], saved[2 * count :]
    gradient = _before_activation(gradient, kept[0] if kept else None, ctx.activation).contiguous()
    widths, inner = [w.shape[0] for w in weights], [w.shape[1] for w in weights]
    of_inputs: list[Tensor | None] = [None] * count
    of_weights: list[Tensor | None] = [None] * count
    needed = ctx.needs_input_grad
    if any(needed[0]):
        of_inputs = [*pieces(INPUT_GRADIENT(gradient, weights, version), inner, 1)]
    if any(needed[1]):
        sizes = [n * k for n, k in zip(widths, inner, strict=True)]
        parts = pieces(WEIGHT_GRADIENT(gradient, sources, widths, version), sizes)
        of_weights = [part.view(w.shape) for part, w in zip(parts, weights, strict=True)]
    of_biases = pieces(gradient.sum(0), widths) if ctx.has_bias else []
    return of_inputs, of_weights, of_biases, None, None


INPUT_GRADIENT = define("grouped_linear_input_gradient", _input_gradient, _input_gradient_shape)
WEIGHT_GRADIENT = define("grouped_linear_weight_gradient", _weight_gradient, _weight_gradient_shape)
#: (inputs, weights, biases, activation, version) -> (rows, sum of out_i)
GROUPED_LINEAR = define("grouped_linear", _forward, _forward_shape)
torch.library.register_autograd("passwright::grouped_linear", _backward, setup_context=_save)

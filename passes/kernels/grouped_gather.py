"""k look-ups in k tables in one launch, their rows written side by side; no table is copied.

    grouped_gather([i_0, i_1], [t_0, t_1]) = cat([embedding(i_0, t_0), embedding(i_1, t_1)], -1)

Indices are (rows), of one integer type, columns of one tensor or not; tables are (rows_i, width_i); the
result is (rows, sum of width_i). An index outside its table yields NaN (on a CPU it raises).

Where it pays, against separate look-ups and against one in a joined table, by batch and widths:
data/devices/kernels-h200.json, made and shown by `python -m passwright.training.kernel_sweep FILE`.

The gradients of all tables are parts of one buffer, filled with zeros once, to which one launch adds
atomically, in float32 for half precision: as Inductor's own embedding backward, but for the number of
launches. Under `torch.use_deterministic_algorithms` torch's backward of each table is called instead.
Rows at `padding` (-1: none) get no gradient.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from passwright.passes.kernels.define import (
    HALF,
    SINGLE_OR_DOUBLE,
    common,
    define,
    has_kernel,
    pieces,
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

#: Elements of a tile.
_TILE = 1024


def _forward(
    indices: list[Tensor], tables: list[Tensor], padding: list[int], version: str
) -> Tensor:
    common(tables, "grouped_gather")
    common(indices, "grouped_gather")
    if has_kernel(tables[0], SINGLE_OR_DOUBLE):
        return forward_kernel(indices, tables)
    return torch.cat([F.embedding(i, t) for i, t in zip(indices, tables, strict=True)], 1)


def _forward_shape(
    indices: list[Tensor], tables: list[Tensor], padding: list[int], version: str
) -> Tensor:
    return tables[0].new_empty((indices[0].shape[0], sum(t.shape[1] for t in tables)))


def _gradient(
    gradient: Tensor,
    indices: list[Tensor],
    heights: list[int],
    widths: list[int],
    padding: list[int],
    version: str,
) -> Tensor:
    if has_kernel(gradient, SINGLE_OR_DOUBLE) and not torch.are_deterministic_algorithms_enabled():
        return backward_kernel(gradient, indices, heights, widths, padding)
    parts = [
        aten.embedding_dense_backward(part, index, height, pad, False).reshape(-1)
        for part, index, height, pad in zip(
            pieces(gradient, widths, 1), indices, heights, padding, strict=True
        )
    ]
    return torch.cat(parts)


def _gradient_shape(
    gradient: Tensor,
    indices: list[Tensor],
    heights: list[int],
    widths: list[int],
    padding: list[int],
    version: str,
) -> Tensor:
    return gradient.new_empty((sum(h * w for h, w in zip(heights, widths, strict=True)),))


# ---- launches


def forward_kernel(indices: list[Tensor], tables: list[Tensor]) -> Tensor:
    """The result, by Triton."""
    tables = [t.contiguous() for t in tables]
    rows, widths = indices[0].shape[0], [int(t.shape[1]) for t in tables]
    columns = starts_of(widths)
    y = tables[0].new_empty((rows, columns[-1]))
    for members in parts_of(len(tables)):
        block = _block([widths[i] for i in members])
        own = [indices[i] for i in members]
        steps = Steps.of(own)
        choices: list[dict[str, object]] = [
            {"index": f"index{n}", "table": f"table{n}", "step": steps.texts[n],
             "height": int(tables[i].shape[0]), "width": widths[i], "column": columns[i]}
            for n, i in enumerate(members)
        ]  # fmt: skip
        lines = [
            "member = tl.program_id(1)",
            *pick("member", range(len(members)), choices),
            (
                f"gather_rows(index, table, y + column, rows, height, width, step, {columns[-1]},"
                f" tl.program_id(0), {block[0]}, {block[1]})"
            ),
        ]
        count = len(members)
        names = [*numbered("index", count), *numbered("table", count), "y", "rows"]
        names += steps.names
        launch(
            kernel("grouped_gather", names, lines),
            (blocks(rows, block[0]), count),
            *own,
            *(tables[i] for i in members),
            y,
            rows,
            *steps.values,
        )
    return y


def backward_kernel(
    gradient: Tensor,
    indices: list[Tensor],
    heights: list[int],
    widths: list[int],
    padding: list[int],
) -> Tensor:
    """All gradients of tables one after the other, each (rows_i, width_i) in row-major order."""
    gradient = gradient.contiguous()
    # Sizes become part of the text: a symbolic one is narrowed to its value.
    heights, widths = [int(h) for h in heights], [int(w) for w in widths]
    rows, columns = gradient.shape[0], starts_of(widths)
    places = starts_of([h * w for h, w in zip(heights, widths, strict=True)])
    wide = torch.float32 if gradient.dtype in HALF else gradient.dtype
    total = gradient.new_zeros((places[-1],), dtype=wide)
    for members in parts_of(len(indices)):
        block = _block([widths[i] for i in members])
        own = [indices[i] for i in members]
        steps = Steps.of(own)
        choices: list[dict[str, object]] = [
            {"index": f"index{n}", "step": steps.texts[n],
             "place": f"tl.full((), {places[i]}, tl.int64)", "height": heights[i],
             "width": widths[i], "column": columns[i], "pad": padding[i]}
            for n, i in enumerate(members)
        ]  # fmt: skip
        lines = [
            "member = tl.program_id(1)",
            *pick("member", range(len(members)), choices),
            (
                f"scatter_rows(index, g + column, y + place, rows, height, width, pad, step,"
                f" {columns[-1]}, tl.program_id(0), {block[0]}, {block[1]})"
            ),
        ]
        count = len(members)
        names = [*numbered("index", count), "g", "y", "rows", *steps.names]
        made = kernel("grouped_gather_gradient", names, lines)
        grid = (blocks(rows, block[0]), count)
        launch(made, grid, *own, gradient, total, rows, *steps.values)
    return total.to(gradient.dtype)


def _block(widths: list[int]) -> tuple[int, int]:
    """Rows and columns of a tile."""
    width = power_of_two(max(widths))
    return max(1, _TILE // width), width


# ---- autograd


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    indices, tables, padding, version = inputs
    ctx.save_for_backward(*indices)
    ctx.shapes, ctx.padding, ctx.version = [t.shape for t in tables], padding, version


def _backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
    indices, shapes = list(ctx.saved_tensors), ctx.shapes
    heights, widths = [s[0] for s in shapes], [s[1] for s in shapes]
    found = GRADIENT(gradient.contiguous(), indices, heights, widths, ctx.padding, ctx.version)
    parts = pieces(found, [h * w for h, w in shapes])
    of_tables = [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]
    return [None] * len(indices), of_tables, None, None


GRADIENT = define("grouped_gather_gradient", _gradient, _gradient_shape)
#: (indices, tables, padding, version) -> (rows, sum of width_i)
GROUPED_GATHER = define("grouped_gather", _forward, _forward_shape)
torch.library.register_autograd("passwright::grouped_gather", _backward, setup_context=_save)

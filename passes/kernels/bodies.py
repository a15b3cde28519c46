# mypy: ignore-errors
# Triton compiles these functions from their text; Python's types say nothing about them.
"""What one program of a grouped kernel does for the member that it was given.

Arguments annotated with `tl.constexpr` are known when the kernel is compiled. Nothing here knows how
many members there are: see `text`.
"""

import triton
import triton.language as tl


@triton.jit
def product_tile(
    a,
    b,
    bias,
    c,
    rows,
    columns,
    first,
    last,
    a_row,
    a_inner,
    b_inner,
    b_column,
    c_row,
    tile_row,
    tile_column,
    has_bias: tl.constexpr,
    activation: tl.constexpr,
    precision: tl.constexpr,
    block_rows: tl.constexpr,
    block_columns: tl.constexpr,
    block_inner: tl.constexpr,
):
    """One tile of c = f(a @ b + bias), summed over the inner indices from `first` to `last`.

    Element (i, k) of a lies at `a + i * a_row + k * a_inner`; the columns of c are next to each other.
    """
    i = tile_row * block_rows + tl.arange(0, block_rows)
    j = tile_column * block_columns + tl.arange(0, block_columns)
    inside_i = i < rows
    inside_j = j < columns
    wide_i = i.to(tl.int64)
    total = tl.zeros((block_rows, block_columns), dtype=tl.float32)
    for start in range(first, last, block_inner):
        k = start + tl.arange(0, block_inner)
        inside_k = k < last
        wide_k = k.to(tl.int64)
        left = tl.load(
            a + wide_i[:, None] * a_row + wide_k[None, :] * a_inner,
            mask=inside_i[:, None] & inside_k[None, :],
            other=0.0,
        )
        right = tl.load(
            b + wide_k[:, None] * b_inner + j[None, :] * b_column,
            mask=inside_k[:, None] & inside_j[None, :],
            other=0.0,
        )
        total = tl.dot(left, right, total, input_precision=precision)
    if has_bias:
        total += tl.load(bias + j, mask=inside_j, other=0.0).to(tl.float32)[None, :]
    if activation == "relu":
        # A comparison with NaN is false: written so that NaN stays NaN.
        total = tl.where(total < 0.0, 0.0, total)
    elif activation == "sigmoid":
        total = tl.sigmoid(total)
    elif activation == "tanh":
        total = tanh(total)
    tl.store(
        c + wide_i[:, None] * c_row + j[None, :],
        total.to(c.dtype.element_ty),
        mask=inside_i[:, None] & inside_j[None, :],
    )


@triton.jit
def tanh(x):
    """By the exponential, and near 0, where that would cancel, by the series (error below 1e-8)."""
    square = x * x
    series = square * (62.0 / 2835.0) - 17.0 / 315.0
    series = series * square + 2.0 / 15.0
    series = series * square - 1.0 / 3.0
    series = x + x * square * series
    small = tl.exp(-2.0 * tl.abs(x))
    large = (1.0 - small) / (1.0 + small)
    return tl.where(square < 0.0625, series, tl.where(x < 0, -large, large))


@triton.jit
def norm_rows(
    x,
    weight,
    bias,
    y,
    rows,
    width,
    x_row,
    y_row,
    part,
    eps: tl.constexpr,
    has_weight: tl.constexpr,
    has_bias: tl.constexpr,
    wide: tl.constexpr,
    block_rows: tl.constexpr,
    block_width: tl.constexpr,
):
    """Layer norm of some rows, in the type `wide`; the statistics are those of the loaded row."""
    i = part * block_rows + tl.arange(0, block_rows)
    j = tl.arange(0, block_width)
    inside_j = j < width
    inside = (i < rows)[:, None] & inside_j[None, :]
    wide_i = i.to(tl.int64)
    value = tl.load(x + wide_i[:, None] * x_row + j[None, :], mask=inside, other=0.0).to(wide)
    mean = tl.sum(value, 1) / width
    centred = tl.where(inside, value - mean[:, None], 0.0)
    scale = 1.0 / tl.sqrt(tl.sum(centred * centred, 1) / width + eps)
    result = centred * scale[:, None]
    if has_weight:
        result *= tl.load(weight + j, mask=inside_j, other=0.0).to(wide)[None, :]
    if has_bias:
        result += tl.load(bias + j, mask=inside_j, other=0.0).to(wide)[None, :]
    tl.store(y + wide_i[:, None] * y_row + j[None, :], result.to(y.dtype.element_ty), mask=inside)


@triton.jit
def norm_rows_backward(
    gradient,
    x,
    weight,
    x_gradient,
    weight_gradient,
    bias_gradient,
    rows,
    width,
    x_row,
    y_row,
    first,
    last,
    eps: tl.constexpr,
    has_weight: tl.constexpr,
    wide: tl.constexpr,
    block_rows: tl.constexpr,
    block_width: tl.constexpr,
):
    """Gradients of the rows from `first` to `last`, and what they add to those of weight and bias.

    The statistics are computed anew: the row has to be read in any case.
    """
    j = tl.arange(0, block_width)
    inside_j = j < width
    factor = tl.full((block_width,), 1.0, dtype=wide)
    if has_weight:
        factor = tl.load(weight + j, mask=inside_j, other=0.0).to(wide)
    of_weight = tl.zeros((block_rows, block_width), dtype=wide)
    of_bias = tl.zeros((block_rows, block_width), dtype=wide)
    for start in range(first, last, block_rows):
        i = start + tl.arange(0, block_rows)
        inside = ((i < last) & (i < rows))[:, None] & inside_j[None, :]
        wide_i = i.to(tl.int64)
        value = tl.load(x + wide_i[:, None] * x_row + j[None, :], mask=inside, other=0.0).to(wide)
        given = tl.load(gradient + wide_i[:, None] * y_row + j[None, :], mask=inside, other=0.0)
        given = given.to(wide)
        mean = tl.sum(value, 1) / width
        centred = tl.where(inside, value - mean[:, None], 0.0)
        scale = 1.0 / tl.sqrt(tl.sum(centred * centred, 1) / width + eps)
        normal = centred * scale[:, None]
        of_weight += given * normal
        of_bias += given
        inner = given * factor[None, :]
        along = tl.sum(inner * normal, 1) / width
        level = tl.sum(inner, 1) / width
        result = (inner - level[:, None] - normal * along[:, None]) * scale[:, None]
        tl.store(
            x_gradient + wide_i[:, None] * y_row + j[None, :],
            result.to(x_gradient.dtype.element_ty),
            mask=inside,
        )
    tl.store(weight_gradient + j, tl.sum(of_weight, 0), mask=inside_j)
    tl.store(bias_gradient + j, tl.sum(of_bias, 0), mask=inside_j)


@triton.jit
def gather_rows(
    index,
    table,
    y,
    rows,
    table_rows,
    width,
    index_step,
    y_row,
    part,
    block_rows: tl.constexpr,
    block_width: tl.constexpr,
):
    """Rows of a table, copied; a row that the table does not have is NaN, and nothing is read."""
    i = part * block_rows + tl.arange(0, block_rows)
    j = tl.arange(0, block_width)
    inside_i = i < rows
    inside = inside_i[:, None] & (j < width)[None, :]
    wide_i = i.to(tl.int64)
    at = tl.load(index + wide_i * index_step, mask=inside_i, other=0).to(tl.int64)
    known = (at >= 0) & (at < table_rows)
    value = tl.load(
        table + at[:, None] * width + j[None, :],
        mask=inside & known[:, None],
        other=float("nan"),
    )
    tl.store(y + wide_i[:, None] * y_row + j[None, :], value, mask=inside)


@triton.jit
def scatter_rows(
    index,
    gradient,
    table,
    rows,
    table_rows,
    width,
    padding,
    index_step,
    y_row,
    part,
    block_rows: tl.constexpr,
    block_width: tl.constexpr,
):
    """Adds rows of the gradient to those of the table's, in no order."""
    i = part * block_rows + tl.arange(0, block_rows)
    j = tl.arange(0, block_width)
    inside_i = i < rows
    wide_i = i.to(tl.int64)
    at = tl.load(index + wide_i * index_step, mask=inside_i, other=-1).to(tl.int64)
    known = (at >= 0) & (at < table_rows) & (at != padding)
    inside = known[:, None] & (j < width)[None, :]
    value = tl.load(gradient + wide_i[:, None] * y_row + j[None, :], mask=inside, other=0.0)
    place = table + at[:, None] * width + j[None, :]
    tl.atomic_add(place, value.to(table.dtype.element_ty), mask=inside, sem="relaxed")

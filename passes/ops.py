"""The canonical vocabulary: one class an op, however it was spelled in the graph.

A pattern sees `Split(input, sizes, dim)` whether the graph says `torch.split`, `Tensor.chunk` or
`aten.split_with_sizes`. Dims are non-negative, sizes are bound, defaults are filled in. A field of
type `fx.Node` is a tensor; `Operand` is a tensor or a number.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import torch
from torch import fx

from passwright.passes.spec import Size

Operand = fx.Node | int | float | bool


@dataclass(frozen=True)
class Op:
    """A node of the graph, read."""

    node: fx.Node
    #: The output is a view of the input: no memory moves.
    is_view: ClassVar[bool] = False


# ---- several outputs, each taken by a Piece


@dataclass(frozen=True)
class Split(Op):
    """Consecutive parts of `input` along `dim`, of the given static `sizes`."""

    input: fx.Node
    sizes: tuple[int, ...]
    dim: int
    is_view: ClassVar[bool] = True

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """Offset of each part along `dim`."""
        offsets, position = [], 0
        for size in self.sizes:
            offsets.append(position)
            position += size
        return tuple(offsets)


@dataclass(frozen=True)
class Unbind(Op):
    """The `count` slices of `input` along `dim`, without that dim."""

    input: fx.Node
    dim: int
    count: int
    is_view: ClassVar[bool] = True


@dataclass(frozen=True)
class Piece(Op):
    """Output number `index` of the multi-output node `input`."""

    input: fx.Node
    index: int
    is_view: ClassVar[bool] = True


# ---- movement of data


@dataclass(frozen=True)
class Cat(Op):
    """Concatenation along an existing dim."""

    inputs: tuple[fx.Node, ...]
    dim: int


@dataclass(frozen=True)
class Stack(Op):
    """Concatenation along a new dim."""

    inputs: tuple[fx.Node, ...]
    dim: int


@dataclass(frozen=True)
class Reshape(Op):
    """Same elements in row-major order under another shape (view, flatten, squeeze, ...)."""

    input: fx.Node
    shape: tuple[Size, ...]
    is_view: ClassVar[bool] = True


@dataclass(frozen=True)
class Permute(Op):
    """Dims reordered: output dim i is input dim `dims[i]`."""

    input: fx.Node
    dims: tuple[int, ...]
    is_view: ClassVar[bool] = True


@dataclass(frozen=True)
class Slice(Op):
    """`input[start:stop]` along one dim, step 1, bounds static and inside the input."""

    input: fx.Node
    dim: int
    start: int
    stop: int
    is_view: ClassVar[bool] = True


@dataclass(frozen=True)
class Select(Op):
    """`input[index]` along one dim, which disappears."""

    input: fx.Node
    dim: int
    index: int
    is_view: ClassVar[bool] = True


@dataclass(frozen=True)
class Expand(Op):
    """`input` broadcast to `shape` without a copy."""

    input: fx.Node
    shape: tuple[Size, ...]
    is_view: ClassVar[bool] = True


@dataclass(frozen=True)
class Repeat(Op):
    """`input` laid side by side `repeats[i]` times along dim i of the result."""

    input: fx.Node
    repeats: tuple[int, ...]


@dataclass(frozen=True)
class Identity(Op):
    """`input` itself, or a copy as it is: a dropout that is off, a conversion to its own type."""

    input: fx.Node
    is_view: ClassVar[bool] = True


@dataclass(frozen=True)
class Convert(Op):
    """The values of `input` as another type."""

    input: fx.Node
    dtype: torch.dtype


# ---- products


@dataclass(frozen=True)
class Matmul(Op):
    """Matrix product of the last two dims, leading dims broadcast; both operands have two or more."""

    left: fx.Node
    right: fx.Node


@dataclass(frozen=True)
class Einsum(Op):
    """Sum of products by an explicit `equation` without ellipsis, as `bij,bjk->bik`."""

    equation: str
    inputs: tuple[fx.Node, ...]


@dataclass(frozen=True)
class Convolution(Op):
    """Convolution (not transposed) over `len(stride)` spatial dims; weight (out, in / groups, ...)."""

    input: fx.Node
    weight: fx.Node
    bias: fx.Node | None
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int


@dataclass(frozen=True)
class Attention(Op):
    """`softmax(query @ key.mT * scale + mask) @ value` without dropout; scale None is width ** -0.5."""

    query: fx.Node
    key: fx.Node
    value: fx.Node
    mask: fx.Node | None
    causal: bool
    scale: float | None


@dataclass(frozen=True)
class MultiHeadAttention(Op):
    """Projections, attention of many heads, and a projection; returns the result and the weights.

    `masked`: some mask is given. `dropout` is 0 where it is switched off. `need_weights` False: the
    weights are None.
    """

    query: fx.Node
    masked: bool
    dropout: float
    need_weights: bool


@dataclass(frozen=True)
class Linear(Op):
    """`input @ weight.T + bias`; weight is (out_features, in_features)."""

    input: fx.Node
    weight: fx.Node
    bias: fx.Node | None


@dataclass(frozen=True)
class LayerNorm(Op):
    """Normalisation over the last `len(normalized_shape)` dims."""

    input: fx.Node
    normalized_shape: tuple[int, ...]
    weight: fx.Node | None
    bias: fx.Node | None
    eps: float


@dataclass(frozen=True)
class BatchNorm(Op):
    """Normalisation of each channel (dim 1) over all other dims.

    In training with the batch's own statistics, and the running ones are overwritten.
    """

    input: fx.Node
    running_mean: fx.Node | None
    running_var: fx.Node | None
    weight: fx.Node | None
    bias: fx.Node | None
    training: bool
    momentum: float
    eps: float


@dataclass(frozen=True)
class Softmax(Op):
    """Softmax along `dim`, or its logarithm."""

    input: fx.Node
    dim: int
    log: bool


@dataclass(frozen=True)
class Reduce(Op):
    """`function` (sum, mean, amax, amin) over `dims`, which stay as size 1 if `keepdim`."""

    function: str
    input: fx.Node
    dims: tuple[int, ...]
    keepdim: bool


@dataclass(frozen=True)
class Dropout(Op):
    """Elements set to zero with probability `p` at random, the others scaled up. Never pure."""

    input: fx.Node
    p: float


@dataclass(frozen=True)
class Embedding(Op):
    """Rows of `weight` (rows, width) picked by the integer tensor `index`."""

    index: fx.Node
    weight: fx.Node
    padding_idx: int | None


@dataclass(frozen=True)
class EmbeddingBag(Op):
    """Rows of `weight` picked by `index`, and of each bag of rows the sum, mean or max (`mode`).

    `index` is (bags, rows of each), or of one dim with the `offsets` at which bags start.
    `sample_weights`, of the shape of `index`, multiply the rows of a sum. Rows of `padding_idx` count
    for nothing.
    """

    index: fx.Node
    weight: fx.Node
    offsets: fx.Node | None
    sample_weights: fx.Node | None
    mode: str
    padding_idx: int | None


@dataclass(frozen=True)
class EmbeddingGradient(Op):
    """For each row of a table (`rows`, width) the sum of the rows of `gradient` whose `index` is it.

    The row `padding_idx` stays zero; an index outside the table counts for nothing.
    """

    gradient: fx.Node
    index: fx.Node
    rows: int
    padding_idx: int | None


@dataclass(frozen=True)
class IndexAdd(Op):
    """`destination`, with each of the `values` added to the row that its `index` tells.

    A negative index counts from the end. Where a `mask` (one boolean an index) is given and false,
    nothing is added; where it is true, an index outside becomes the nearest inside.
    """

    destination: fx.Node
    index: fx.Node
    values: fx.Node
    mask: fx.Node | None


@dataclass(frozen=True)
class Unary(Op):
    """A pointwise function of one tensor; `params` holds every other argument, bound by name."""

    function: str
    input: fx.Node
    params: tuple[tuple[str, object], ...]


@dataclass(frozen=True)
class InplaceUnary(Op):
    """As `Unary`, but the result overwrites `input`."""

    function: str
    input: fx.Node
    params: tuple[tuple[str, object], ...]


@dataclass(frozen=True)
class Binary(Op):
    """A pointwise function of two operands; `params` as in `Unary` (alpha, rounding mode)."""

    function: str
    left: Operand
    right: Operand
    params: tuple[tuple[str, object], ...]


@dataclass(frozen=True)
class InplaceBinary(Op):
    """As `Binary`, but the result overwrites `left`."""

    function: str
    left: fx.Node
    right: Operand
    params: tuple[tuple[str, object], ...]


#: Hand the gradient of any floating-point operand on.
SMOOTH = (Linear, Matmul, Einsum, Convolution, LayerNorm, Embedding, Binary, Cat, Stack)

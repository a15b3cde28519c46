"""The canonical vocabulary: one class an op, however it was spelled in the graph.

A pattern sees `Split(input, sizes, dim)` whether the graph says `torch.split`, `Tensor.chunk` or
`aten.split_with_sizes`. Dims are non-negative, sizes are bound, defaults are filled in. A field of
type `fx.Node` is a tensor; `Operand` is a tensor or a number.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

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


# ---- arithmetic


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
class Embedding(Op):
    """Rows of `weight` (rows, width) picked by the integer tensor `index`."""

    index: fx.Node
    weight: fx.Node
    padding_idx: int | None


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

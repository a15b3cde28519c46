"""What is known about a value without computing it: shape, strides, type, place and storage."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch

Size = int | torch.SymInt

_fresh_storage = itertools.count(-1, -1)


@dataclass(frozen=True)
class Spec:
    """One tensor value.

    `storage` identifies the memory behind it: two specs with an equal number are views of one
    buffer. Numbers from fake tensors are positive, those the editor hands out negative.
    """

    shape: tuple[Size, ...]
    stride: tuple[Size, ...]
    dtype: torch.dtype
    device: torch.device
    storage: int
    layout: torch.layout = torch.strided
    offset: Size = 0

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @cached_property
    def is_static(self) -> bool:
        """All sizes and strides are plain integers."""
        return all(type(size) is int for size in (*self.shape, *self.stride, self.offset))

    @cached_property
    def numel(self) -> int:
        """Number of elements; a symbolic size counts by its hint."""
        total = 1
        for size in self.shape:
            total *= hint(size)
        return total

    @property
    def nbytes(self) -> int:
        return self.numel * self.dtype.itemsize

    @cached_property
    def is_contiguous(self) -> bool:
        """Row-major, for every value of a symbolic size."""
        return self.same_strides(replace(self, stride=contiguous_strides(self.shape)))

    def same_strides(self, other: Spec) -> bool:
        """Laid out alike; the stride of a dim of size 1 says nothing, nor do any without elements."""
        return 0 in map(static, self.shape) or all(
            mine is theirs
            or (type(mine) is type(theirs) and str(mine) == str(theirs))
            or static(size) == 1
            for size, mine, theirs in zip(self.shape, self.stride, other.stride, strict=True)
        )

    def key(self) -> tuple[object, ...]:
        """Equal for values that may stand side by side in one batch; never installs a guard."""
        sizes = tuple(size if type(size) is int else str(size) for size in self.shape)
        return (sizes, self.dtype, self.device, self.layout)

    def fresh(self, shape: Sequence[Size], dtype: torch.dtype | None = None) -> Spec:
        """A new contiguous tensor of `shape` on the same device."""
        sizes = tuple(shape)
        return Spec(
            sizes,
            contiguous_strides(sizes),
            dtype or self.dtype,
            self.device,
            next(_fresh_storage),
        )

    def view(self, shape: Sequence[Size], stride: Sequence[Size], offset: Size = 0) -> Spec:
        """A view of the same storage, `offset` elements further on."""
        place = self.offset + offset
        return Spec(
            *(
                tuple(shape),
                tuple(stride),
                self.dtype,
                self.device,
                self.storage,
                self.layout,
                place,
            )
        )


AnySpec = Spec | tuple[Spec, ...] | None


def parts_of(spec: AnySpec) -> tuple[Spec, ...]:
    """Each tensor of a value: none, one, or several."""
    return spec if isinstance(spec, tuple) else () if spec is None else (spec,)


def each_part(spec: AnySpec, change: Callable[[Spec], Spec]) -> AnySpec:
    """The value with every tensor's spec changed."""
    if isinstance(spec, tuple):
        return tuple(map(change, spec))
    return None if spec is None else change(spec)


def spec_of(value: Any) -> AnySpec:
    """Spec of a fake (or real) tensor, of a tuple of tensors, or None for anything else.

    None as well for the wrapped tensors of `torch.func`, whose memory cannot be told.
    """
    if isinstance(value, torch.Tensor):
        if torch._C._functorch.is_functorch_wrapped_tensor(value):
            return None
        strided = value.layout == torch.strided
        return Spec(
            tuple(map(_plain, value.shape)),
            tuple(map(_plain, value.stride())) if strided else (),
            value.dtype,
            value.device,
            value.untyped_storage()._cdata if strided else next(_fresh_storage),
            value.layout,
            _plain(value.storage_offset()) if strided else 0,
        )
    if isinstance(value, (tuple, list)) and value:
        parts = tuple(spec_of(part) for part in value)
        if all(isinstance(part, Spec) for part in parts):
            return parts  # type: ignore[return-value]
    return None


def _plain(size: Size) -> Size:
    """A symbolic size that was narrowed to one number is that number."""
    known = static(size)
    return size if known is None else known


def contiguous_strides(shape: Sequence[Size]) -> tuple[Size, ...]:
    """Row-major strides; a dimension of size 0 or 1 counts as 1, as in torch."""
    strides: list[Size] = []
    step: Size = 1
    for size in reversed(shape):
        strides.append(step)
        step = step * (size if type(size) is not int or size > 1 else 1)
    return tuple(reversed(strides))


def hint(size: Size) -> int:
    """The size of this run; for a symbolic size the one that Dynamo saw (64 when unbacked)."""
    if type(size) is int:
        return size
    node = size.node  # type: ignore[union-attr]
    value = node.hint if node.has_hint() else None
    return int(value) if value is not None else 64


def static(size: Any) -> int | None:
    """`size` if it is known without a guard, else None."""
    if type(size) is int:
        return size
    if isinstance(size, torch.SymInt):
        known: int | None = size.node.maybe_as_int()
        return known
    return None

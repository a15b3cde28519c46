"""Builders of calls that move data, in the graph's own dialect, with the shape of the result.

The editor inherits them: `edit.split(x, [4, 8], dim=1)` inserts the call that this dialect uses.
Where all sizes are static the builder foretells the result, so that no fake tensor need be run while
candidates are rehearsed; the editor checks every foretold shape when it finishes.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from passwright.passes.dialect import Dialect
from passwright.passes.errors import IllegalRewrite
from passwright.passes.graph import GraphView
from passwright.passes.legality import can_reshape_to, same_shape
from passwright.passes.spec import AnySpec, Size, Spec, static

aten = torch.ops.aten


class MovementBuilders:
    """The part of `Builders` that moves data; `call` is the editor's."""

    def __init__(self, view: GraphView) -> None:
        self.view = view

    def call(self, target: Any, *args: Any, spec: AnySpec = None, **kwargs: Any) -> fx.Node:
        raise NotImplementedError

    def write(self, target: Any, *args: Any, spec: AnySpec = None, **kwargs: Any) -> fx.Node:
        raise NotImplementedError

    @property
    def _torch(self) -> bool:
        return self.view.dialect is Dialect.TORCH

    # ---- several outputs

    def split(self, x: fx.Node, sizes: Sequence[int], dim: int) -> list[fx.Node]:
        """The pieces of `x` along `dim`."""
        spec = self.view.spec(x)
        parts, offset = [], 0
        for size in sizes:
            parts.append(_resized(spec, dim, size, offset))
            offset += size
        if self._torch:
            node = self.call(
                torch.split, x, list(sizes), dim=dim, spec=foretold(tuple(parts), spec)
            )
        else:
            target = aten.split_with_sizes.default
            node = self.call(target, x, list(sizes), dim, spec=foretold(tuple(parts), spec))
        return self._pieces(node, len(parts))

    def split_range(self, x: fx.Node, start: int, sizes: Sequence[int], dim: int) -> list[fx.Node]:
        """Consecutive parts of `x` along `dim` from `start` on; what lies around is not used."""
        size = static(self.view.shape(x)[dim])
        if size is None:
            raise IllegalRewrite("a split along a dim of unknown size")
        rest = size - start - sum(sizes)
        pieces = self.split(x, [*[start] * (start > 0), *sizes, *[rest] * (rest > 0)], dim)
        return pieces[start > 0 :][: len(sizes)]

    def unbind(self, x: fx.Node, dim: int) -> list[fx.Node]:
        """The slices of `x` along `dim`, without that dim."""
        spec = self.view.spec(x)
        count = static(spec.shape[dim])
        if count is None:
            raise IllegalRewrite("unbind along a dim of unknown size")
        shape, stride = _without(spec.shape, dim), _without(spec.stride, dim)
        parts = tuple(spec.view(shape, stride, spec.stride[dim] * i) for i in range(count))
        target = torch.unbind if self._torch else aten.unbind.int
        node = self.call(target, x, dim, spec=foretold(parts, spec))
        return self._pieces(node, count)

    def _pieces(self, node: fx.Node, count: int) -> list[fx.Node]:
        specs = self.view.any_spec(node)
        assert isinstance(specs, tuple)
        return [self.call(operator.getitem, node, i, spec=specs[i]) for i in range(count)]

    def piece(self, node: fx.Node, index: int) -> fx.Node:
        """Output `index` of a multi-output node."""
        specs = self.view.any_spec(node)
        assert isinstance(specs, tuple)
        return self.call(operator.getitem, node, index, spec=specs[index])

    # ---- movement

    def cat(self, parts: Sequence[fx.Node], dim: int) -> fx.Node:
        """Concatenation; a single part is returned as it is."""
        if len(parts) == 1:
            return parts[0]
        specs = [self.view.spec(part) for part in parts]
        spec = None
        # From rank 4 on torch keeps channels-last, by rules that fake tensors know better.
        if all(part.is_static and (part.ndim < 4 or part.is_contiguous) for part in specs):
            total = sum(part.shape[dim] for part in specs)
            shape = [*specs[0].shape[:dim], total, *specs[0].shape[dim + 1 :]]
            spec = specs[0].fresh(shape)
        if self._torch:
            return self.call(torch.cat, list(parts), dim=dim, spec=spec)
        return self.call(aten.cat.default, list(parts), dim, spec=spec)

    def stack(self, parts: Sequence[fx.Node], dim: int) -> fx.Node:
        """Concatenation along a new dim."""
        if not self._torch:
            return self.cat([self.unsqueeze(part, dim) for part in parts], dim)
        specs = [self.view.spec(part) for part in parts]
        spec = None
        if all(part.is_static and (part.ndim < 4 or part.is_contiguous) for part in specs):
            first = specs[0]
            spec = first.fresh([*first.shape[:dim], len(parts), *first.shape[dim:]])
        return self.call(torch.stack, list(parts), dim=dim, spec=spec)

    def reshape(self, x: fx.Node, shape: Sequence[Size]) -> fx.Node:
        """`x` under another shape; at most one size may be symbolic."""
        spec = self.view.spec(x)
        if same_shape(spec.shape, shape):
            return x
        if not can_reshape_to(shape):
            raise IllegalRewrite("a reshape to several symbolic sizes")
        sizes = [static(size) for size in shape]
        target = torch.reshape if self._torch else aten.reshape.default
        wanted = [-1 if size is None else size for size in sizes]
        return self.call(target, x, wanted, spec=_reshaped(spec, shape))

    def unsqueeze(self, x: fx.Node, dim: int) -> fx.Node:
        spec = self.view.spec(x)
        step = spec.stride[dim] * spec.shape[dim] if dim < spec.ndim else 1
        shape = (*spec.shape[:dim], 1, *spec.shape[dim:])
        found = spec.view(shape, (*spec.stride[:dim], step, *spec.stride[dim:]))
        target = torch.unsqueeze if self._torch else aten.unsqueeze.default
        return self.call(target, x, dim, spec=foretold(found, spec))

    def permute(self, x: fx.Node, dims: Sequence[int]) -> fx.Node:
        """Dims reordered: output dim i is input dim `dims[i]`."""
        if list(dims) == list(range(len(dims))):
            return x
        spec = self.view.spec(x)
        found = spec.view([spec.shape[d] for d in dims], [spec.stride[d] for d in dims])
        target = torch.permute if self._torch else aten.permute.default
        return self.call(target, x, list(dims), spec=foretold(found, spec))

    def expand(self, x: fx.Node, shape: Sequence[Size]) -> fx.Node:
        """`x` broadcast to `shape`, without a copy."""
        spec = self.view.spec(x)
        if same_shape(spec.shape, shape):
            return x
        if not can_reshape_to(shape):
            raise IllegalRewrite("an expand to several symbolic sizes")
        lead = len(shape) - spec.ndim
        wanted = [-1 if static(size) is None else size for size in shape]
        found = None
        if spec.is_static and -1 not in wanted:
            sizes, strides = (*[1] * lead, *spec.shape), (*[0] * lead, *spec.stride)
            steps = [
                step if old == new else 0
                for old, new, step in zip(sizes, shape, strides, strict=True)
            ]
            found = spec.view(shape, steps)
        if self._torch:
            return self.call("expand", x, *wanted, spec=found)
        return self.call(aten.expand.default, x, wanted, spec=found)

    def slice(self, x: fx.Node, dim: int, start: int, stop: int) -> fx.Node:
        """`x[start:stop]` along `dim`; the whole of it is `x` itself."""
        spec = self.view.spec(x)
        if start == 0 and static(spec.shape[dim]) == stop:
            return x
        found = foretold(_resized(spec, dim, stop - start, start), spec)
        if self._torch:
            return self.call(torch.narrow, x, dim, start, stop - start, spec=found)
        return self.call(aten.slice.Tensor, x, dim, start, stop, spec=found)

    def select(self, x: fx.Node, dim: int, index: int) -> fx.Node:
        """`x[index]` along `dim`, which disappears."""
        spec = self.view.spec(x)
        shape, stride = _without(spec.shape, dim), _without(spec.stride, dim)
        found = foretold(spec.view(shape, stride, spec.stride[dim] * index), spec)
        target = torch.select if self._torch else aten.select.int
        return self.call(target, x, dim, index, spec=found)

    def contiguous_copy(self, x: fx.Node) -> fx.Node:
        """Fresh memory in row-major order."""
        spec = self.view.spec(x)
        target = torch.clone if self._torch else aten.clone.default
        found = foretold(spec.fresh(spec.shape), spec)
        return self.call(target, x, memory_format=torch.contiguous_format, spec=found)

    def again(self, node: fx.Node, instead: dict[fx.Node, fx.Node], spec: AnySpec) -> fx.Node:
        """The same call as `node`, in its spelling, with other tensors."""
        args, kwargs = fx.node.map_arg(
            (node.args, node.kwargs), lambda source: instead.get(source, source)
        )
        return self.call(node.target, *args, spec=spec, **kwargs)


def foretold(spec: Any, *inputs: Spec) -> Any:
    """`spec` where all inputs are static; else None, and fake tensors tell."""
    return spec if all(part.is_static for part in inputs) else None


def _resized(spec: Spec, dim: int, size: int, start: int) -> Spec:
    shape = [*spec.shape[:dim], size, *spec.shape[dim + 1 :]]
    return spec.view(shape, spec.stride, spec.stride[dim] * start)


def _without(items: Sequence[Size], position: int) -> tuple[Size, ...]:
    return (*items[:position], *items[position + 1 :])


def _reshaped(spec: Spec, shape: Sequence[Size]) -> Spec | None:
    """A view where strides allow it, else a copy; None where sizes are symbolic."""
    if not spec.is_static or any(static(size) is None for size in shape):
        return None
    strides = view_strides(spec.shape, spec.stride, shape)  # type: ignore[arg-type]
    return spec.fresh(shape) if strides is None else spec.view(shape, strides)


def view_strides(
    shape: Sequence[int], stride: Sequence[int], wanted: Sequence[int]
) -> list[int] | None:
    """Strides under which memory laid out as (shape, stride) reads as `wanted`, if there are any.

    Old dims that are contiguous among themselves merge into runs; the new dims, from the last to the
    first, must fill each run exactly.
    """
    if 0 in shape:
        return None
    runs: list[tuple[int, int]] = []
    for size, step in zip(reversed(shape), reversed(stride), strict=True):
        if size == 1:
            continue
        if runs and step == runs[-1][0] * runs[-1][1]:
            runs[-1] = (runs[-1][0] * size, runs[-1][1])
        else:
            runs.append((size, step))
    runs.reverse()
    result: list[int] = []
    left, step = 1, 1
    for size in reversed(wanted):
        if size != 1 and left == 1:
            if not runs:
                return None
            left, step = runs.pop()
        if left % size:
            return None
        result.append(step)
        step, left = step * size, left // size
    return list(reversed(result)) if left == 1 and not runs else None

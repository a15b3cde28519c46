"""Readers of ops that only move data."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx

from passwright.passes.binding import Bound, read, spelled
from passwright.passes.ops import (
    Cat,
    Op,
    Permute,
    Piece,
    Reshape,
    Select,
    Slice,
    Split,
    Stack,
    Unbind,
)
from passwright.passes.spec import Spec, static

aten = torch.ops.aten


def dim_of(value: Any, ndim: int) -> int | None:
    """A dim argument as a non-negative integer, or None if it is not one (a node, say)."""
    if type(value) is not int or not -ndim <= value < ndim:
        return None
    return value % ndim


@spelled(
    "input|tensor, sizes|split_size|split_size_or_sections|split_sizes, dim=0",
    torch.split,
    torch.functional.split,
    torch.split_with_sizes,
    "split",
    "split_with_sizes",
    aten.split.Tensor,
    aten.split.sizes,
    aten.split_with_sizes.default,
)
@spelled("input, chunks, dim=0", torch.chunk, "chunk", aten.chunk.default)
@spelled(
    "input, indices|sections|indices_or_sections, dim=0",
    torch.tensor_split,
    "tensor_split",
)
def read_split(call: Bound) -> Op | None:
    """The sizes come from the outputs, so that an uneven last piece needs no arithmetic here."""
    source, outputs = call.tensor(), call.result()
    if source is None or not isinstance(outputs, tuple):
        return None
    node, spec = source
    dim = dim_of(call["dim"], spec.ndim)
    if dim is None:
        return None
    sizes = tuple(static(part.shape[dim]) for part in outputs)
    if None in sizes or sum(sizes) != static(spec.shape[dim]):  # type: ignore[arg-type]
        return None
    return Split(call.node, node, sizes, dim)  # type: ignore[arg-type]


@spelled("input, dim=0", torch.unbind, "unbind", aten.unbind.int)
def read_unbind(call: Bound) -> Op | None:
    source, outputs = call.tensor(), call.result()
    if source is None or not isinstance(outputs, tuple):
        return None
    node, spec = source
    dim = dim_of(call["dim"], spec.ndim)
    return None if dim is None else Unbind(call.node, node, dim, len(outputs))


def _tensors(call: Bound) -> tuple[tuple[fx.Node, ...], Spec] | None:
    """The list argument of a cat or stack, when all of it is tensors of one dtype and rank."""
    items = call["tensors"]
    if not isinstance(items, (tuple, list)) or not items:
        return None
    specs = [call.specs(item) if isinstance(item, fx.Node) else None for item in items]
    first = specs[0]
    if not isinstance(first, Spec):
        return None
    dtype, device, ndim = first.dtype, first.device, first.ndim
    for spec in specs:
        if not isinstance(spec, Spec):
            return None
        if spec.dtype is not dtype or spec.device != device or len(spec.shape) != ndim:
            return None
    return tuple(items), first


@spelled(
    "tensors, dim=0",
    torch.cat,
    torch.concat,
    torch.concatenate,
    aten.cat.default,
    aten.concat.default,
    aten.concatenate.default,
)
def read_cat(call: Bound) -> Op | None:
    found = _tensors(call)
    if found is None:
        return None
    inputs, spec = found
    dim = dim_of(call["dim"], spec.ndim)
    if dim is None:
        return None
    flat: list[fx.Node] = []
    for node in inputs:
        whole = _unsqueezed(call, node, dim)
        if whole is None:
            return Cat(call.node, inputs, dim)
        flat.append(whole)
    return Stack(call.node, tuple(flat), dim)


#: Targets through which a cat is read as a stack.
READ_THROUGH: tuple[Any, ...] = (
    torch.unsqueeze,
    "unsqueeze",
    aten.unsqueeze.default,
    operator.getitem,
)


def _unsqueezed(call: Bound, node: fx.Node, dim: int) -> fx.Node | None:
    """`x` where the node is `unsqueeze(x, dim)`: ATen-IR writes a stack as a cat of these."""
    source = node.args[0] if node.target in READ_THROUGH and node.args else None
    if not isinstance(source, fx.Node):
        return None
    before, after = call.specs(source), call.specs(node)
    if not isinstance(before, Spec) or not isinstance(after, Spec):
        return None
    # Reading it takes longer than looking at its rank, and pieces by the hundred are no such thing.
    if after.ndim != before.ndim + 1 or not isinstance(read(node, call.specs), Reshape):
        return None
    expected = (*before.shape[:dim], 1, *before.shape[dim:])
    return source if list(map(str, after.shape)) == list(map(str, expected)) else None


@spelled("tensors, dim=0", torch.stack, aten.stack.default)
def read_stack(call: Bound) -> Op | None:
    found = _tensors(call)
    if found is None:
        return None
    inputs, spec = found
    dim = dim_of(call["dim"], spec.ndim + 1)
    return None if dim is None else Stack(call.node, inputs, dim)


def _reshape(call: Bound) -> Op | None:
    source, result = call.tensor(), call.result()
    if source is None or not isinstance(result, Spec) or result.dtype != source[1].dtype:
        return None
    return Reshape(call.node, source[0], result.shape)


@spelled("input, *shape|size", torch.reshape, "reshape", "view", aten.view.default)
@spelled("input, *shape|size", aten.reshape.default, aten._unsafe_view.default)
@spelled("input, start_dim=0, end_dim=-1", torch.flatten, "flatten", aten.flatten.using_ints)
@spelled("input, dim, sizes", torch.unflatten, "unflatten", aten.unflatten.int)
@spelled("input, dim", torch.unsqueeze, "unsqueeze", aten.unsqueeze.default)
@spelled("input, *dim", torch.squeeze, "squeeze", aten.squeeze.default)
@spelled("input, *dim", aten.squeeze.dim, aten.squeeze.dims)
@spelled("input, other", "view_as", "reshape_as")
def read_reshape(call: Bound) -> Op | None:
    """All of these are one reshape to the shape that torch found for the output."""
    return _reshape(call)


@spelled("input, *dims", torch.permute, "permute", aten.permute.default)
def read_permute(call: Bound) -> Op | None:
    source = call.tensor()
    if source is None:
        return None
    node, spec = source
    dims = tuple(dim_of(dim, spec.ndim) for dim in call["dims"])
    if None in dims or sorted(dims) != list(range(spec.ndim)):  # type: ignore[type-var]
        return None
    return Permute(call.node, node, dims)  # type: ignore[arg-type]


@spelled("input, dim0|axis0, dim1|axis1", torch.transpose, "transpose", aten.transpose.int)
@spelled("input, dim0|axis0, dim1|axis1", torch.swapaxes, torch.swapdims, "swapaxes", "swapdims")
def read_transpose(call: Bound) -> Op | None:
    source = call.tensor()
    if source is None:
        return None
    node, spec = source
    first, second = dim_of(call["dim0"], spec.ndim), dim_of(call["dim1"], spec.ndim)
    if first is None or second is None:
        return None
    dims = list(range(spec.ndim))
    dims[first], dims[second] = dims[second], dims[first]
    return Permute(call.node, node, tuple(dims))


@spelled("input", torch.t, "t", aten.t.default)
def read_t(call: Bound) -> Op | None:
    source = call.tensor()
    if source is None or source[1].ndim > 2:
        return None
    return Permute(call.node, source[0], tuple(reversed(range(source[1].ndim))))


@spelled("input, source, destination", torch.movedim, torch.moveaxis, "movedim", "moveaxis")
def read_movedim(call: Bound) -> Op | None:
    """Some dims go to new places, the others fill up the rest in order."""
    found = call.tensor()
    if found is None:
        return None
    node, spec = found
    old, new = _dims(call["source"], spec.ndim), _dims(call["destination"], spec.ndim)
    if old is None or new is None or len(old) != len(new):
        return None
    dims = [dim for dim in range(spec.ndim) if dim not in old]
    for place, dim in sorted(zip(new, old, strict=True)):
        dims.insert(place, dim)
    return Permute(call.node, node, tuple(dims))


def _dims(value: Any, ndim: int) -> list[int] | None:
    """One dim or several as non-negative integers."""
    items = value if isinstance(value, (tuple, list)) else [value]
    dims = [dim_of(item, ndim) for item in items]
    return None if None in dims else dims  # type: ignore[return-value]


@spelled("input, name", getattr)
def read_attribute(call: Bound) -> Op | None:
    """`x.T` of a matrix and `x.mT`."""
    source = call.tensor()
    if source is None or call["name"] not in ("T", "mT") or source[1].ndim < 2:
        return None
    if call["name"] == "mT":
        return read_matrix_transpose(call)
    return Permute(call.node, source[0], tuple(reversed(range(source[1].ndim))))


@spelled("input", aten.mT)
def read_matrix_transpose(call: Bound) -> Op | None:
    """`x.mT` as Dynamo writes it since torch 2.14: the op without an overload."""
    source = call.tensor()
    if source is None or source[1].ndim < 2:
        return None
    dims = list(range(source[1].ndim))
    return Permute(call.node, source[0], (*dims[:-2], dims[-1], dims[-2]))


def _slice(node: fx.Node, input: fx.Node, spec: Spec, dim: int, start: Any, stop: Any) -> Op | None:
    size = static(spec.shape[dim])
    if size is None or not all(bound is None or type(bound) is int for bound in (start, stop)):
        return None
    begin, end, _ = slice(start, stop).indices(size)
    return Slice(node, input, dim, begin, max(begin, end))


@spelled("input, dim=0, start=None, end=None, step=1", aten.slice.Tensor)
def read_slice(call: Bound) -> Op | None:
    source = call.tensor()
    if source is None or call["step"] != 1:
        return None
    node, spec = source
    dim = dim_of(call["dim"], spec.ndim)
    return None if dim is None else _slice(call.node, node, spec, dim, call["start"], call["end"])


@spelled("input, dim, start, length", torch.narrow, "narrow", aten.narrow.default)
def read_narrow(call: Bound) -> Op | None:
    source, start, length = call.tensor(), call["start"], call["length"]
    if source is None or type(start) is not int or type(length) is not int:
        return None
    node, spec = source
    dim = dim_of(call["dim"], spec.ndim)
    size = None if dim is None else static(spec.shape[dim])
    if dim is None or size is None:
        return None
    start = start % size if start < 0 else start
    return _slice(call.node, node, spec, dim, start, start + length)


@spelled("input, dim, index", torch.select, "select", aten.select.int)
def read_select(call: Bound) -> Op | None:
    source, index = call.tensor(), call["index"]
    if source is None:
        return None
    node, spec = source
    dim = dim_of(call["dim"], spec.ndim)
    return None if dim is None else _select(call.node, node, spec, dim, index)


def _select(node: fx.Node, input: fx.Node, spec: Spec, dim: int, index: Any) -> Op | None:
    size = static(spec.shape[dim])
    if size is None:
        return Select(node, input, dim, index) if type(index) is int and index >= 0 else None
    position = dim_of(index, size)
    return None if position is None else Select(node, input, dim, position)


@spelled("input, index", operator.getitem)
def read_getitem(call: Bound) -> Op | None:
    """A piece of a multi-output op, or basic indexing of a tensor that touches one dim."""
    source, index = call["input"], call["index"]
    if not isinstance(source, fx.Node):
        return None
    spec = call.specs(source)
    if isinstance(spec, tuple):
        position = dim_of(index, len(spec))
        return None if position is None else Piece(call.node, source, position)
    if not isinstance(spec, Spec):
        return None
    items = list(index) if isinstance(index, tuple) else [index]
    if Ellipsis in [item for item in items if not isinstance(item, fx.Node)]:
        missing = spec.ndim - sum(item is not None for item in items) + 1
        at = items.index(Ellipsis)
        items[at : at + 1] = [slice(None)] * missing
    if None in [item for item in items if not isinstance(item, fx.Node)]:
        full = all(item is None or item == slice(None) for item in items)
        return _reshape(call) if full else None
    touched = [(dim, item) for dim, item in enumerate(items) if item != slice(None)]
    if len(touched) != 1:
        return None
    dim, item = touched[0]
    if isinstance(item, slice):
        if item.step not in (None, 1):
            return None
        return _slice(call.node, source, spec, dim, item.start, item.stop)
    return _select(call.node, source, spec, dim, item)

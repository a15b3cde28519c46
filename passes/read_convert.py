"""Readers of conversions, of copies by broadcasting, and of ops that return their input as it is."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import fx

from passwright.passes.binding import Bound, spelled
from passwright.passes.ops import Convert, Dropout, Expand, Identity, Op, Repeat
from passwright.passes.spec import Spec, static

aten = torch.ops.aten


def is_itself(source: Spec, result: Spec) -> bool:
    """The result is the very tensor it was made of: same memory, seen in the same way."""
    return (
        source.storage == result.storage
        and source.dtype == result.dtype
        and [*map(str, (*source.shape, source.offset))]
        == [*map(str, (*result.shape, result.offset))]
        and source.same_strides(result)
    )


def _itself(call: Bound) -> Op | None:
    source, result = call.tensor(), call.result()
    if source is None or not isinstance(result, Spec) or not is_itself(source[1], result):
        return None
    return Identity(call.node, source[0])


@spelled("input, memory_format=None", "contiguous")
def read_contiguous(call: Bound) -> Op | None:
    """Read only where nothing is copied."""
    return _itself(call)


@spelled("input, p=0.5, training=True, inplace=False", F.dropout)
@spelled("input, p, train|training, inplace=False", torch.dropout, aten.dropout.default)
def read_dropout(call: Bound) -> Op | None:
    """Switched off it returns its input (a copy of it, once compiled); else it draws at random."""
    source, p = call.tensor(), call["p"]
    training = call["training" if "training" in call.args else "train"]
    if source is None or call["inplace"] is not False or type(p) not in (int, float):
        return None
    if training is False or p == 0:
        result = call.result()
        same = isinstance(result, Spec) and source[1].same_strides(result)
        return Identity(call.node, source[0]) if same else None
    return Dropout(call.node, source[0], float(p)) if training is True else None


@spelled("input, memory_format=None", "long", "int", "float", "double", "half", "bfloat16", "bool")
@spelled("input, dtype, memory_format=None", "type")
@spelled("input, other, non_blocking=False, copy=False, memory_format=None", "type_as")
@spelled("input, dtype, non_blocking=False, copy=False, memory_format=None", aten.to.dtype)
@spelled(
    "input, dtype|device|other, second=None, non_blocking=False, copy=False, memory_format=None",
    "to",
)
def read_convert(call: Bound) -> Op | None:
    """Not read: a move to another device, a copy that was asked for, another memory format."""
    source, result = call.tensor(), call.result()
    if source is None or not isinstance(result, Spec) or call["memory_format"] is not None:
        return None
    if call.args.get("copy", False) is not False or source[1].device != result.device:
        return None
    if source[1].dtype == result.dtype:
        return _itself(call)
    # A conversion keeps the order of strides of a dense tensor, and packs any other.
    return Convert(call.node, source[0], result.dtype)


@spelled("input|a, dtype", torch.ops.prims.convert_element_type.default)
def read_convert_element_type(call: Bound) -> Op | None:
    """The spelling of graphs inside Inductor."""
    source, result = call.tensor(), call.result()
    if source is None or not isinstance(result, Spec) or source[1].dtype == result.dtype:
        return None
    return Convert(call.node, source[0], result.dtype)


@spelled(
    "input, dtype=None, layout=None, device=None, pin_memory=None, non_blocking=False,"
    " memory_format=None",
    aten._to_copy.default,
)
def read_to_copy(call: Bound) -> Op | None:
    """Always a copy; read only where it changes the type and nothing else."""
    source, result = call.tensor(), call.result()
    plain = all(call[name] is None for name in ("layout", "pin_memory", "memory_format"))
    if source is None or not isinstance(result, Spec) or not plain:
        return None
    if source[1].device != result.device or source[1].dtype == result.dtype:
        return None
    return Convert(call.node, source[0], result.dtype)


@spelled("input, *size|sizes, implicit=False", "expand", aten.expand.default)
@spelled("input, size|shape", torch.broadcast_to, "broadcast_to")
@spelled("input, other", "expand_as")
def read_expand(call: Bound) -> Op | None:
    """The shape comes from the result, so that sizes of -1 need no arithmetic here."""
    source, result = call.tensor(), call.result()
    if source is None or not isinstance(result, Spec) or source[1].storage != result.storage:
        return None
    return Expand(call.node, source[0], result.shape)


@spelled("input, *repeats|sizes", "repeat", aten.repeat.default)
@spelled("input, *dims|reps", torch.tile, "tile")
def read_repeat(call: Bound) -> Op | None:
    """Dims that the input lacks count as leading dims of size 1."""
    source, result = call.tensor(), call.result()
    given: Any = call["repeats"] if "repeats" in call.args else call["dims"]
    if source is None or not isinstance(result, Spec) or isinstance(given, fx.Node):
        return None
    repeats = tuple(static(count) for count in given)
    if None in repeats or len(repeats) > result.ndim:
        return None
    # Spelled as `tile`, missing counts are 1.
    filled = (*(1 for _ in range(result.ndim - len(repeats))), *repeats)
    return Repeat(call.node, source[0], filled)  # type: ignore[arg-type]

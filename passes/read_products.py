"""Readers of matrix products, convolutions and attention."""

from __future__ import annotations

import operator
from typing import Any

import torch
import torch.nn.functional as F

from passwright.passes.binding import Bound, spelled
from passwright.passes.ops import Attention, Convolution, Einsum, Matmul, Op
from passwright.passes.read_compute import optional_tensor

aten = torch.ops.aten


@spelled("input, other", torch.matmul, "matmul", operator.matmul, "__matmul__")
@spelled("input, other", aten.matmul.default)
@spelled("input, mat2|other", torch.mm, "mm", torch.bmm, "bmm", aten.bmm.default)
def read_matmul(call: Bound) -> Op | None:
    """Not read: vectors, for which torch has rules of their own."""
    left = call.tensor()
    right = call.tensor("other" if "other" in call.args else "mat2")
    if left is None or right is None or min(left[1].ndim, right[1].ndim) < 2:
        return None
    return Matmul(call.node, left[0], right[0])


@spelled("equation, *operands", torch.einsum, torch.functional.einsum)
@spelled("equation, operands, path=None", aten.einsum.default)
def read_einsum(call: Bound) -> Op | None:
    """Not read: ellipsis, a letter twice in one operand, the form with lists of numbers."""
    equation = call["equation"]
    if not isinstance(equation, str):
        return None
    equation = equation.replace(" ", "")
    if "->" not in equation or "." in equation:
        return None
    names, _, out = equation.partition("->")
    labels = names.split(",")
    specs = [call.specs(node) if hasattr(node, "op") else None for node in call["operands"]]
    if len(labels) != len(specs) or len(set(out)) != len(out):
        return None
    for label, spec in zip(labels, specs, strict=True):
        if len(set(label)) != len(label) or len(label) != getattr(spec, "ndim", None):
            return None
    return Einsum(call.node, equation, tuple(call["operands"]))


@spelled("input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1", F.conv1d)
@spelled("input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1", F.conv2d)
@spelled("input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1", F.conv3d)
@spelled(
    "input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1",
    torch.conv1d, torch.conv2d, torch.conv3d,
    aten.conv1d.default, aten.conv2d.default, aten.conv3d.default,
)  # fmt: skip
def read_convolution(call: Bound) -> Op | None:
    """Not read: padding given as a word, an input without batch dim."""
    source, weight = call.tensor(), call.tensor("weight")
    fits, bias = optional_tensor(call, "bias")
    if source is None or weight is None or not fits or source[1].ndim != weight[1].ndim:
        return None
    spatial = source[1].ndim - 2
    names = ("stride", "padding", "dilation")
    stride, padding, dilation = (_sizes(call[name], spatial) for name in names)
    if stride is None or padding is None or dilation is None or type(call["groups"]) is not int:
        return None
    operands = (source[0], weight[0], bias)
    return Convolution(call.node, *operands, stride, padding, dilation, call["groups"])


def _sizes(value: Any, count: int) -> tuple[int, ...] | None:
    """One integer a spatial dim; a single one stands for all."""
    items = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    if any(type(item) is not int for item in items) or len(items) not in (1, count):
        return None
    return items * count if len(items) == 1 else items


@spelled(
    "query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False",
    F.scaled_dot_product_attention,
    aten.scaled_dot_product_attention.default,
)
def read_attention(call: Bound) -> Op | None:
    """Not read: dropout, grouped queries."""
    parts = [call.tensor(name) for name in ("query", "key", "value")]
    fits, mask = optional_tensor(call, "attn_mask")
    scale = call["scale"]
    if None in parts or not fits or call["dropout_p"] not in (0, 0.0):
        return None
    if call["enable_gqa"] is not False or type(call["is_causal"]) is not bool:
        return None
    if scale is not None and type(scale) not in (int, float):
        return None
    query, key, value = (part[0] for part in parts if part is not None)
    return Attention(call.node, query, key, value, mask, call["is_causal"], scale)

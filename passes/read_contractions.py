"""Readers of `tensordot`, under the ops that say the same."""

from __future__ import annotations

from string import ascii_letters
from typing import Any

import torch

from passwright.passes.binding import Bound, spelled
from passwright.passes.ops import Einsum, Matmul, Op
from passwright.passes.read_movement import dim_of


@spelled("input|a, other|b, dims=2", torch.tensordot)
def read_tensordot(call: Bound) -> Op | None:
    """A Matmul where the last dim meets the first one of a matrix, else an Einsum.

    Not read: dims given as a tensor, a dim of size 1 that is summed against another.
    """
    left, right = call.tensor(), call.tensor("other")
    if left is None or right is None:
        return None
    pairs = _pairs(call["dims"], left[1].ndim, right[1].ndim)
    if pairs is None or left[1].ndim + right[1].ndim > len(ascii_letters):
        return None
    if any(str(left[1].shape[i]) != str(right[1].shape[j]) for i, j in pairs):
        return None
    if pairs == [(left[1].ndim - 1, 0)] and left[1].ndim > 1 and right[1].ndim == 2:
        return Matmul(call.node, left[0], right[0])
    a = list(ascii_letters[: left[1].ndim])
    b = list(ascii_letters[left[1].ndim :][: right[1].ndim])
    for i, j in pairs:
        b[j] = a[i]
    out = [letter for letter in a + b if not (letter in a and letter in b)]
    equation = f"{''.join(a)},{''.join(b)}->{''.join(out)}"
    return Einsum(call.node, equation, (left[0], right[0]))


def _pairs(dims: Any, left: int, right: int) -> list[tuple[int, int]] | None:
    """The dims of both operands that are summed together."""
    if type(dims) is int:
        if not 0 <= dims <= min(left, right):
            return None
        return [(left - dims + i, i) for i in range(dims)]
    if not isinstance(dims, (tuple, list)) or len(dims) != 2:
        return None
    first, second = dims
    if not isinstance(first, (tuple, list)) or not isinstance(second, (tuple, list)):
        return None
    found = [(dim_of(i, left), dim_of(j, right)) for i, j in zip(first, second, strict=False)]
    pairs = [(i, j) for i, j in found if i is not None and j is not None]
    distinct = len({i for i, _ in pairs}) == len({j for _, j in pairs}) == len(pairs)
    return pairs if len(pairs) == len(first) == len(second) and distinct else None

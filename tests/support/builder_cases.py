"""One call of every builder, on inputs of random layout."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from passwright.passes.dialect import Dialect
from passwright.passes.editor import GraphEditor
from passwright.passes.ops import BatchNorm

aten = torch.ops.aten
Layout = tuple[tuple[int, ...], tuple[int, ...]]


def layout(draw: random.Random, ndim: int | None = None, *, dense: bool = False) -> Layout:
    """A random shape and strides: row-major, permuted, with gaps, expanded."""
    ndim = draw.randrange(1, 5) if ndim is None else ndim
    shape = [draw.choice((1, 2, 3, 4, 6)) for _ in range(ndim)]
    if draw.random() < 0.08 and not dense:
        shape[draw.randrange(ndim)] = 0
    order = list(range(ndim))
    if draw.random() < 0.5:
        draw.shuffle(order)
    stride, step = [0] * ndim, 1
    for dim in reversed(order):
        gap = draw.choice((1, 1, 1, 2)) if not dense else 1
        stride[dim] = step * gap
        step = stride[dim] * max(shape[dim], 1)
    if draw.random() < 0.15 and not dense:
        stride[draw.randrange(ndim)] = 0
    return tuple(shape), tuple(stride)


def factors(draw: random.Random, number: int) -> list[int]:
    """A random shape of so many elements."""
    found = []
    while number > 1:
        part = draw.choice([d for d in range(2, number + 1) if number % d == 0])
        found.append(part)
        number //= part
    for _ in range(draw.randrange(3)):
        found.insert(draw.randrange(len(found) + 1), 1)
    return found


class Case:
    """One call of a builder on inputs of random layout."""

    def __init__(self, s: Any, draw: random.Random) -> None:
        self.s = s
        self.draw = draw
        self.later: Callable[[GraphEditor], Any]
        self.shape: tuple[int, ...]

    def tensor(self, shape: Any = None, **kwargs: Any) -> fx.Node:
        """An input: of random layout, or of this shape with random strides."""
        if shape is None:
            shape, stride = layout(self.draw)
        else:
            order = list(range(len(shape)))
            if self.draw.random() < 0.4:
                self.draw.shuffle(order)
            stride, step = [0] * len(shape), 1
            for dim in reversed(order):
                stride[dim], step = step, step * max(shape[dim], 1)
        self.shape = tuple(shape)
        return self.s.input(*shape, stride=tuple(stride), **kwargs)

    def dim(self, extra: int = 0) -> int:
        return self.draw.randrange(len(self.shape) + extra)

    def sizes(self, total: int) -> list[int]:
        found = []
        while total:
            found.append(self.draw.randrange(1, total + 1))
            total -= found[-1]
        return found or [0]


def split(c: Case) -> Callable[[GraphEditor], Any]:
    x, dim = c.tensor(), c.dim()
    sizes = c.sizes(c.shape[dim])
    return lambda e: e.split(x, sizes, dim)


def split_range(c: Case) -> Callable[[GraphEditor], Any]:
    x, dim = c.tensor(), c.dim()
    sizes = c.sizes(c.shape[dim])
    start = c.draw.randrange(len(sizes))
    stop = c.draw.randrange(start, len(sizes)) + 1
    return lambda e: e.split_range(x, sum(sizes[:start]), sizes[start:stop], dim)


def unbind(c: Case) -> Callable[[GraphEditor], Any]:
    x, dim = c.tensor(), c.dim()
    return lambda e: e.unbind(x, dim)


def piece(c: Case) -> Callable[[GraphEditor], Any]:
    x, dim = c.tensor(), c.dim()
    several = c.s.call(aten.split.Tensor, x, 2, dim)
    count = len(several.meta[c.s.key])
    return lambda e: e.piece(several, count - 1)


def alike(c: Case) -> list[fx.Node]:
    first = c.tensor(layout(c.draw, c.draw.randrange(1, 6))[0])
    shape = c.shape
    return [first, *(c.tensor(shape) for _ in range(c.draw.randrange(3)))]


def cat(c: Case) -> Callable[[GraphEditor], Any]:
    tensors, dim = alike(c), c.dim()
    return lambda e: e.cat(tensors, dim)


def stack(c: Case) -> Callable[[GraphEditor], Any]:
    tensors, dim = alike(c), c.dim(1)
    return lambda e: e.stack(tensors, dim)


def reshape(c: Case) -> Callable[[GraphEditor], Any]:
    x = c.tensor()
    wanted = factors(c.draw, math.prod(c.shape)) if 0 not in c.shape else [*c.shape, 1]
    return lambda e: e.reshape(x, wanted)


def unsqueeze(c: Case) -> Callable[[GraphEditor], Any]:
    x, dim = c.tensor(), c.dim(1)
    return lambda e: e.unsqueeze(x, dim)


def permute(c: Case) -> Callable[[GraphEditor], Any]:
    x = c.tensor()
    dims = c.draw.sample(range(len(c.shape)), len(c.shape))
    return lambda e: e.permute(x, dims)


def slice_(c: Case) -> Callable[[GraphEditor], Any]:
    x, dim = c.tensor(), c.dim()
    start = c.draw.randrange(c.shape[dim] + 1)
    stop = c.draw.randrange(start, c.shape[dim] + 1)
    return lambda e: e.slice(x, dim, start, stop)


def select(c: Case) -> Callable[[GraphEditor], Any]:
    x, dim = c.tensor(), c.dim()
    if not c.shape[dim]:
        return lambda _: None
    index = c.draw.randrange(c.shape[dim])
    return lambda e: e.select(x, dim, index)


def contiguous_copy(c: Case) -> Callable[[GraphEditor], Any]:
    x = c.tensor()
    return lambda e: e.contiguous_copy(x)


def linear(c: Case) -> Callable[[GraphEditor], Any]:
    leading = [c.draw.randrange(1, 4) for _ in range(c.draw.randrange(1, 4))]
    x, w = c.tensor((*leading, 3)), c.tensor((5, 3))
    b = c.draw.choice((None, c.tensor((5,))))
    return lambda e: e.linear(x, w, b)


def batched_linear(c: Case) -> Callable[[GraphEditor], Any]:
    x, w = c.tensor((4, 2, 3)), c.tensor((4, 5, 3))
    b = c.draw.choice((None, c.tensor((4, 5))))
    return lambda e: e.batched_linear(x, w, b)


def zeros(c: Case) -> Callable[[GraphEditor], Any]:
    x = c.tensor(dtype=c.draw.choice((torch.float32, torch.int64)))
    return lambda e: e.zeros((2, 3), x)


def layer_norm(c: Case) -> Callable[[GraphEditor], Any]:
    x = c.tensor(layout(c.draw, 3, dense=True)[0])
    count = c.draw.randrange(1, 3)
    shape = c.shape[-count:]
    w, b = (c.draw.choice((None, c.tensor(shape))) for _ in range(2))
    return lambda e: e.layer_norm(x, shape, w, b)


def embedding(c: Case) -> Callable[[GraphEditor], Any]:
    index = c.tensor(layout(c.draw, 2)[0], dtype=torch.int64)
    table = c.tensor((7, 3))
    return lambda e: e.embedding(index, table, c.draw.choice((None, 2)))


def convert(c: Case) -> Callable[[GraphEditor], Any]:
    x = c.tensor()
    return lambda e: e.convert(x, c.draw.choice((torch.float32, torch.float64, torch.int32)))


def pointwise(c: Case) -> Callable[[GraphEditor], Any]:
    x = c.tensor(layout(c.draw, dense=True)[0])
    y = c.tensor(c.shape[c.draw.randrange(len(c.shape)) :])
    target = torch.sub if c.s.key == Dialect.TORCH.value else aten.sub.Tensor
    return lambda e: e.pointwise(target, x, y, dtype=torch.float32, alpha=2)


def add(c: Case) -> Callable[[GraphEditor], Any]:
    x = c.tensor()
    other = c.draw.choice((3, c.tensor(c.shape)))
    return lambda e: e.add(x, other)


def mul(c: Case) -> Callable[[GraphEditor], Any]:
    x = c.tensor(dtype=torch.int64)
    return lambda e: e.mul(x, 3)


def again(c: Case) -> Callable[[GraphEditor], Any]:
    x, y = c.tensor((2, 3)), c.tensor((2, 3))
    target = torch.sub if c.s.key == Dialect.TORCH.value else aten.sub.Tensor
    node = c.s.call(target, x, y, alpha=2)
    return lambda e: e.again(node, {y: x}, None)


def expand(c: Case) -> Callable[[GraphEditor], Any]:
    x = c.tensor()
    sizes = [c.draw.choice((1, 3)) if size == 1 else size for size in c.shape]
    shape = [*(c.draw.choice((1, 2)) for _ in range(c.draw.randrange(2))), *sizes]
    return lambda e: e.expand(x, shape)


def matmul(c: Case) -> Callable[[GraphEditor], Any]:
    lead = c.draw.choice(((), (3,)))
    left, right = c.tensor((*lead, 4, 2)), c.tensor((*lead, 2, 5))
    return lambda e: e.matmul(left, right)


def softmax(c: Case) -> Callable[[GraphEditor], Any]:
    x, log = c.tensor(), c.draw.random() < 0.5
    dim = c.dim()
    return lambda e: e.softmax(x, dim, log=log)


def reduce(c: Case) -> Callable[[GraphEditor], Any]:
    x = c.tensor([size or 2 for size in layout(c.draw)[0]])
    function = c.draw.choice(("sum", "mean", "amax", "amin"))
    dims, keepdim = sorted({c.dim(), c.dim()}), c.draw.random() < 0.5
    return lambda e: e.reduce(function, x, dims, keepdim)


def einsum(c: Case) -> Callable[[GraphEditor], Any]:
    x, y = c.tensor((4, 2)), c.tensor((5, 2))
    return lambda e: e.einsum("ij,kj->ik", x, y)


def attention(c: Case) -> Callable[[GraphEditor], Any]:
    query, key, value = c.tensor((2, 3, 4)), c.tensor((2, 5, 4)), c.tensor((2, 5, 6))
    return lambda e: e.attention(query, key, value, scale=0.5)


def batch_norm(c: Case) -> Callable[[GraphEditor], Any]:
    # In other layouts eager's kernels and fake tensors differ, and a compile goes by the latter.
    x = c.s.input(*c.draw.choice(((4, 3), (4, 3, 5), (4, 3, 2, 2))))
    training = c.draw.random() < 0.5
    mean, var = (None if training else c.tensor((3,)) for _ in range(2))
    op = BatchNorm(x, x, mean, var, None, None, training, 0.1, 1e-5)
    return lambda e: e.batch_norm(op, x, None, None, mean, var)


BUILDERS: dict[str, Callable[[Case], Callable[[GraphEditor], Any]]] = {
    **{f.__name__: f for f in (split, split_range, unbind, piece, cat, stack, reshape, unsqueeze)},
    **{f.__name__: f for f in (permute, select, contiguous_copy, linear, batched_linear, zeros)},
    **{f.__name__: f for f in (layer_norm, embedding, convert, pointwise, add, mul, again)},
    **{f.__name__: f for f in (expand, matmul, softmax, reduce, einsum, attention, batch_norm)},
    "slice": slice_,
}
#: Calls that autograd takes apart: none of ATen-IR.
TORCH_ONLY = {"einsum", "attention", "batch_norm"}
#: `again` takes its spec from the caller, and of two torch alone knows the layout.
NEVER_FORETOLD = {"again", "einsum", "attention"}

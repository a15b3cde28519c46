"""Builders of calls that compute, in the graph's own dialect, with the shape of the result.

The editor inherits them: `edit.linear(x, w, b)`. See `build` for what a foretold shape is good for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx

from passwright.passes.build import MovementBuilders, foretold
from passwright.passes.errors import IllegalRewrite
from passwright.passes.ops import BatchNorm, Operand
from passwright.passes.spec import Spec

aten = torch.ops.aten


class Builders(MovementBuilders):
    """Mixin of `GraphEditor`; `call` is the editor's."""

    # ---- products

    def linear(self, x: fx.Node, weight: fx.Node, bias: fx.Node | None) -> fx.Node:
        """`x @ weight.T + bias`."""
        xs, ws = self.view.spec(x), self.view.spec(weight)
        spec = foretold(xs.fresh([*xs.shape[:-1], ws.shape[0]]), xs, ws)
        if self._torch:
            return self.call(F.linear, x, weight, bias, spec=spec)
        if xs.ndim != 2:
            flat = self.reshape(x, (math.prod(xs.shape[:-1]), xs.shape[-1]))
            return self.reshape(self.linear(flat, weight, bias), (*xs.shape[:-1], ws.shape[0]))
        turned = self.permute(weight, [1, 0])
        if bias is None:
            return self.call(aten.mm.default, x, turned, spec=spec)
        return self.call(aten.addmm.default, bias, x, turned, spec=spec)

    def batched_linear(self, x: fx.Node, weight: fx.Node, bias: fx.Node | None) -> fx.Node:
        """k Linears at once: x (k, rows, in), weight (k, out, in), bias (k, out) or None."""
        xs, ws = self.view.spec(x), self.view.spec(weight)
        spec = foretold(xs.fresh([*xs.shape[:-1], ws.shape[1]]), xs, ws)
        turned = self.permute(weight, [0, 2, 1])
        if bias is None:
            return self.call(torch.bmm if self._torch else aten.bmm.default, x, turned, spec=spec)
        row = self.unsqueeze(bias, 1)
        target = torch.baddbmm if self._torch else aten.baddbmm.default
        return self.call(target, row, x, turned, spec=spec)

    def matmul(self, left: fx.Node, right: fx.Node) -> fx.Node:
        """Product of the last two dims of tensors of rank 2 or more, leading dims broadcast."""
        ls, rs = self.view.spec(left), self.view.spec(right)
        plain = ls.ndim == rs.ndim and ls.ndim in (2, 3)
        found = ls.fresh([*ls.shape[:-1], rs.shape[-1]]) if plain else None
        spec = foretold(found, ls, rs)
        if self._torch:
            return self.call(torch.matmul, left, right, spec=spec)
        if not plain:
            raise IllegalRewrite("ATen-IR has products of rank 2 and 3 alone")
        target = aten.mm.default if ls.ndim == 2 else aten.bmm.default
        return self.call(target, left, right, spec=spec)

    def einsum(self, equation: str, *operands: fx.Node) -> fx.Node:
        """A sum of products; in Torch-IR alone, since autograd takes the call apart."""
        if not self._torch:
            raise IllegalRewrite("ATen-IR has no einsum")
        return self.call(torch.einsum, equation, *operands)

    def attention(
        self,
        query: fx.Node,
        key: fx.Node,
        value: fx.Node,
        *,
        mask: fx.Node | None = None,
        causal: bool = False,
        scale: float | None = None,
    ) -> fx.Node:
        """`softmax(query @ key.mT * scale + mask) @ value`; (..., heads, length, width) each."""
        if not self._torch:
            raise IllegalRewrite("attention is one call in Torch-IR alone")
        target = F.scaled_dot_product_attention
        return self.call(target, query, key, value, attn_mask=mask, is_causal=causal, scale=scale)

    # ---- norms, reductions, look-ups

    def zeros(self, shape: Sequence[int], like: fx.Node) -> fx.Node:
        """Zeros of the type and on the device of `like`."""
        found = self.view.spec(like).fresh(shape)
        if self._torch:
            return self.call("new_zeros", like, tuple(shape), spec=found)
        return self.call(aten.new_zeros.default, like, list(shape), spec=found)

    def layer_norm(
        self,
        x: fx.Node,
        shape: Sequence[int],
        weight: fx.Node | None = None,
        bias: fx.Node | None = None,
        eps: float = 1e-5,
    ) -> fx.Node:
        """Normalisation over the last dims, those of `shape`."""
        spec = self.view.spec(x)
        target = F.layer_norm if self._torch else aten.layer_norm.default
        found = foretold(spec.fresh(spec.shape), spec)
        return self.call(target, x, list(shape), weight, bias, eps, spec=found)

    def embedding(self, index: fx.Node, weight: fx.Node, padding: int | None = None) -> fx.Node:
        """Rows of `weight` (rows, width): (..., width) for an index of shape (...)."""
        places, table = self.view.spec(index), self.view.spec(weight)
        spec = foretold(table.fresh([*places.shape, table.shape[1]]), places, table)
        if self._torch:
            return self.call(F.embedding, index, weight, padding, spec=spec)
        padding = -1 if padding is None else padding
        return self.call(aten.embedding.default, weight, index, padding, spec=spec)

    def batch_norm(
        self, op: BatchNorm, x: fx.Node, weight: fx.Node | None, bias: fx.Node | None,
        mean: fx.Node | None, var: fx.Node | None,
    ) -> fx.Node:  # fmt: skip
        """The batch norm `op` of other tensors: (rows, channels, ...) and one number a channel.

        In training the statistics given are overwritten, so they must be this step's own.
        """
        if not self._torch:
            raise IllegalRewrite("batch norm is one call in Torch-IR alone")
        target, numbers = F.batch_norm, (op.training, op.momentum, op.eps)
        # From rank 4 on the memory format is kept, by rules that fake tensors know better.
        plain = self.view.spec(x).ndim < 4
        found = self._pointwise_spec(self.view.spec(x).dtype, self.view.spec(x)) if plain else None
        if op.training and mean is not None:
            return self.write(target, x, mean, var, weight, bias, *numbers, spec=found)
        return self.call(target, x, mean, var, weight, bias, *numbers, spec=found)

    def copy_all(self, into: Sequence[fx.Node], values: Sequence[fx.Node]) -> fx.Node:
        """Overwrites each tensor of `into` by the value at its place, in one call."""
        return self.write(torch._foreach_copy_, list(into), list(values), spec=())

    def softmax(self, x: fx.Node, dim: int, *, log: bool = False) -> fx.Node:
        """Softmax along `dim`, or its logarithm."""
        found = self._pointwise_spec(self.view.spec(x).dtype, self.view.spec(x))
        if self._torch:
            return self.call(torch.log_softmax if log else torch.softmax, x, dim, spec=found)
        target = aten._log_softmax.default if log else aten._softmax.default
        return self.call(target, x, dim, False, spec=found)

    def reduce(self, function: str, x: fx.Node, dims: Sequence[int], keepdim: bool) -> fx.Node:
        """sum, mean, amax or amin over `dims`."""
        spec = self.view.spec(x)
        kept = [1 if d in dims else size for d, size in enumerate(spec.shape)]
        shape = kept if keepdim else [s for d, s in enumerate(spec.shape) if d not in dims]
        plain = spec.is_static and spec.is_contiguous
        found = spec.fresh(shape) if plain else None
        if self._torch:
            return self.call(getattr(torch, function), x, list(dims), keepdim, spec=found)
        packet = getattr(aten, function)
        overload = {"sum": "dim_IntList", "mean": "dim"}.get(function, "default")
        return self.call(getattr(packet, overload), x, list(dims), keepdim, spec=found)

    # ---- pointwise

    def convert(self, x: fx.Node, dtype: torch.dtype) -> fx.Node:
        """`x` in another type."""
        spec = self.view.spec(x)
        if spec.dtype == dtype:
            return x
        found = self._pointwise_spec(dtype, spec)
        if self._torch:
            return self.call("to", x, dtype, spec=found)
        return self.call(aten._to_copy.default, x, dtype=dtype, spec=found)

    def pointwise(
        self, target: Any, *operands: Operand, dtype: torch.dtype, **params: Any
    ) -> fx.Node:
        """A pointwise call of `target`, whose result has this type."""
        tensors = [self.view.spec(item) for item in operands if isinstance(item, fx.Node)]
        return self.call(target, *operands, spec=self._pointwise_spec(dtype, *tensors), **params)

    def add(self, x: fx.Node, other: fx.Node | int) -> fx.Node:
        """`x + other` in the type of `x`."""
        target = torch.add if self._torch else aten.add.Tensor
        return self.pointwise(target, x, other, dtype=self.view.spec(x).dtype)

    def mul(self, x: fx.Node, other: fx.Node | int) -> fx.Node:
        """`x * other` in the type of `x`."""
        target = torch.mul if self._torch else aten.mul.Tensor
        return self.pointwise(target, x, other, dtype=self.view.spec(x).dtype)

    def _pointwise_spec(self, dtype: torch.dtype, *operands: Spec) -> Spec | None:
        """Row-major where all operands are: other layouts follow rules that torch knows better."""
        if not all(spec.is_static and spec.is_contiguous for spec in operands):
            return None
        shape: tuple[int, ...] = torch.broadcast_shapes(*(spec.shape for spec in operands))  # type: ignore[no-untyped-call]
        return operands[0].fresh(shape, dtype)

"""Attention, einsums, softmaxes and reductions."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from passwright.passes.conformance import Example, PatternConformance, tensor
from passwright.passes.ops import (
    Attention,
    Binary,
    Einsum,
    Matmul,
    MultiHeadAttention,
    Permute,
    Piece,
    Reduce,
    Softmax,
    Stack,
    Unbind,
)
from passwright.passes.patterns import (
    BatchAttentions,
    BatchReductions,
    BatchSoftmaxes,
    DropAttentionWeights,
    EinsumAsMatmul,
    EinsumAsPointwise,
    FuseAttention,
)

QUERY, KEY, VALUE = tensor("b", 2, 3, 8), tensor("b", 2, 4, 8), tensor("b", 2, 4, 5)
X = tensor("b", 6)


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    weights = torch.softmax(q @ k.mT * 0.5, -1)
    return F.layer_norm(weights @ v, [5])


class TestFuseAttention(PatternConformance):
    pattern = FuseAttention()
    examples = (
        Example(
            *(attention, (QUERY, KEY, VALUE)),
            {Matmul: 2, Softmax: 1, Binary: 1, Attention: 0},
            {Matmul: 0, Softmax: 0, Binary: 0, Attention: 1},
            (2, 4),
        ),
    )


def heads(q: Tensor, k: Tensor, v: Tensor) -> list[Tensor]:
    first = F.scaled_dot_product_attention(q, k, v)
    second = F.scaled_dot_product_attention(torch.sin(q), torch.cos(k), torch.exp(v))
    return [F.layer_norm(first, [5]), F.layer_norm(second, [5])]


class TestBatchAttentions(PatternConformance):
    pattern = BatchAttentions()
    inputs = tuple(tensor("b", length, width) for length, width in ((3, 8), (4, 8), (4, 5)))
    examples = (
        Example(heads, inputs, {Attention: 2}, {Attention: 1, Stack: 3, Unbind: 1}, (7, 2)),
    )


def multi_head(x: Tensor, w: Tensor, v: Tensor) -> Tensor:
    given = (4, 2, w, None, None, None, False, 0.0, v, None)
    return torch.tanh(F.multi_head_attention_forward(x, x, x, *given)[0])


class TestDropAttentionWeights(PatternConformance):
    pattern = DropAttentionWeights()
    inputs = (tensor(3, "b", 4), tensor(12, 4), tensor(4, 4))
    examples = (
        Example(multi_head, inputs, {MultiHeadAttention: 1}, {MultiHeadAttention: 1}, (2, 2)),
    )


def product(x: Tensor, y: Tensor) -> Tensor:
    return torch.tanh(torch.einsum("bik,bjk->bij", x, y))


class TestEinsumAsMatmul(PatternConformance):
    pattern = EinsumAsMatmul()
    inputs = (tensor("b", 3, 4), tensor("b", 5, 4))
    examples = (Example(product, inputs, {Einsum: 1}, {Einsum: 0, Matmul: 1, Permute: 1}, (2, 1)),)


def outer(x: Tensor, y: Tensor) -> Tensor:
    return torch.tanh(torch.einsum("bi,bj->bij", x, y))


class TestEinsumAsPointwise(PatternConformance):
    pattern = EinsumAsPointwise()
    examples = (Example(outer, (X, X), {Einsum: 1}, {Einsum: 0, Binary: 1}, (3, 1)),)


def gates(x: Tensor, y: Tensor) -> list[Tensor]:
    return [torch.sin(torch.softmax(x + y, 1)), torch.cos(torch.softmax(x - y, 1))]


class TestBatchSoftmaxes(PatternConformance):
    pattern = BatchSoftmaxes()
    examples = (Example(gates, (X, X), {Softmax: 2}, {Softmax: 1, Stack: 1, Piece: 2}, (5, 2)),)


def sums(x: Tensor, y: Tensor) -> list[Tensor]:
    return [torch.sin(torch.sum(x + y, 1)), torch.cos(torch.sum(x - y, 1))]


class TestBatchReductions(PatternConformance):
    pattern = BatchReductions()
    examples = (Example(sums, (X, X), {Reduce: 2}, {Reduce: 1, Stack: 1, Piece: 2}, (5, 2)),)

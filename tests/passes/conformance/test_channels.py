"""Batch norms, convolutions, and the state that training keeps."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from passwright.passes.conformance import Example, PatternConformance, tensor
from passwright.passes.ops import BatchNorm, Convolution, InplaceBinary, Linear, Matmul, Split
from passwright.passes.patterns import (
    BatchCounters,
    BatchNormsByChannel,
    FoldBatchNorm,
    PointwiseConvolutionAsMatmul,
    WidenConvolutions,
)

X, Y, S4, S6 = tensor("b", 4), tensor("b", 6), tensor(4, grad=False), tensor(6, grad=False)
W4, W6 = tensor(4), tensor(6)
IMAGE = tensor("b", 4, 5)


def train(
    x: Tensor, y: Tensor, m: Tensor, v: Tensor, n: Tensor, u: Tensor, a: Tensor, b: Tensor
) -> list[Tensor]:
    first = F.batch_norm(x, m, v, a, None, True)
    second = F.batch_norm(torch.sin(y), n, u, b, None, True)
    return [torch.sum(torch.tanh(value), 0) for value in (first, second)]


def evaluate(x: Tensor, y: Tensor, m: Tensor, v: Tensor) -> list[Tensor]:
    var = torch.abs(v) + 0.5
    return [
        torch.sum(torch.sin(F.batch_norm(x, m, var)), 0),
        torch.sum(torch.tanh(F.batch_norm(y, m, var, bias=m)), 0),
        torch.sum(torch.cos(F.batch_norm(y, m, var)), 0),
    ]


class TestBatchNormsByChannel(PatternConformance):
    pattern = BatchNormsByChannel()
    examples = (
        Example(
            train, (X, Y, S4, S4, S6, S6, W4, W6), {BatchNorm: 2}, {BatchNorm: 1, Split: 3}, (15, 2)
        ),
        Example(evaluate, (X, X, S4, S4), {BatchNorm: 3}, {BatchNorm: 2, Split: 1}, (7, 2)),
    )


def count(x: Tensor, n: Tensor, m: Tensor) -> Tensor:
    n.add_(1)
    m += 1
    return torch.sin(x)


class TestBatchCounters(PatternConformance):
    pattern = BatchCounters()
    examples = (Example(count, (X, S4, S6), {InplaceBinary: 2}, {InplaceBinary: 0}, (1, 2)),)


def fold(x: Tensor, w: Tensor, m: Tensor, v: Tensor) -> Tensor:
    return torch.tanh(F.batch_norm(F.linear(x, w), m, torch.abs(v) + 0.5))


class TestFoldBatchNorm(PatternConformance):
    pattern = FoldBatchNorm()
    inputs = (tensor("b", 4, grad=False), tensor(6, 4, grad=False), S6, S6)
    examples = (
        Example(fold, inputs, {Linear: 1, BatchNorm: 1}, {Linear: 1, BatchNorm: 0}, (7, 2)),
    )


def siblings(x: Tensor, v: Tensor, w: Tensor) -> list[Tensor]:
    found = (F.conv1d(x, v, padding=1), F.conv1d(x, w, None, 1, 1))
    return [torch.sum(torch.tanh(value), [0, 2]) for value in found]


class TestWidenConvolutions(PatternConformance):
    pattern = WidenConvolutions()
    inputs = (IMAGE, tensor(3, 4, 3), tensor(2, 4, 3))
    examples = (Example(siblings, inputs, {Convolution: 2}, {Convolution: 1, Split: 1}, (5, 2)),)


def pointwise(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return torch.sum(torch.tanh(F.conv1d(x, w, b)), [0, 2])


class TestPointwiseConvolutionAsMatmul(PatternConformance):
    pattern = PointwiseConvolutionAsMatmul()
    examples = (
        Example(
            *(pointwise, (IMAGE, tensor(6, 4, 1), tensor(6))),
            {Convolution: 1, Matmul: 0, Linear: 0},
            {Convolution: 0},
            (4, 1),
        ),
    )

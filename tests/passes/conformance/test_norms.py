"""Normalisations side by side."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from passwright.passes.conformance import Example, PatternConformance, tensor
from passwright.passes.ops import LayerNorm, Stack, Unbind
from passwright.passes.patterns import BatchLayerNorms

X, W = tensor("b", 6), tensor(6)


def two(x: Tensor, y: Tensor, v: Tensor, w: Tensor, a: Tensor, b: Tensor) -> list[Tensor]:
    return [
        torch.sin(F.layer_norm(x, [6], v, a)),
        F.layer_norm(torch.sin(y), [6], w, b),
    ]


class TestBatchLayerNorms(PatternConformance):
    pattern = BatchLayerNorms()
    examples = (
        Example(
            two, (X, X, W, W, W, W), {LayerNorm: 2}, {LayerNorm: 1, Stack: 3, Unbind: 1}, (12, 2)
        ),
    )

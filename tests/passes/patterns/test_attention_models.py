"""Attention written out, as one call: types, sizes and models."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from attention_graphs import FUSE, Steps, fused, hidden, matches, operands, scaled, written
from torch import Tensor, nn

from passwright.passes.patterns.einsums import EinsumAsMatmul
from passwright.passes.testing import rewrite, rewrite_graph

# ---- types, sizes, models


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(sketch: Any, dtype: torch.dtype) -> None:
    s = sketch()
    upcast: Steps = lambda s, x: s.call("float", scaled(s, x))  # noqa: E731
    back: Steps = lambda s, x: s.call("to", x, dtype)  # noqa: E731
    hidden(s, written(s, *operands(s, 2, 3, dtype=dtype), upcast, after=back))
    module = s.module()
    inputs = [torch.randn(2, 3, *shape, dtype=dtype) for shape in ((5, 8), (7, 8), (7, 6))]
    result = rewrite_graph(module, inputs, FUSE)
    assert fused(result) == 1
    expected, actual = result.original(*inputs)[0], result.module(*inputs)[0]
    assert actual.dtype == dtype
    torch.testing.assert_close(actual, expected, rtol=2e-2, atol=2e-2)


def test_mask_in_half_precision_is_refused(sketch: Any) -> None:
    """A large mask swallows the scores there, and not where they are kept in single precision."""
    s = sketch()
    mask = s.call("half", s.input(5, 7, dtype=torch.bool))
    between: Steps = lambda s, x: s.call(torch.add, x, mask)  # noqa: E731
    hidden(s, written(s, *operands(s, 2, 3, dtype=torch.float16), between))
    assert not matches(s)


class Heads(nn.Module):
    """Self-attention of two heads, as models write it."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.qkv = nn.ModuleList(nn.Linear(width, width) for _ in range(3))
        self.drop = nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        b, n, width = x.shape
        q, k, v = (f(x).view(b, n, 2, width // 2).transpose(1, 2) for f in self.qkv)
        weights = torch.softmax(q @ k.transpose(-2, -1) / math.sqrt(width // 2), dim=-1)
        return (self.drop(weights) @ v).transpose(1, 2).contiguous().view(b, n, width)


@pytest.mark.parametrize("training", [False, True])
def test_module(training: bool) -> None:
    model = Heads().train(training)
    result = rewrite(model, [torch.randn(3, 5, 16)], FUSE)
    assert fused(result) == (not training)
    if not training:
        result.check()


def test_dynamic_batch() -> None:
    x = torch.randn(3, 5, 16)
    torch._dynamo.mark_dynamic(x, 0)
    result = rewrite(Heads().eval(), [x], FUSE, EinsumAsMatmul(), dynamic=None)
    assert fused(result) == 1
    result.check()


def test_autocast() -> None:
    model = Heads().eval()

    def run(x: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return model(x)

    result = rewrite(run, [torch.randn(3, 5, 16)], FUSE)
    assert fused(result) == 1
    expected, actual = result.original(*result.inputs), result.module(*result.inputs)
    torch.testing.assert_close(actual, expected, rtol=2e-2, atol=2e-2)


def test_autocast_of_other_types_is_refused(sketch: Any) -> None:
    """Products of single precision under autocast are products of another type."""
    s = sketch()
    cast = s.call(torch.amp.autocast_mode._enter_autocast, "cpu", torch.bfloat16, True, True)
    y = written(s, *operands(s, 2, 3))
    s.call(torch.amp.autocast_mode._exit_autocast, cast)
    hidden(s, y)
    assert not matches(s)

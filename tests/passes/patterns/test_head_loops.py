"""Attention as public models write it, with all clean-up: nothing is copied head by head."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from passwright.passes.graph import GraphView
from passwright.passes.matching import Rewriter
from passwright.passes.pattern import Pattern
from passwright.passes.patterns.attention import FuseAttention
from passwright.passes.patterns.einsums import EinsumAsMatmul
from passwright.passes.patterns.linears import WidenLinears
from passwright.passes.patterns.matmuls import WidenMatmuls
from passwright.passes.table import PatternTable, default_table
from passwright.passes.testing import Rewritten, capture, text

ATTENTION = "scaled_dot_product_attention"


class Interacting(nn.Module):
    """Heads are cut off with split and stacked, products spelled as tensordot and einsum."""

    def __init__(self, width: int = 8, heads: int = 2) -> None:
        super().__init__()
        weights = (nn.Parameter(torch.randn(width, width) / 4) for _ in range(4))
        self.query, self.key, self.value, self.residual = weights
        self.size = width // heads

    def forward(self, x: Tensor) -> Tensor:
        weights = (self.query, self.key, self.value)
        q, k, v = (torch.tensordot(x, w, dims=([-1], [0])) for w in weights)
        q, k, v = (torch.stack(torch.split(y, self.size, dim=2)) for y in (q, k, v))
        weights = torch.softmax(torch.einsum("bnik,bnjk->bnij", q, k), dim=-1)
        result = torch.matmul(weights, v)
        result = torch.cat(torch.split(result, 1), dim=-1).squeeze(0)
        return torch.relu(result + torch.tensordot(x, self.residual, dims=([-1], [0])))


class Views(nn.Module):
    """Heads are a dim of the projections."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.qkv = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        b, n, width = x.shape
        q, k, v = (f(x).view(b, n, 2, width // 2).transpose(1, 2) for f in self.qkv)
        weights = torch.softmax(torch.matmul(q, k.transpose(-2, -1)) * 0.5, dim=-1)
        return torch.matmul(weights, v).transpose(1, 2).contiguous().view(b, n, width)


def cleaned(model: nn.Module, *patterns: Pattern) -> Rewritten:
    """The patterns one after the other, each with all clean-up around it."""
    module, inputs = capture(model, [torch.randn(3, 5, 8, requires_grad=True)])
    original = copy.deepcopy(module)
    cleanups = [p for p in default_table() if p.cleanup]
    rewriter = Rewriter(GraphView(module.graph), PatternTable([*cleanups, *patterns]))
    rewriter.apply(rewriter.sweep())
    for pattern in patterns:
        found = [c for c in rewriter.candidates(cleanup=False) if c.pattern is pattern]
        rewriter.apply(found[0])
    rewriter.editor.finish()
    module.graph.lint()
    module.recompile()
    result = Rewritten(original, module, inputs, text(original.graph), text(module.graph))
    result.bitwise = False
    result.check()
    return result


def test_split_and_stack() -> None:
    result = cleaned(Interacting(), EinsumAsMatmul())
    assert sorted(set(result.calls)) == [
        *("add", "matmul", "permute", "relu", "reshape", "softmax", "tensordot")
    ]
    assert result.count("tensordot") == 4


def test_split_and_stack_of_one_wide_product() -> None:
    result = cleaned(Interacting(), WidenMatmuls(), FuseAttention())
    assert result.count("matmul") == result.count(ATTENTION) == 1
    assert result.count("stack") == result.count("einsum") == 0
    assert result.count("cat") == 1  # of the weights


def test_views_of_one_wide_product() -> None:
    result = cleaned(Views(), WidenLinears(), FuseAttention())
    assert result.count("linear") == result.count(ATTENTION) == result.count("cat") == 1
    assert result.count("stack") == 0
    assert result.count("clone") == 1  # of the attention's result, see `layouts`

"""What several of the archetypes consist of: fields as tokens, MLPs, attention, gates.

A token is a vector of `width` columns; a model works on a tensor (batch, tokens, width).
"""

from __future__ import annotations

import itertools

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from passwright.training.workloads.inputs import VOCABULARY, Fields, InputSource

#: Events of a history. Shorter than in production, where it changes sizes and not the graph.
EVENTS = 20


def mlp(*widths: int) -> nn.Sequential:
    """Linears of these widths with a ReLU between each two; none after the last."""
    layers: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(widths):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class FieldTokens(nn.Module):
    """A token for each field: a look-up for a categorical one, a Linear for a numerical one.

    Ids (batch, categorical) and floats (batch, numerical) -> (batch, fields, width).
    """

    def __init__(self, fields: Fields, width: int) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(VOCABULARY, width) for _ in fields.categorical)
        self.scales = nn.ModuleList(nn.Linear(1, width) for _ in fields.numerical)

    def forward(self, ids: Tensor, dense: Tensor) -> Tensor:
        tokens = [table(ids[:, number]) for number, table in enumerate(self.tables)]
        columns = torch.split(dense, 1, dim=1)
        tokens += [scale(column) for scale, column in zip(self.scales, columns, strict=True)]
        return torch.stack(tokens, dim=1)


def field_inputs(draw: InputSource) -> tuple[Tensor, Tensor]:
    """What `FieldTokens` reads: ids (batch, categorical) and floats (batch, numerical)."""
    return draw.ids(len(draw.fields.categorical), low=0), draw.uniform(len(draw.fields.numerical))


class TokenLinear(nn.Module):
    """A Linear across tokens, each output token a weighted sum: (batch, n, width) -> (batch, m, width)."""

    def __init__(self, inputs: int, outputs: int, bias: bool = True) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, outputs, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.linear(x.transpose(1, 2)).transpose(1, 2)
        return out


class SelfGate(nn.Module):
    """Each column weighed by a sigmoid of a Linear of its token; keeps the shape (..., width)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(self.linear(x))


class Attention(nn.Module):
    """Multi-head attention of one set of tokens to another (Vaswani et al., 2017), without dropout.

    (batch, n, width) and (batch, m, width) -> (batch, n, width).

    Args:
        width: columns of a token; `heads` divides it.
        heads: how many heads.
        fused: call `scaled_dot_product_attention` instead of two products and a softmax.
    """

    def __init__(self, width: int, heads: int, fused: bool = False) -> None:
        super().__init__()
        self.heads, self.fused = heads, fused
        self.scale = (width // heads) ** -0.5
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x: Tensor, context: Tensor) -> Tensor:
        query, key, value = (
            linear(tokens).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for linear, tokens in ((self.query, x), (self.key, context), (self.value, context))
        )
        if self.fused:
            mixed = F.scaled_dot_product_attention(query, key, value)
        else:
            scores = torch.matmul(query, key.transpose(-2, -1)) * self.scale
            mixed = torch.matmul(torch.softmax(scores, dim=-1), value)
        out: Tensor = self.out(mixed.transpose(1, 2).flatten(2))
        return out

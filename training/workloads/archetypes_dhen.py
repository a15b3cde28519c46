"""DHEN: layers that are each an ensemble of unlike interaction modules."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from passwright.training.workloads.archetypes_blocks import (
    Attention,
    FieldTokens,
    TokenLinear,
    field_inputs,
    mlp,
)
from passwright.training.workloads.inputs import Fields
from passwright.training.workloads.workload import Workload

HEADS = 4


class SelfAttention(nn.Module):
    """Tokens that attend to each other, with a residual, then fewer of them.

    (batch, inputs, width) -> (batch, outputs, width), as all modules of an ensemble.
    """

    def __init__(self, inputs: int, outputs: int, width: int) -> None:
        super().__init__()
        self.attention = Attention(width, HEADS)
        self.norm = nn.LayerNorm(width)
        self.compress = TokenLinear(inputs, outputs)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.compress(self.norm(x + self.attention(x, x)))
        return out


class Convolution(nn.Module):
    """A convolution along the columns, with the tokens as its channels, and a ReLU."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.convolution = nn.Conv1d(inputs, outputs, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.convolution(x))


class Cross(nn.Module):
    """One cross layer x * (U V x) + x over all columns of all tokens (Wang et al., DCN-V2, 2021)."""

    def __init__(self, inputs: int, outputs: int, width: int, rank: int) -> None:
        super().__init__()
        self.outputs = outputs
        self.down = nn.Linear(inputs * width, rank, bias=False)
        self.up = nn.Linear(rank, inputs * width)
        self.compress = nn.Linear(inputs * width, outputs * width)

    def forward(self, x: Tensor) -> Tensor:
        flat = x.reshape(x.shape[0], -1)
        crossed = flat * self.up(self.down(flat)) + flat
        out: Tensor = self.compress(crossed).unflatten(1, (self.outputs, -1))
        return out


class DotProducts(nn.Module):
    """The products of all pairs of tokens, through an MLP."""

    def __init__(self, inputs: int, outputs: int, width: int, hidden: int) -> None:
        super().__init__()
        self.outputs = outputs
        self.register_buffer("pairs", torch.triu_indices(inputs, inputs, 1), persistent=False)
        self.mlp = mlp(inputs * (inputs - 1) // 2, hidden, outputs * width)

    def forward(self, x: Tensor) -> Tensor:
        products = torch.matmul(x, x.transpose(1, 2))
        pairs: Tensor = self.pairs  # type: ignore[assignment]
        out: Tensor = self.mlp(products[:, pairs[0], pairs[1]]).view(x.shape[0], self.outputs, -1)
        return out


class DhenLayer(nn.Module):
    """An ensemble of five modules on the same tokens, joined, with a shortcut and a LayerNorm.

    (batch, inputs, width) -> (batch, 5 * tokens, width)
    """

    def __init__(self, inputs: int, width: int, tokens: int, rank: int, hidden: int) -> None:
        super().__init__()
        self.ensemble = nn.ModuleList(
            [
                SelfAttention(inputs, tokens, width),
                Convolution(inputs, tokens),
                Cross(inputs, tokens, width, rank),
                TokenLinear(inputs, tokens),
                DotProducts(inputs, tokens, width, hidden),
            ]
        )
        outputs = len(self.ensemble) * tokens
        # Where the number of tokens stays, as in all layers but the first, nothing has to be learned.
        same = inputs == outputs
        self.shortcut = nn.Identity() if same else TokenLinear(inputs, outputs, bias=False)
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        joined = torch.cat([module(x) for module in self.ensemble], dim=1)
        out: Tensor = self.norm(joined + self.shortcut(x))
        return out


class Dhen(nn.Module):
    """Deep and hierarchical ensemble network (Zhang et al., arXiv 2203.11014).

    Ids (batch, categorical) and floats (batch, numerical) -> (batch, 1). Simplified: every layer has
    the same five modules and joins them by a cat (the paper also adds them), the convolution runs
    over columns alone, and the cross module is of low rank.

    Args:
        fields: categorical and numerical fields together.
        width: columns of a token; a multiple of 4, the number of heads.
        layers: how many layers are stacked.
        tokens: tokens that each module of a layer gives.
        rank: of the cross module.
        hidden: columns of the hidden layers.
    """

    def __init__(
        self,
        fields: int = 39,
        width: int = 32,
        layers: int = 2,
        tokens: int = 4,
        rank: int = 32,
        hidden: int = 128,
    ) -> None:
        super().__init__()
        self.tokens = FieldTokens(Fields.of(fields), width)
        counts = [fields] + [5 * tokens] * (layers - 1)
        self.layers = nn.ModuleList(
            DhenLayer(count, width, tokens, rank, hidden) for count in counts
        )
        self.top = mlp(5 * tokens * width, hidden, 1)

    def forward(self, ids: Tensor, dense: Tensor) -> Tensor:
        x = self.tokens(ids, dense)
        for layer in self.layers:
            x = layer(x)
        out: Tensor = self.top(x.flatten(1))
        return out


WORKLOADS: tuple[Workload, ...] = (
    Workload(
        "own:dhen",
        "dhen",
        None,
        lambda s: Dhen(s.size, s.width, s.layers),
        field_inputs,
        width=32,
        layers=2,
        width_multiple=HEADS,
    ),
)

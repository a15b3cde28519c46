"""DLRM and Wukong: models whose interaction is a product of all tokens with all others."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from passwright.training.workloads.archetypes_blocks import (
    FieldTokens,
    TokenLinear,
    field_inputs,
    mlp,
)
from passwright.training.workloads.inputs import VOCABULARY, Fields, InputSource
from passwright.training.workloads.workload import Workload

#: Ids in a bag of DLRM.
BAG = 4


def _bags(fields: Fields) -> tuple[int, int]:
    """How many categorical fields have one id a row, and how many a bag of them."""
    bags = max(1, len(fields.categorical) // 3)
    return len(fields.categorical) - bags, bags


class Dlrm(nn.Module):
    """Deep learning recommendation model (Naumov et al., arXiv 1906.00091).

    Ids (batch, singles), ids (batch, bags, 4) and floats (batch, numerical) -> (batch, 1). Numerical
    fields go through the bottom MLP and become one token; each categorical field is looked up, those
    of several ids summed in an EmbeddingBag. The products of all pairs of tokens, joined with the
    bottom MLP's output, go through the top MLP. Simplified: every bag has the same number of ids, and
    all tables are small and equal.

    Args:
        fields: categorical and numerical fields together.
        width: columns of an embedding.
        layers: hidden layers of each of the two MLPs.
        hidden: columns of these.
    """

    def __init__(
        self, fields: int = 39, width: int = 16, layers: int = 2, hidden: int = 64
    ) -> None:
        super().__init__()
        kinds = Fields.of(fields)
        singles, bags = _bags(kinds)
        self.singles = nn.ModuleList(nn.Embedding(VOCABULARY, width) for _ in range(singles))
        self.bags = nn.ModuleList(
            nn.EmbeddingBag(VOCABULARY, width, mode="sum") for _ in range(bags)
        )
        self.bottom = mlp(len(kinds.numerical), *[hidden] * layers, width)
        tokens = 1 + singles + bags
        self.register_buffer("pairs", torch.tril_indices(tokens, tokens, -1), persistent=False)
        self.top = mlp(width + tokens * (tokens - 1) // 2, *[hidden] * layers, 1)

    def forward(self, ids: Tensor, bags: Tensor, dense: Tensor) -> Tensor:
        bottom = self.bottom(dense)
        tokens = [bottom]
        tokens += [table(ids[:, number]) for number, table in enumerate(self.singles)]
        tokens += [table(bags[:, number]) for number, table in enumerate(self.bags)]
        stacked = torch.stack(tokens, dim=1)
        products = torch.bmm(stacked, stacked.transpose(1, 2))
        pairs: Tensor = self.pairs  # type: ignore[assignment]
        out: Tensor = self.top(torch.cat([bottom, products[:, pairs[0], pairs[1]]], dim=1))
        return out


class FactorizationBlock(nn.Module):
    """Wukong's optimised factorisation machine with its MLP: (batch, n, width) -> (batch, m, width).

    The products of all pairs, X Xᵀ, are wanted only by a few projections Y of `rank` columns, so that
    X (Xᵀ Y) gives the same without the (n, n) matrix. The paper may also compute Y from the tokens;
    here it is a weight.
    """

    def __init__(self, inputs: int, outputs: int, width: int, rank: int, hidden: int) -> None:
        super().__init__()
        self.outputs = outputs
        self.project = nn.Linear(inputs, rank, bias=False)
        self.norm = nn.LayerNorm(inputs * rank)
        self.mlp = mlp(inputs * rank, hidden, outputs * width)

    def forward(self, x: Tensor) -> Tensor:
        projected = self.project(x.transpose(1, 2))
        products = torch.bmm(x, projected).flatten(1)
        out: Tensor = self.mlp(self.norm(products)).unflatten(1, (self.outputs, -1))
        return out


class WukongLayer(nn.Module):
    """A factorisation block beside a linear compression, joined, with a residual and a LayerNorm.

    (batch, inputs, width) -> (batch, factorized + compressed, width)
    """

    def __init__(
        self, inputs: int, width: int, factorized: int, compressed: int, rank: int, hidden: int
    ) -> None:
        super().__init__()
        self.factorize = FactorizationBlock(inputs, factorized, width, rank, hidden)
        self.compress = TokenLinear(inputs, compressed, bias=False)
        outputs = factorized + compressed
        same = inputs == outputs
        self.shortcut = nn.Identity() if same else TokenLinear(inputs, outputs, bias=False)
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        joined = torch.cat([self.factorize(x), self.compress(x)], dim=1)
        out: Tensor = self.norm(joined + self.shortcut(x))
        return out


class Wukong(nn.Module):
    """Stacked factorisation machines (Zhang et al., arXiv 2403.02545).

    Ids (batch, categorical) and floats (batch, numerical) -> (batch, 1). Simplified: one token a
    field (the paper groups and projects embeddings), and one hidden layer in each MLP.

    Args:
        fields: categorical and numerical fields together.
        width: columns of a token.
        layers: how many layers are stacked.
        tokens: tokens that each half of a layer gives.
        rank: columns of the projection in the factorisation machine.
        hidden: columns of the hidden layers.
    """

    def __init__(
        self,
        fields: int = 39,
        width: int = 32,
        layers: int = 3,
        tokens: int = 8,
        rank: int = 8,
        hidden: int = 128,
    ) -> None:
        super().__init__()
        self.tokens = FieldTokens(Fields.of(fields), width)
        counts = [fields] + [2 * tokens] * (layers - 1)
        self.layers = nn.ModuleList(
            WukongLayer(count, width, tokens, tokens, rank, hidden) for count in counts
        )
        self.top = mlp(2 * tokens * width, hidden, 1)

    def forward(self, ids: Tensor, dense: Tensor) -> Tensor:
        x = self.tokens(ids, dense)
        for layer in self.layers:
            x = layer(x)
        out: Tensor = self.top(x.flatten(1))
        return out


def _dlrm_inputs(draw: InputSource) -> tuple[Tensor, Tensor, Tensor]:
    singles, bags = _bags(draw.fields)
    numerical = len(draw.fields.numerical)
    return draw.ids(singles, low=0), draw.ids(bags, BAG, low=0), draw.normal(numerical)


WORKLOADS: tuple[Workload, ...] = (
    Workload(
        "own:dlrm",
        "dlrm",
        None,
        lambda s: Dlrm(s.size, s.width, s.layers),
        _dlrm_inputs,
        width=16,
        layers=2,
    ),
    Workload(
        "own:wukong",
        "wukong",
        None,
        lambda s: Wukong(s.size, s.width, s.layers),
        field_inputs,
        width=32,
        layers=3,
    ),
)

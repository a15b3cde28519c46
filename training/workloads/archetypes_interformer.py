"""InterFormer: a sequence and the other features, learned beside each other and told about each other."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from passwright.training.workloads.archetypes_blocks import (
    EVENTS,
    Attention,
    FieldTokens,
    SelfGate,
    TokenLinear,
    field_inputs,
    mlp,
)
from passwright.training.workloads.inputs import HISTORY, VOCABULARY, Fields, InputSource
from passwright.training.workloads.workload import Workload

HEADS = 4
#: Tokens that stand for the other features at the head of the sequence, that attention gathers from
#: it, and that are its newest events.
CLS, GATHERED, RECENT = 2, 2, 2


class MaskedSequence(nn.Module):
    """Several histories as one: each event's embeddings, weighed by a mask of an MLP, made one token.

    A tensor of ids (batch, events) for each history -> (batch, events, width).
    """

    def __init__(self, histories: int, width: int) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(VOCABULARY, width) for _ in range(histories))
        self.mask = mlp(histories * width, width, histories * width)
        self.merge = nn.Linear(histories * width, width)

    def forward(self, *histories: Tensor) -> Tensor:
        looked_up = [table(ids) for table, ids in zip(self.tables, histories, strict=True)]
        joined = torch.cat(looked_up, dim=-1)
        out: Tensor = self.merge(joined * self.mask(joined))
        return out


class Summaries(nn.Module):
    """The cross arch: a few gated tokens for the features, and a few for the sequence.

    Features (batch, inputs, width) and sequence (batch, events, width) -> (batch, CLS, width) and
    (batch, CLS + GATHERED + RECENT, width). The sequence is summed up by its first tokens, by
    attention whose queries depend on the features, and by its newest events.
    """

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.compress = TokenLinear(inputs, CLS)
        self.feature_gate = SelfGate(width)
        self.queries = nn.Linear(CLS * width, GATHERED * width)
        self.gather = Attention(width, HEADS)
        self.sequence_gate = SelfGate(width)

    def forward(self, features: Tensor, sequence: Tensor) -> tuple[Tensor, Tensor]:
        of_features = self.feature_gate(self.compress(features))
        queries = self.queries(of_features.flatten(1)).unflatten(1, (GATHERED, -1))
        parts = [sequence[:, :CLS], self.gather(queries, sequence), sequence[:, -RECENT:]]
        return of_features, self.sequence_gate(torch.cat(parts, dim=1))


class InteractionArch(nn.Module):
    """Features that meet each other and the sequence's summary by products of all pairs of tokens.

    (batch, inputs, width) and (batch, summary, width) -> (batch, inputs, width)
    """

    def __init__(self, inputs: int, summary: int, width: int) -> None:
        super().__init__()
        tokens = inputs + summary
        self.of_products = nn.Linear(tokens, width)
        self.compress = TokenLinear(tokens, inputs)
        self.norm = nn.LayerNorm(width)

    def forward(self, features: Tensor, summary: Tensor) -> Tensor:
        tokens = torch.cat([features, summary], dim=1)
        products = torch.bmm(tokens, tokens.transpose(1, 2))
        mixed = self.compress(torch.relu(self.of_products(products)))
        out: Tensor = self.norm(features + mixed)
        return out


class SequenceArch(nn.Module):
    """Events through a feed-forward layer that the features' summary writes, then self-attention.

    (batch, CLS, width) and (batch, events, width) -> (batch, events, width)
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width
        self.weights = nn.Linear(CLS * width, width * width)
        self.inner_norm = nn.LayerNorm(width)
        self.attention = Attention(width, HEADS, fused=True)
        self.norm = nn.LayerNorm(width)

    def forward(self, summary: Tensor, sequence: Tensor) -> Tensor:
        weights = self.weights(summary.flatten(1)).view(-1, self.width, self.width)
        sequence = self.inner_norm(sequence + torch.bmm(sequence, weights))
        out: Tensor = self.norm(sequence + self.attention(sequence, sequence))
        return out


class InterFormerLayer(nn.Module):
    """Both arches, each told what the other knows; keeps the shapes of features and sequence."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.summaries = Summaries(inputs, width)
        self.interaction = InteractionArch(inputs, CLS + GATHERED + RECENT, width)
        self.sequence = SequenceArch(width)

    def forward(self, features: Tensor, sequence: Tensor) -> tuple[Tensor, Tensor]:
        of_features, of_sequence = self.summaries(features, sequence)
        return self.interaction(features, of_sequence), self.sequence(of_features, sequence)


class InterFormer(nn.Module):
    """Interleaved learning of sequence and non-sequence features (Zeng et al., arXiv 2411.09852).

    Ids (batch, categorical), floats (batch, numerical) and two histories of ids (batch, events) ->
    (batch, 1). Simplified: no rotary positions, one fixed kind of interaction (the paper takes any,
    such as DCN-V2 or DHEN), and histories without padding.

    Args:
        fields: categorical and numerical fields together, without the histories.
        width: columns of a token; a multiple of 4, the number of heads.
        layers: how many layers are stacked.
    """

    def __init__(self, fields: int = 39, width: int = 32, layers: int = 2) -> None:
        super().__init__()
        self.tokens = FieldTokens(Fields.of(fields), width)
        self.histories = MaskedSequence(len(HISTORY), width)
        self.first = TokenLinear(fields, CLS)
        self.layers = nn.ModuleList(InterFormerLayer(fields, width) for _ in range(layers))
        self.summaries = Summaries(fields, width)
        self.top = mlp((2 * CLS + GATHERED + RECENT) * width, 2 * width, 1)

    def forward(self, ids: Tensor, dense: Tensor, *histories: Tensor) -> Tensor:
        features = self.tokens(ids, dense)
        sequence = torch.cat([self.first(features), self.histories(*histories)], dim=1)
        for layer in self.layers:
            features, sequence = layer(features, sequence)
        joined = torch.cat(self.summaries(features, sequence), dim=1)
        out: Tensor = self.top(joined.flatten(1))
        return out


def _inputs(draw: InputSource) -> tuple[Tensor, ...]:
    return (*field_inputs(draw), *(draw.ids(EVENTS, low=0) for _ in HISTORY))


WORKLOADS: tuple[Workload, ...] = (
    Workload(
        "own:interformer",
        "interformer",
        None,
        lambda s: InterFormer(s.size, s.width, s.layers),
        _inputs,
        width=32,
        layers=2,
        width_multiple=HEADS,
    ),
)

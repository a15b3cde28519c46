"""A COFFEE-like model: towers for several sources of events and for other features, cross-combined."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from passwright.training.workloads.archetypes_blocks import (
    EVENTS,
    Attention,
    FieldTokens,
    field_inputs,
    mlp,
)
from passwright.training.workloads.inputs import VOCABULARY, Fields, InputSource
from passwright.training.workloads.workload import Workload

HEADS = 4
#: Sources of events, such as ads seen, posts seen and videos watched, and the attributes of an event.
SOURCES, ATTRIBUTES = 3, 3
#: Fields that share a tower.
GROUP = 4


def _tower(inputs: int, width: int, layers: int) -> nn.Sequential:
    """LayerNorm, then `layers` hidden layers and a last Linear, all of `width` columns."""
    return nn.Sequential(nn.LayerNorm(inputs), *mlp(inputs, *[width] * (layers + 1)))


class EventTower(nn.Module):
    """One source of events, read by the ad that is to be ranked.

    Ids (batch, events, attributes) and the ad (batch, 1, width) -> (batch, width). An event is what
    its attributes' embeddings make together; the ad attends to the events.
    """

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(VOCABULARY, width) for _ in range(ATTRIBUTES))
        self.enrich = nn.Linear(ATTRIBUTES * width, width)
        self.attention = Attention(width, HEADS, fused=True)
        self.tower = _tower(width, width, layers)

    def forward(self, events: Tensor, ad: Tensor) -> Tensor:
        columns = events.unbind(dim=2)
        looked_up = [table(ids) for table, ids in zip(self.tables, columns, strict=True)]
        enriched = torch.relu(self.enrich(torch.cat(looked_up, dim=-1)))
        out: Tensor = self.tower((ad + self.attention(ad, enriched)).squeeze(1))
        return out


class Coffee(nn.Module):
    """A model in the manner of COFFEE (Roychowdhury et al., arXiv 2601.02807).

    Ids (batch, categorical), floats (batch, numerical) and three sources of events, ids of shape
    (batch, events, attributes) -> (batch, 1).

    What the source tells: histories of events from several sources (ads seen, posts seen, videos
    watched), each event with several attributes, read by cross-attention beside the other features.
    Optimus (arXiv 2607.02945) names a production model "COFFEE-like" and gives its gain, not its
    architecture; that it is this one is our reading. The rest is ours: equal attributes in all
    sources, a tower for each source and for each four other fields, and a Linear of its own for each
    pair of the two kinds, weighed by a gate, whose results are all joined for the last MLP.

    Args:
        fields: categorical and numerical fields together, without the events.
        width: columns of a token and of a tower; a multiple of 4, the number of heads.
        layers: hidden layers of a tower.
    """

    def __init__(self, fields: int = 39, width: int = 32, layers: int = 1) -> None:
        super().__init__()
        self.tokens = FieldTokens(Fields.of(fields), width)
        self.ad = nn.Linear(fields * width, width)
        self.events = nn.ModuleList(EventTower(width, layers) for _ in range(SOURCES))
        groups = [min(GROUP, fields - first) for first in range(0, fields, GROUP)]
        self.towers = nn.ModuleList(_tower(group * width, width, layers) for group in groups)
        pairs = SOURCES * len(groups)
        self.pairs = nn.ModuleList(nn.Linear(2 * width, width) for _ in range(pairs))
        self.gates = nn.ModuleList(nn.Linear(width, 1) for _ in range(SOURCES))
        joined = (pairs + SOURCES + len(groups)) * width
        self.top = nn.Sequential(nn.LayerNorm(joined), *mlp(joined, 4 * width, 1))

    def forward(self, ids: Tensor, dense: Tensor, *events: Tensor) -> Tensor:
        tokens = self.tokens(ids, dense)
        ad = self.ad(tokens.flatten(1)).unsqueeze(1)
        of_events = [tower(source, ad) for tower, source in zip(self.events, events, strict=True)]
        groups = torch.split(tokens, GROUP, dim=1)
        of_fields = [
            tower(group.flatten(1)) for tower, group in zip(self.towers, groups, strict=True)
        ]
        crossed = []
        linears = iter(self.pairs)
        for source, gate in zip(of_events, self.gates, strict=True):
            share = torch.sigmoid(gate(source))
            for tower in of_fields:
                linear = next(linears)
                crossed.append(share * torch.relu(linear(torch.cat([source, tower], dim=1))))
        out: Tensor = self.top(torch.cat([*of_events, *of_fields, *crossed], dim=1))
        return out


def _inputs(draw: InputSource) -> tuple[Tensor, ...]:
    events = (draw.ids(EVENTS, ATTRIBUTES, low=0) for _ in range(SOURCES))
    return (*field_inputs(draw), *events)


WORKLOADS: tuple[Workload, ...] = (
    Workload(
        "own:coffee",
        "coffee",
        None,
        lambda s: Coffee(s.size, s.width, s.layers),
        _inputs,
        width=32,
        layers=1,
        width_multiple=HEADS,
    ),
)

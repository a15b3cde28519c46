"""HSTU: a sequence model whose attention has no softmax and whose output is gated."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from passwright.training.workloads.archetypes_blocks import EVENTS, mlp
from passwright.training.workloads.inputs import VOCABULARY, InputSource
from passwright.training.workloads.workload import Workload

HEADS = 2
#: Kinds of what a user may do with an item.
ACTIONS = 8
#: Times between events, in powers of two of a second.
TIME_BUCKETS = 32


class RelativeBias(nn.Module):
    """A weight for each distance in position and, in logarithmic buckets, in time.

    Times in whole seconds (batch, events) -> (batch, 1, events, events), added to every head's scores.
    """

    def __init__(self, events: int) -> None:
        super().__init__()
        self.by_position = nn.Embedding(2 * events - 1, 1)
        self.by_time = nn.Embedding(TIME_BUCKETS, 1)
        place = torch.arange(events)
        distance = place[:, None] - place[None, :] + events - 1
        self.register_buffer("distance", distance, persistent=False)

    def forward(self, times: Tensor) -> Tensor:
        apart = (times.unsqueeze(2) - times.unsqueeze(1)).abs()
        # In float32 whatever the weights are: bfloat16 could not tell the whole numbers apart.
        buckets = torch.log2(apart.float() + 1).long().clamp(max=TIME_BUCKETS - 1)
        bias: Tensor = self.by_position(self.distance) + self.by_time(buckets)
        return bias.squeeze(-1).unsqueeze(1)


class HstuLayer(nn.Module):
    """Projection, pointwise aggregated attention, gate: (batch, events, width) -> the same shape.

    One Linear and a SiLU give U, V, Q and K. Scores are SiLU(Q Kᵀ + bias) / events, without a softmax
    and causal; what they gather of V is normed and weighed by U, element by element.
    """

    def __init__(self, width: int, events: int) -> None:
        super().__init__()
        self.events = events
        self.before = nn.LayerNorm(width)
        self.project = nn.Linear(width, 4 * width)
        self.bias = RelativeBias(events)
        self.after = nn.LayerNorm(width)
        self.out = nn.Linear(width, width)
        causal = torch.ones(events, events, dtype=torch.bool).tril()
        self.register_buffer("causal", causal, persistent=False)

    def forward(self, x: Tensor, times: Tensor) -> Tensor:
        gate, *parts = F.silu(self.project(self.before(x))).chunk(4, dim=-1)
        value, query, key = (
            part.reshape(*part.shape[:2], HEADS, -1).transpose(1, 2) for part in parts
        )
        scores = F.silu(torch.matmul(query, key.transpose(-2, -1)) + self.bias(times)) / self.events
        causal: Tensor = self.causal  # type: ignore[assignment]
        mixed = torch.matmul(scores.masked_fill(~causal, 0.0), value).transpose(1, 2).flatten(2)
        out: Tensor = x + self.out(self.after(mixed) * gate)
        return out


class Hstu(nn.Module):
    """Hierarchical sequential transduction units (Zhai et al., arXiv 2402.17152).

    Ids of items, ids of actions and times, all int64 of shape (batch, events), and an id of the item
    to rank (batch,) -> (batch, 1). Simplified: item and action are added into one token (the paper
    interleaves them), sequences have one length and no padding, and one item is ranked.

    Args:
        width: columns of a token; a multiple of 2, the number of heads.
        layers: how many layers are stacked.
        events: length of the sequence.
    """

    def __init__(self, width: int = 32, layers: int = 2, events: int = EVENTS) -> None:
        super().__init__()
        self.items = nn.Embedding(VOCABULARY, width)
        self.actions = nn.Embedding(ACTIONS, width)
        self.layers = nn.ModuleList(HstuLayer(width, events) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.top = mlp(2 * width, width, 1)

    def forward(self, items: Tensor, actions: Tensor, times: Tensor, target: Tensor) -> Tensor:
        x = self.items(items) + self.actions(actions)
        for layer in self.layers:
            x = layer(x, times)
        user = self.norm(x[:, -1])
        out: Tensor = self.top(torch.cat([user, self.items(target)], dim=1))
        return out


def _inputs(draw: InputSource) -> tuple[Tensor, ...]:
    times = draw.ids(EVENTS, high=10_000).cumsum(dim=1)
    actions = draw.ids(EVENTS, low=0, high=ACTIONS)
    return draw.ids(EVENTS, low=0), actions, times, draw.ids(low=0)


WORKLOADS: tuple[Workload, ...] = (
    Workload(
        "own:hstu",
        "hstu",
        None,
        lambda s: Hstu(s.width, s.layers),
        _inputs,
        size=None,
        width=32,
        layers=2,
        width_multiple=HEADS,
    ),
)

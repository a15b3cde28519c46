"""The network that predicts what steps gain: a graph neural network over what lies around each candidate.

Nodes around a candidate, marked with what they are to it and with its pattern, pass messages along their
edges, producers and users by weights of their own (GraphSAGE, Hamilton et al. 2017; pre-norm residual
blocks). What is read out over the matched nodes and over all joins the rows of site, graph and device in a
trunk that both heads share: the gain of the step, and its gain-to-go, each a mean with two widths. Means
are corrections of what the analytic model says.

PyTorch Geometric is loaded where networks learn; who predicts does without.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from passwright.features import schema
from passwright.features.example import Example
from passwright.passes.originals import torch_as_it_was

#: Columns of a site that come from outside it.
ROWS = len(schema.SITE) + len(schema.GRAPH) + len(schema.DEVICE)
_NODES = len(schema.NODE) + len(schema.ROLE)
_ESTIMATED = schema.SITE.index("estimated_gain")
#: A column that differs by less was the same in all that was learned from, and says nothing.
_CONSTANT = 1e-3
#: Standardised columns lie within these many standard deviations: of what was never seen, only that it
#: is far off.
_CLIP = 5.0


@dataclass(frozen=True)
class NetworkConfig:
    """Sizes, and the words of which there are embeddings; others share one."""

    patterns: tuple[str, ...]
    words: tuple[str, ...]
    width: int = 64
    trunk: int = 128
    #: Rounds of messages.
    blocks: int = 1
    layers: int = 2
    pattern_width: int = 16
    word_width: int = 24
    dropout: float = 0.1
    #: Of what is read out around a candidate: families have shapes of their own, by which a network could
    #: tell them apart instead of learning what steps gain.
    around_dropout: float = 0.5
    schema: int = schema.VERSION

    def to_json(self) -> dict[str, Any]:
        """For a model's `config.json`."""
        return asdict(self)

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> NetworkConfig:
        """Reads what `to_json` gave. Raises ValueError for another schema, or other fields."""
        if found.get("schema") != schema.VERSION:
            raise ValueError(
                f"the model was trained on features of schema {found.get('schema')}, and this version has"
                f" {schema.VERSION}: train it anew (`passwright train`), or use the one that comes with it"
            )
        names = {"patterns": tuple(found["patterns"]), "words": tuple(found["words"])}
        return cls(**{**found, **names})


@dataclass(frozen=True)
class Batch:
    """k examples, with all their nodes one after the other (m in all) and their edges (f).

    `rows`: (k, ROWS). `patterns`: (k,). `words`: (m,). `nodes`: (m, NODE and ROLE). `edges`: (2, f).
    `edge_features`: (f, EDGE). `owner`: of which example each node is, (m,). `matched`: (m, 1).
    """

    rows: Tensor
    patterns: Tensor
    words: Tensor
    nodes: Tensor
    edges: Tensor
    edge_features: Tensor
    owner: Tensor
    matched: Tensor

    def to(self, device: torch.device) -> Batch:
        return Batch(*(getattr(self, name).to(device) for name in self.__dataclass_fields__))


class Collator:
    """Makes batches, with numbers for patterns and words; 0 is what has none."""

    def __init__(self, config: NetworkConfig) -> None:
        self._patterns = {name: number + 1 for number, name in enumerate(config.patterns)}
        self._words = {name: number + 1 for number, name in enumerate(config.words)}

    def __call__(self, examples: Sequence[Example]) -> Batch:
        sizes = [len(example.words) for example in examples]
        starts = np.cumsum([0, *sizes])[:-1]
        words = [self._words.get(word, 0) for example in examples for word in example.words]
        nodes = _joined([np.hstack([e.nodes, e.roles]) for e in examples], _NODES)
        edges = [e.edges + start for e, start in zip(examples, starts, strict=True)]
        return Batch(
            rows=_joined([np.hstack([e.site, e.graph, e.device])[None] for e in examples], ROWS),
            patterns=torch.tensor([self._patterns.get(e.pattern, 0) for e in examples]),
            words=torch.tensor(words, dtype=torch.long),
            nodes=nodes,
            edges=torch.from_numpy(np.hstack(edges) if edges else np.zeros((2, 0), np.int64)),
            edge_features=_joined([e.edge_features for e in examples], len(schema.EDGE)),
            owner=torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes)),
            matched=nodes[:, [len(schema.NODE) + schema.ROLE.index("is_matched")]],
        )


def _joined(parts: Sequence[np.ndarray[Any, Any]], columns: int) -> Tensor:
    empty = np.zeros((0, columns), np.float32)
    return torch.from_numpy(np.concatenate([empty, *parts]).astype(np.float32))


class GainNetwork(nn.Module):
    """One member of an ensemble. `learns`: it is to be trained, by PyTorch Geometric."""

    def __init__(self, config: NetworkConfig, *, learns: bool = True) -> None:
        super().__init__()
        self.config = config
        patterns, words = len(config.patterns) + 1, len(config.words) + 1
        self.pattern = nn.Embedding(patterns, config.pattern_width)
        self.word = nn.Embedding(words, config.word_width)
        nn.init.normal_(self.pattern.weight, std=0.1)
        nn.init.normal_(self.word.weight, std=0.3)
        self.nodes = nn.Linear(_NODES + config.word_width + config.pattern_width, config.width)
        self.messages = nn.ModuleList(
            _Messages(config, learns=learns) for _ in range(config.blocks)
        )
        self.rows = nn.Linear(ROWS + config.pattern_width, config.trunk)
        self.around = nn.Linear(2 * config.width, config.trunk)
        nn.init.zeros_(self.around.weight)
        self.forget = nn.Dropout(config.around_dropout)
        self.layers = nn.ModuleList(_Layer(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.trunk)
        #: Gain and gain-to-go, of each mean, lower and upper width.
        self.heads = nn.Linear(config.trunk, 6)
        nn.init.zeros_(self.heads.weight)
        with torch.no_grad():
            self.heads.bias.copy_(torch.tensor([0.0, -2.0, -2.0] * 2))
        for name, count in (("row", ROWS), ("node", _NODES)):
            self.register_buffer(f"{name}_mean", torch.zeros(count))
            self.register_buffer(f"{name}_scale", torch.ones(count))

    def standardise(self, batch: Batch) -> None:
        """Means and deviations of columns from now on are those of this batch."""
        for name, values in (("row", batch.rows), ("node", batch.nodes)):
            scale, mean = torch.std_mean(values, dim=0, correction=0)
            getattr(self, f"{name}_mean").copy_(mean)
            getattr(self, f"{name}_scale").copy_(scale.where(scale >= _CONSTANT, torch.inf))

    def forward(self, batch: Batch) -> Tensor:
        """(k, 2, 3): of gain and gain-to-go the mean, and the widths below and above it, which are
        positive."""
        pattern = self.pattern(batch.patterns)
        rows = self._standard(batch.rows, "row")
        around = self.around(self.forget(self._read(batch, pattern)))
        found = self.rows(torch.cat([rows, pattern], -1)) + around
        for layer in self.layers:
            found = layer(found)
        heads: Tensor = self.heads(self.norm(found)).view(-1, 2, 3)
        analytic = batch.rows[:, _ESTIMATED, None, None]
        return torch.cat([heads[..., :1] + analytic, functional.softplus(heads[..., 1:])], -1)

    def _read(self, batch: Batch, pattern: Tensor) -> Tensor:
        """What lies around each example: means over its matched nodes and over all, (k, 2 width)."""
        nodes = self._standard(batch.nodes, "node")
        found = self.nodes(torch.cat([nodes, self.word(batch.words), pattern[batch.owner]], -1))
        for block in self.messages:
            found = block(found, batch.edges)
        count = len(batch.patterns)
        means = []
        for share in (batch.matched, torch.ones_like(batch.matched)):
            total = found.new_zeros(count, found.shape[1]).index_add(0, batch.owner, found * share)
            number = share.new_zeros(count, 1).index_add(0, batch.owner, share)
            means.append(total / number.clamp(min=1.0))
        return torch.cat(means, -1)

    def _standard(self, values: Tensor, name: str) -> Tensor:
        mean: Tensor = getattr(self, f"{name}_mean")
        scale: Tensor = getattr(self, f"{name}_scale")
        return ((values - mean) / scale).clamp(-_CLIP, _CLIP)


class MeanConv(nn.Module):
    """What `SAGEConv` of PyTorch Geometric computes, with weights of the same names: the mean over whom
    edges come from, and the node itself where it has a weight (GraphSAGE, Hamilton et al. 2017).

    For who only predicts: importing that package takes longer than planning a graph.
    """

    def __init__(self, width: int, *, root_weight: bool) -> None:
        super().__init__()
        self.lin_l = nn.Linear(width, width)
        self.lin_r = nn.Linear(width, width, bias=False) if root_weight else None

    def forward(self, nodes: Tensor, edges: Tensor) -> Tensor:
        source, target = edges
        total = torch.zeros_like(nodes).index_add(0, target, nodes[source])
        count = nodes.new_zeros(len(nodes), 1)
        count = count.index_add(0, target, nodes.new_ones(len(target), 1))
        heard: Tensor = self.lin_l(total / count.clamp(min=1.0))
        return heard if self.lin_r is None else heard + self.lin_r(nodes)


def _convolution(width: int, *, root_weight: bool, learns: bool) -> nn.Module:
    if not learns:
        return MeanConv(width, root_weight=root_weight)
    with torch_as_it_was("torch_geometric"):
        from torch_geometric.nn import SAGEConv

    found: nn.Module = SAGEConv(width, width, root_weight=root_weight)
    return found


class _Messages(nn.Module):
    """Messages from producers and from users."""

    def __init__(self, config: NetworkConfig, *, learns: bool) -> None:
        super().__init__()
        width = config.width
        self.norm = nn.LayerNorm(width)
        self.producers = _convolution(width, root_weight=True, learns=learns)
        self.users = _convolution(width, root_weight=False, learns=learns)
        self.out = nn.Linear(width, width)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, nodes: Tensor, edges: Tensor) -> Tensor:
        normed = self.norm(nodes)
        heard = self.producers(normed, edges) + self.users(normed, edges.flip(0))
        spoken: Tensor = self.dropout(self.out(functional.gelu(heard)))
        return nodes + spoken


class _Layer(nn.Module):
    """A pre-norm residual layer of the trunk."""

    def __init__(self, config: NetworkConfig) -> None:
        super().__init__()
        self.inner = nn.Sequential(
            nn.LayerNorm(config.trunk),
            nn.Linear(config.trunk, 2 * config.trunk),
            nn.GELU(),
            nn.Dropout(config.dropout),
            nn.Linear(2 * config.trunk, config.trunk),
        )

    def forward(self, found: Tensor) -> Tensor:
        added: Tensor = self.inner(found)
        return found + added

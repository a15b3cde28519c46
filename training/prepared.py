"""Samples as tensors: batches of steps that networks read, and the targets of their plans."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import torch

from passwright.scheduler.gain_network import Batch, Collator, NetworkConfig
from passwright.training.gain_loss import Target, target_of
from passwright.training.samples import WorkloadSamples

#: A word that fewer nodes have shares the embedding of all unknown ones.
_RARE = 20


@dataclass(frozen=True)
class Prepared:
    """One workload's steps as a batch, and what they should come to."""

    family: str
    batch: Batch
    target: Target

    def to(self, device: torch.device) -> Prepared:
        target = Target(*(getattr(self.target, one.name).to(device) for one in fields(Target)))
        return Prepared(self.family, self.batch.to(device), target)


def vocabulary(samples: Sequence[WorkloadSamples], config: NetworkConfig) -> NetworkConfig:
    """The configuration with the patterns and words of the samples."""
    steps = [step.example for found in samples for step in found.steps]
    words = Counter(word for example in steps for word in example.words)
    frequent = sorted(word for word, count in words.items() if count >= _RARE)
    patterns = sorted({example.pattern for example in steps})
    return replace(config, patterns=tuple(patterns), words=tuple(frequent))


def prepare(samples: Sequence[WorkloadSamples], config: NetworkConfig) -> list[Prepared]:
    """Those that have any steps."""
    collate = Collator(config)
    return [
        Prepared(found.family, collate([step.example for step in found.steps]), target_of(found))
        for found in samples
        if found.steps
    ]


def joined(batches: Sequence[Batch]) -> Batch:
    """One batch of several."""
    nodes = examples = 0
    edges, owner = [], []
    for batch in batches:
        edges.append(batch.edges + nodes)
        owner.append(batch.owner + examples)
        nodes, examples = nodes + len(batch.nodes), examples + len(batch.patterns)
    plain = ("rows", "patterns", "words", "nodes", "edge_features", "matched")
    return Batch(
        edges=torch.cat(edges, 1),
        owner=torch.cat(owner),
        **{name: torch.cat([getattr(batch, name) for batch in batches]) for name in plain},
    )

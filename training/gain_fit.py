"""Fits gain networks to samples: one member of an ensemble after the other, each from its own seed."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import nn

from passwright.scheduler.gain_network import Batch, Collator, GainNetwork, NetworkConfig
from passwright.training.gain_loss import Target, loss, target_of
from passwright.training.samples import WorkloadSamples

#: A word that fewer nodes have shares the embedding of all unknown ones.
_RARE = 20


@dataclass(frozen=True)
class Fit:
    """How a network is fitted."""

    epochs: int = 50
    #: Workloads whose plans are looked at in one step.
    together: int = 16
    learning_rate: float = 2e-3
    weight_decay: float = 1e-2
    #: Patterns and words are taken for unknown ones in so many cases, so that those have a meaning.
    forget_patterns: float = 0.1
    forget_words: float = 0.05


@dataclass(frozen=True)
class Prepared:
    """One workload's steps as a batch, and what they should come to."""

    batch: Batch
    target: Target


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
        Prepared(collate([step.example for step in found.steps]), target_of(found))
        for found in samples
        if found.steps
    ]


def fit(
    prepared: Sequence[Prepared],
    config: NetworkConfig,
    how: Fit | None = None,
    *,
    seed: int = 0,
    epoch: Callable[[int, float], None] = lambda *_: None,
) -> GainNetwork:
    """A network fitted to these workloads, in evaluation mode; the same for the same seed and threads.

    `epoch` is told the number of each and its mean loss. Raises ValueError if there is nothing to fit to.
    """
    how = how or Fit()
    if not prepared:
        raise ValueError("no measured steps to learn from")
    with torch.random.fork_rng(devices=[]), _one_thread():
        torch.manual_seed(seed)
        draw = random.Random(seed)
        network = GainNetwork(config)
        network.standardise(joined([one.batch for one in prepared]))
        optimizer = torch.optim.AdamW(
            network.parameters(), lr=how.learning_rate, weight_decay=how.weight_decay
        )
        rounds = -(-len(prepared) // how.together)
        schedule = torch.optim.lr_scheduler.OneCycleLR(
            optimizer, how.learning_rate, total_steps=how.epochs * rounds
        )
        order = list(prepared)
        network.train()
        for number in range(how.epochs):
            draw.shuffle(order)
            total = 0.0
            for start in range(0, len(order), how.together):
                group = order[start : start + how.together]
                found = _mean_loss(network, group, how)
                optimizer.zero_grad()
                found.backward()  # type: ignore[no-untyped-call]
                nn.utils.clip_grad_norm_(network.parameters(), 1.0)
                optimizer.step()
                schedule.step()
                total += found.item() * len(group)
            epoch(number, total / len(order))
    return network.eval()


@contextmanager
def _one_thread() -> Iterator[None]:
    """Networks so small are quickest on one, and by far where others use the cores as well."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _mean_loss(network: GainNetwork, group: Sequence[Prepared], how: Fit) -> torch.Tensor:
    batch = joined([one.batch for one in group])
    heads = network(_forgetful(batch, how))
    sizes = [len(one.batch.patterns) for one in group]
    losses = [loss(part, one.target) for part, one in zip(heads.split(sizes), group, strict=True)]
    return torch.stack(losses).mean()


def _forgetful(batch: Batch, how: Fit) -> Batch:
    patterns, words = batch.patterns, batch.words
    return replace(
        batch,
        patterns=patterns.where(torch.rand(patterns.shape) >= how.forget_patterns, 0),
        words=words.where(torch.rand(words.shape) >= how.forget_words, 0),
    )


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

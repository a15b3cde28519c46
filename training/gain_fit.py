"""Fits a gain network to samples, from a seed, on one device or on several that share each step.

What an epoch draws depends on the seed and its number alone, so that fitting that was stopped goes on from
a checkpoint as if nothing had been.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from passwright.scheduler.gain_network import Batch, GainNetwork, NetworkConfig
from passwright.scheduler.threads import one_thread
from passwright.training import checkpoint
from passwright.training.devices import fabric_for
from passwright.training.early_stop import Best, Watched, set_apart, watch
from passwright.training.gain_loss import loss
from passwright.training.prepared import Prepared, joined

if TYPE_CHECKING:
    from lightning_fabric import Fabric

#: Seconds of fitting that may be lost when it is stopped.
_EVERY = 20.0


@dataclass(frozen=True)
class Fit:
    """How a network is fitted."""

    epochs: int = 50
    #: Epochs without a smaller loss on families that are set apart, after which fitting ends; 0: all
    #: epochs, from all families.
    patience: int = 0
    #: Workloads whose plans are looked at in one step.
    together: int = 16
    learning_rate: float = 2e-3
    weight_decay: float = 1e-2
    #: Patterns and words are taken for unknown ones in so many cases, so that those have a meaning.
    forget_patterns: float = 0.1
    forget_words: float = 0.05


@dataclass(frozen=True)
class Epoch:
    """What is known after one: its number from 0, the mean loss over it, the learning rate at its end, and
    how the network does on families that were set apart, if any were."""

    number: int
    loss: float
    learning_rate: float
    watched: Watched | None


def fit(
    prepared: Sequence[Prepared],
    config: NetworkConfig,
    how: Fit | None = None,
    *,
    seed: int = 0,
    fabric: Fabric | None = None,
    epoch: Callable[[Epoch], None] = lambda _: None,
    file: Path | None = None,
) -> GainNetwork:
    """A network fitted to these workloads, in evaluation mode and on the CPU; on CPUs the same for the same
    seed and number of processes.

    `fabric`: on what; one process on the CPU if None. `epoch` is told of each. `file`: a checkpoint, from
    which it goes on if it is there, and which is written as it goes; whoever has kept the network removes
    it. Raises ValueError if there is nothing to fit to, and SettingsError if patience has none to watch.
    """
    if not prepared:
        raise ValueError("no measured steps to learn from")
    fabric = fabric or fabric_for()
    with torch.random.fork_rng(_gpus(fabric.device)), one_thread():
        run = _Run(prepared, config, how or Fit(), seed, fabric)
        if file is not None:
            run.restore(file)
        written = time.monotonic()
        while not run.ended:
            epoch(run.step())
            late = time.monotonic() - written > _EVERY
            if file is not None and late and fabric.is_global_zero:
                run.save(file)
                written = time.monotonic()
        return run.finished()


class _Run:
    """A network under way."""

    def __init__(
        self,
        prepared: Sequence[Prepared],
        config: NetworkConfig,
        how: Fit,
        seed: int,
        fabric: Fabric,
    ) -> None:
        here = [one.to(fabric.device) for one in prepared]
        self._learned, self._watched = set_apart(here, seed) if how.patience else (here, [])
        self._how, self._seed, self._fabric = how, seed, fabric
        torch.manual_seed(seed)
        self._network = GainNetwork(config).to(fabric.device)
        self._network.standardise(joined([one.batch for one in self._learned]))
        self._model = fabric.setup_module(self._network)
        self._model.train()
        self._optimizer = torch.optim.AdamW(
            self._network.parameters(), lr=how.learning_rate, weight_decay=how.weight_decay
        )
        self._schedule = torch.optim.lr_scheduler.OneCycleLR(
            self._optimizer,
            how.learning_rate,
            total_steps=how.epochs * -(-len(self._learned) // how.together),
        )
        self._best = Best()
        self._epochs = 0

    @property
    def ended(self) -> bool:
        how = self._how
        tired = bool(how.patience) and self._best.since >= how.patience
        return tired or self._epochs >= how.epochs

    def step(self) -> Epoch:
        """One epoch."""
        number, how = self._epochs, self._how
        draw = random.Random(f"{self._seed} {number}")
        order = draw.sample(self._learned, len(self._learned))
        # Each process forgets and drops other things.
        torch.manual_seed(draw.getrandbits(32) + self._fabric.global_rank)
        total = 0.0
        for start in range(0, len(order), how.together):
            total += self._learn(order[start : start + how.together])
        self._epochs += 1
        watched = None
        if self._watched:
            # All processes have to come to the same end.
            watched = self._fabric.broadcast(watch(self._network, self._watched))
            self._best.see(watched, self._network)
        rate = self._optimizer.param_groups[0]["lr"]
        return Epoch(number, total / len(order), rate, watched)

    def _learn(self, group: Sequence[Prepared]) -> float:
        """One step; the sum of the losses of the group, as far as this process has seen it."""
        world, rank = self._fabric.world_size, self._fabric.global_rank
        # A process without a part goes along with one that does not count: averaging waits for all.
        mine, counts = (group[rank::world], 1.0) if rank < len(group) else (group[:1], 0.0)
        losses = _losses(self._model, mine, self._how).sum() * counts
        self._optimizer.zero_grad()
        self._fabric.backward(losses * (world / len(group)))
        nn.utils.clip_grad_norm_(self._network.parameters(), 1.0)
        self._optimizer.step()
        self._schedule.step()
        return losses.item() * len(group) / len(mine)

    def finished(self) -> GainNetwork:
        if self._best.weights:
            self._network.load_state_dict(self._best.weights)
        return self._network.cpu().eval()

    def save(self, file: Path) -> None:
        parts = [part.state_dict() for part in self._parts()]
        checkpoint.write([self._epochs, self._best.to_tree(), *parts], file)

    def restore(self, file: Path) -> None:
        found = checkpoint.read(file)
        if found is None:
            return
        self._epochs, best, *states = found
        self._best = Best(**best)
        for part, state in zip(self._parts(), states, strict=True):
            part.load_state_dict(state)

    def _parts(self) -> tuple[Any, ...]:
        return self._network, self._optimizer, self._schedule


def _gpus(device: torch.device) -> list[torch.device]:
    return [device] if device.type == "cuda" else []


def _losses(network: nn.Module, group: Sequence[Prepared], how: Fit) -> torch.Tensor:
    batch = joined([one.batch for one in group])
    heads = network(_forgetful(batch, how))
    sizes = [len(one.batch.patterns) for one in group]
    losses = [loss(part, one.target) for part, one in zip(heads.split(sizes), group, strict=True)]
    # Of a workload without plans nothing is learned, but it has to have gradients as well.
    found: torch.Tensor = torch.stack(losses) + 0.0 * heads.sum()
    return found


def _forgetful(batch: Batch, how: Fit) -> Batch:
    def kept(numbers: torch.Tensor, forgotten: float) -> torch.Tensor:
        keep = torch.rand(numbers.shape, device=numbers.device) >= forgotten
        return numbers.where(keep, 0)

    patterns = kept(batch.patterns, how.forget_patterns)
    return replace(batch, patterns=patterns, words=kept(batch.words, how.forget_words))

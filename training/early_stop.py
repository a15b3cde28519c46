"""When fitting ends: how a network does, epoch by epoch, on families that were set apart.

The epoch with the least loss there is the one that is kept, and so many epochs without a smaller one end it
(early stopping, Prechelt 1998). Each member of an ensemble sets other families apart, so that together they
learn from all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from passwright.passes.errors import SettingsError
from passwright.training.gain_loss import loss
from passwright.training.gain_metrics import Plans, tau
from passwright.training.prepared import Prepared, joined
from passwright.training.splits import folds

#: Of the families, one in so many parts is set apart.
_PARTS = 6


@dataclass(frozen=True)
class Watched:
    """Means over the workloads that were set apart: the loss, and Kendall's tau within a graph."""

    loss: float
    tau: float


def set_apart(prepared: Sequence[Prepared], seed: int) -> tuple[list[Prepared], list[Prepared]]:
    """What is learned from, and what is watched: whole families, by their names and the seed.

    Raises SettingsError if all are of one family.
    """
    parts = folds([one.family for one in prepared], _PARTS)
    if len(parts) < 2:
        raise SettingsError(
            "early stopping watches families that are not learned from, and there is one family alone;"
            " measure workloads of others, or fit for a fixed number of epochs (--patience 0)"
        )
    chosen = parts[seed % len(parts)]
    return (
        [one for one in prepared if one.family not in chosen],
        [one for one in prepared if one.family in chosen],
    )


def watch(network: nn.Module, prepared: Sequence[Prepared]) -> Watched:
    """How the network does on these workloads; it is left in training mode."""
    network.eval()
    with torch.inference_mode():
        heads = network(joined([one.batch for one in prepared]))
        parts = heads.split([len(one.batch.patterns) for one in prepared])
        pairs = list(zip(parts, prepared, strict=True))
        losses = torch.stack([loss(part, one.target) for part, one in pairs])
        taus = [_tau(part[:, 0, 0], one) for part, one in pairs]
    network.train()
    known = [value for value in taus if math.isfinite(value)]
    return Watched(float(losses.mean()), sum(known) / len(known) if known else math.nan)


def _tau(gains: Tensor, one: Prepared) -> float:
    target = one.target
    values = (target.gains, target.floors, target.sums @ gains)
    measured, floors, predicted = (value.double().cpu().numpy() for value in values)
    return tau(Plans("", one.family, measured, floors, predicted))


@dataclass
class Best:
    """The best epoch until now: its loss and weights, and how many epochs there were since."""

    loss: float = math.inf
    weights: dict[str, Tensor] = field(default_factory=dict)
    since: int = 0

    def see(self, found: Watched, network: nn.Module) -> None:
        self.since += 1
        if found.loss < self.loss:
            self.loss, self.since = found.loss, 0
            self.weights = {name: t.clone() for name, t in network.state_dict().items()}

    def to_tree(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {"loss": self.loss, "weights": self.weights, "since": self.since}

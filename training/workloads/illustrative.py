"""Models that show what an order of rewrites is worth: many equal branches under many cuts and joins.

Optimus (arXiv 2607.02945) has such a model, from which its horizontal and vertical rewrites together
leave 6 kernels of 6,320 in inference and 24 of 12,772 in training, while the horizontal ones alone
make training slower. It gives the input's size, 64x64 in bfloat16, and not the architecture, which is
ours here.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from passwright.training.workloads.inputs import InputSource
from passwright.training.workloads.workload import Workload

#: The size that makes more kernels than Optimus' model, of its input: 64 rows, the default batch, of
#: pieces of 64 columns, meant for bfloat16. A branch of a layer is three kernels that default Inductor
#: does not fuse: a norm, a product, and an activation that writes its piece of the join. With 64
#: branches and 32 layers that is 6,144 in inference. Training adds at least five more for each, in
#: which two are products and the rest gradients of the activation, the norm and the bias: over 16,000.
FULL = "own:illustrative?fields=64,width=64,layers=32"

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "relu": torch.relu,
    "gelu": F.gelu,
}


@dataclass(frozen=True)
class LayerPlan:
    """How one layer cuts, shuffles and joins.

    Attributes:
        groups: pieces in each part of the outer split; the inner splits cut these into pieces.
        order: of the groups in the outer join.
        orders: for each group, of its pieces in the inner join.
        stacked: for each group, whether its pieces are stacked and flattened; a cat otherwise.
        activation: a key of `ACTIVATIONS`.
    """

    groups: tuple[int, ...]
    order: tuple[int, ...]
    orders: tuple[tuple[int, ...], ...]
    stacked: tuple[bool, ...]
    activation: str

    @classmethod
    def draw(cls, pieces: int, rng: random.Random) -> LayerPlan:
        """One for so many pieces."""
        cuts = sorted(rng.sample(range(1, pieces), k=min(3, pieces - 1)))
        bounds = [0, *cuts, pieces]
        groups = tuple(end - start for start, end in itertools.pairwise(bounds))
        return cls(
            groups,
            _shuffled(len(groups), rng),
            tuple(_shuffled(group, rng) for group in groups),
            tuple(rng.random() < 0.5 for _ in groups),
            rng.choice(sorted(ACTIVATIONS)),
        )


def _shuffled(count: int, rng: random.Random) -> tuple[int, ...]:
    return tuple(rng.sample(range(count), k=count))


class IllustrativeLayer(nn.Module):
    """Nested splits, a branch LayerNorm-Linear-activation for each piece, shuffled nested joins.

    (batch, pieces * width) -> the same shape. The branches have equal shapes and parameters of their
    own.
    """

    def __init__(self, plan: LayerPlan, width: int) -> None:
        super().__init__()
        self.plan, self.width = plan, width
        self.activation = ACTIVATIONS[plan.activation]
        pieces = sum(plan.groups)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(pieces))
        self.linears = nn.ModuleList(nn.Linear(width, width) for _ in range(pieces))

    def forward(self, x: Tensor) -> Tensor:
        branches = zip(self.norms, self.linears, strict=True)
        groups = torch.split(x, [group * self.width for group in self.plan.groups], dim=1)
        joined = []
        for group, order, stacked in zip(groups, self.plan.orders, self.plan.stacked, strict=True):
            results = []
            for piece in torch.split(group, self.width, dim=1):
                norm, linear = next(branches)
                results.append(self.activation(linear(norm(piece))))
            joined.append(_join([results[number] for number in order], stacked))
        return torch.cat([joined[number] for number in self.plan.order], dim=1)


def _join(pieces: Sequence[Tensor], stacked: bool) -> Tensor:
    if stacked:
        return torch.stack(list(pieces), dim=1).flatten(1)
    return torch.cat(list(pieces), dim=1)


class Illustrative(nn.Module):
    """Layers of branches whose pieces are cut and joined in ever other ways, and a last Linear.

    (batch, fields * width) -> (batch, 1).

    Args:
        fields: branches of each layer.
        width: columns of a branch.
        layers: how many follow each other.
        seed: of the cuts, orders, joins and activations. Weights come from torch's generator.
    """

    def __init__(self, fields: int = 8, width: int = 64, layers: int = 2, seed: int = 0) -> None:
        super().__init__()
        rng = random.Random(seed)
        self.layers = nn.Sequential(
            *(IllustrativeLayer(LayerPlan.draw(fields, rng), width) for _ in range(layers))
        )
        self.head = nn.Linear(fields * width, 1)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.layers(x))
        return out


def _inputs(draw: InputSource) -> tuple[Tensor]:
    return (draw.normal(draw.size * draw.width),)


WORKLOADS: tuple[Workload, ...] = (
    # The seed of the build draws the graph too, so that one size gives as many graphs as seeds.
    Workload(
        "own:illustrative",
        "illustrative",
        None,
        lambda s: Illustrative(s.size, s.width, s.layers, s.seed),
        _inputs,
        64,
        size=8,
        width=64,
        layers=2,
    ),
)

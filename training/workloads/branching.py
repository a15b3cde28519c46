"""Branching models of our own, one for each shape of graph that recommendation models consist of.

Each is small, deterministic in evaluation and free of dropout, and takes its sizes as arguments, so
that a sweep can ask when a rewrite pays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from passwright.training.workloads.inputs import InputSource
from passwright.training.workloads.workload import Workload

UNARY: dict[str, Callable[[Tensor], Tensor]] = {
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "relu": torch.relu,
    "leaky_relu": nn.functional.leaky_relu,
}


class SplitCat(nn.Module):
    """Split into pieces, one pointwise op a piece, join again; layer upon layer.

    (batch, pieces * width) -> the same shape. Without parameters: nothing but moving data and a
    pointwise op, which straightened is one kernel. How much that gains on a CPU depends on the op:
    a cheap one takes less time than moving the data, a sigmoid much more.

    Args:
        pieces: pieces of each split.
        width: columns of a piece.
        layers: how often this is done.
        op: a key of `UNARY`.
        reverse: join the pieces in reverse order, so that pieces change place in each layer.
    """

    def __init__(
        self,
        pieces: int = 64,
        width: int = 32,
        layers: int = 4,
        op: str = "leaky_relu",
        reverse: bool = False,
    ) -> None:
        super().__init__()
        self.pieces, self.width, self.layers, self.reverse = pieces, width, layers, reverse
        self.op = UNARY[op]

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(self.layers):
            pieces = [self.op(piece) for piece in torch.split(x, self.width, dim=1)]
            x = torch.cat(pieces[::-1] if self.reverse else pieces, dim=1)
        return x


class NormBranches(nn.Module):
    """A branch LayerNorm-Linear-tanh for each field, joined for one last Linear.

    (batch, fields * width) -> (batch, outputs). The branches have equal shapes and parameters of
    their own.
    """

    def __init__(self, fields: int = 32, width: int = 32, outputs: int = 1) -> None:
        super().__init__()
        self.width = width
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(fields))
        self.linears = nn.ModuleList(nn.Linear(width, width) for _ in range(fields))
        self.head = nn.Linear(fields * width, outputs)

    def forward(self, x: Tensor) -> Tensor:
        fields = torch.split(x, self.width, dim=1)
        branches = [
            torch.tanh(linear(norm(field)))
            for field, norm, linear in zip(fields, self.norms, self.linears, strict=True)
        ]
        out: Tensor = self.head(torch.cat(branches, dim=1))
        return out


class MMoE(nn.Module):
    """Multi-gate mixture of experts (Ma et al., KDD 2018).

    (batch, inputs) -> a tensor of shape (batch, 1) for each task, between 0 and 1. All experts and
    gates read the same input; each gate weighs all experts for its task's tower.
    """

    def __init__(
        self,
        inputs: int = 256,
        experts: int = 8,
        hidden: int = 128,
        width: int = 64,
        tasks: int = 3,
        tower: int = 32,
    ) -> None:
        super().__init__()
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, width), nn.ReLU())
            for _ in range(experts)
        )
        self.gates = nn.ModuleList(nn.Linear(inputs, experts) for _ in range(tasks))
        self.towers = nn.ModuleList(
            nn.Sequential(nn.Linear(width, tower), nn.ReLU(), nn.Linear(tower, 1))
            for _ in range(tasks)
        )

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        experts = torch.stack([expert(x) for expert in self.experts], dim=1)
        outputs = []
        for gate, tower in zip(self.gates, self.towers, strict=True):
            weights = torch.softmax(gate(x), dim=-1).unsqueeze(-1)
            outputs.append(torch.sigmoid(tower((weights * experts).sum(dim=1))))
        return tuple(outputs)


class SharedLinears(nn.Module):
    """Linears that read one input, each followed by a ReLU, joined for one last Linear.

    (batch, inputs) -> (batch, outputs).

    Args:
        inputs: columns of the input.
        widths: output columns of each Linear; they may differ.
        biases: whether each Linear has a bias; all have one by default.
        outputs: columns of the output.
    """

    def __init__(
        self,
        inputs: int = 256,
        widths: Sequence[int] = (64,) * 16,
        biases: Sequence[bool] | None = None,
        outputs: int = 1,
    ) -> None:
        super().__init__()
        biases = [True] * len(widths) if biases is None else biases
        self.linears = nn.ModuleList(
            nn.Linear(inputs, width, bias=bias) for width, bias in zip(widths, biases, strict=True)
        )
        self.head = nn.Linear(sum(widths), outputs)

    def forward(self, x: Tensor) -> Tensor:
        joined = torch.cat([torch.relu(linear(x)) for linear in self.linears], dim=1)
        out: Tensor = self.head(joined)
        return out


PIECES, BRANCHES, WIDTH = 64, 32, 32


def _parts(draw: InputSource) -> tuple[Tensor]:
    return (draw.normal(draw.size * WIDTH),)


def _columns(draw: InputSource) -> tuple[Tensor]:
    return (draw.normal(256),)


WORKLOADS: tuple[Workload, ...] = (
    Workload("own:split_cat", "splitcat", None, lambda s: SplitCat(s.size), _parts, 256, PIECES),
    Workload(
        "own:split_cat_sigmoid",
        "splitcat",
        None,
        lambda s: SplitCat(s.size, op="sigmoid"),
        _parts,
        256,
        PIECES,
    ),
    Workload(
        "own:split_cat_reversed",
        "splitcat",
        None,
        lambda s: SplitCat(s.size, reverse=True),
        _parts,
        256,
        PIECES,
    ),
    Workload(
        "own:norm_branches",
        "normbranches",
        None,
        lambda s: NormBranches(s.size),
        _parts,
        size=BRANCHES,
    ),
    Workload("own:mmoe", "mmoe", None, lambda _: MMoE(), _columns, size=None),
    Workload(
        "own:shared_linears", "sharedlinears", None, lambda _: SharedLinears(), _columns, size=None
    ),
)

"""The modules on which the grouped kernels are compared: sizes as in public recommendation models."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from passwright.passes.pattern import Pattern
from passwright.passes.patterns.embeddings import GatherEmbeddings
from passwright.passes.patterns.grouped_gather import GatherIntoCat
from passwright.passes.patterns.grouped_layer_norm import GroupLayerNorms
from passwright.passes.patterns.grouped_linear import GroupLinears
from passwright.passes.patterns.linears import BatchLinears
from passwright.passes.patterns.norms import BatchLayerNorms

#: Patterns of each form of a case; nobody batches unequal widths by copies.
_FORMS: dict[str, dict[str, Pattern]] = {
    "linear": {"batched": BatchLinears(), "grouped": GroupLinears()},
    "layer_norm": {"batched": BatchLayerNorms(), "grouped": GroupLayerNorms()},
    "gather": {"batched": GatherEmbeddings(), "grouped": GatherIntoCat()},
}
_UNEQUAL = (64, 512, 128, 256, 64, 384, 128, 256)


@dataclass(frozen=True)
class Case:
    """k like ops over one batch. `sizes` are pairs (in, out), widths, or (rows, width) of tables."""

    op: str
    precision: str
    batch: int
    sizes: tuple[tuple[int, ...], ...]
    training: bool = False

    @property
    def name(self) -> str:
        """`linear fp32 2048 8x(64,64) infer`."""
        kinds = [f"{count}x{size}" for size, count in Counter(self.sizes).items()]
        shown = "+".join(kinds).replace(" ", "").replace(",)", ")")
        return (
            f"{self.op} {self.precision} {self.batch} {shown} {('infer', 'train')[self.training]}"
        )

    @property
    def forms(self) -> dict[str, Pattern]:
        """The forms beside the separate ops."""
        return _FORMS[self.op]

    def make(self, device: str = "cuda") -> tuple[nn.Module, list[Tensor]]:
        """The module and its inputs, which need no gradient."""
        dtype = torch.bfloat16 if self.precision == "bf16" else torch.float32
        with torch.device(device):
            if self.op == "gather":
                tables = [nn.Embedding(r, w, dtype=dtype) for r, w in self.sizes]
                columns = [torch.randint(0, rows, (self.batch,)) for rows, _ in self.sizes]
                return Gather(tables), [torch.stack(columns, 1)]
            widths = [size[0] for size in self.sizes]
            x = torch.randn(self.batch, sum(widths), dtype=dtype)
            if self.op == "linear":
                members: list[nn.Module] = [nn.Linear(k, n, dtype=dtype) for k, n in self.sizes]
            else:
                members = [nn.LayerNorm(w, dtype=dtype) for (w,) in self.sizes]
            return Side(widths, members, relu=self.op == "linear"), [x]


class Gather(nn.Module):
    """Look-ups that meet in a cat."""

    def __init__(self, tables: Sequence[nn.Module]) -> None:
        super().__init__()
        self.tables = nn.ModuleList(tables)

    def forward(self, index: Tensor) -> Tensor:
        return torch.cat([table(index[:, i]) for i, table in enumerate(self.tables)], 1)


class Side(nn.Module):
    """Pieces of what a layer computes, each through a member of its own; all meet in a cat.

    The scale in front makes the input a computed value that needs a gradient, as in a model.
    """

    def __init__(self, widths: Sequence[int], members: Sequence[nn.Module], *, relu: bool) -> None:
        super().__init__()
        self.widths, self.relu = list(widths), relu
        self.members = nn.ModuleList(members)
        first = next(self.members[0].parameters())
        self.scale = nn.Parameter(torch.ones(sum(widths), dtype=first.dtype))

    def forward(self, x: Tensor) -> Tensor:
        pieces = torch.split(x * self.scale, self.widths, 1)
        found = [member(piece) for member, piece in zip(self.members, pieces, strict=True)]
        return torch.cat([torch.relu(y) if self.relu else y for y in found], 1)


def cases() -> list[Case]:
    """All cases, the most telling first: the time may be over before the last."""
    tables = tuple(
        (10**power, 16) for power, _ in zip(itertools.cycle((3, 4, 5)), range(26), strict=False)
    )
    mixed = tuple((rows, (8, 16, 32)[i % 3]) for i, (rows, _) in enumerate(tables))
    unequal = tuple((width, 64) for width in _UNEQUAL)
    found = [
        Case("gather", "fp32", 2048, tables),
        Case("linear", "fp32", 2048, ((64, 64),) * 8),
        Case("layer_norm", "fp32", 2048, ((256,),) * 8),
        Case("linear", "fp32", 2048, unequal),
        Case("linear", "tf32", 2048, ((256, 128),) * 8),
        Case("gather", "fp32", 2048, mixed),
        Case("layer_norm", "fp32", 2048, tuple((width,) for width in _UNEQUAL)),
        Case("linear", "bf16", 4096, ((512, 256),) * 4),
        Case("linear", "fp32", 512, ((64, 64),) * 32),
        Case("gather", "fp32", 8192, tables),
        Case("gather", "fp32", 512, tables),
        Case("layer_norm", "bf16", 4096, ((64,),) * 32),
    ]
    trained = [Case(c.op, c.precision, c.batch, c.sizes, training=True) for c in found]
    # Two of each op in inference, then training, then the rest.
    return [*found[:4], *trained[:4], *found[4:8], *trained[4:8], *found[8:], *trained[8:]]

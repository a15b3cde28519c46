"""Patterns that group ops into one Triton kernel, told that a CPU is a GPU."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from passwright.passes.conformance import Example, PatternConformance, index, tensor
from passwright.passes.ops import Cat, Embedding, LayerNorm, Linear, Split
from passwright.passes.patterns import GatherIntoCat, GroupLayerNorms, GroupLinears

X, Y = tensor("b", 6), tensor("b", 4)


@pytest.fixture(autouse=True)
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("grouped_linear", "grouped_layer_norm", "grouped_gather"):
        monkeypatch.setattr(f"passwright.passes.patterns.{name}.takes_triton", lambda *_: True)
    # The kernel takes no float64; plain torch, which stands for it here, does.
    types = frozenset({torch.float64, torch.float32, torch.bfloat16})
    monkeypatch.setattr("passwright.passes.patterns.grouped_linear._TYPES", types)


def linears(x: Tensor, y: Tensor, v: Tensor, w: Tensor) -> list[Tensor]:
    return [torch.sin(F.linear(x, v)), F.linear(torch.sin(y), w)]


def norms(x: Tensor, y: Tensor, v: Tensor, w: Tensor) -> list[Tensor]:
    return [torch.sin(F.layer_norm(x, [6], v)), F.layer_norm(torch.sin(y), [4], w)]


def lookups(i: Tensor, j: Tensor, s: Tensor, t: Tensor) -> Tensor:
    return torch.sin(torch.cat([F.embedding(i, s), F.embedding(j, t)], -1))


class TestGroupLinears(PatternConformance):
    pattern = GroupLinears()
    examples = (
        Example(
            linears,
            (X, Y, tensor(3, 6), tensor(5, 4)),
            before={Linear: 2},
            after={Linear: 0, Split: 1},
            changes=(6, 2),
        ),
    )


class TestGroupLayerNorms(PatternConformance):
    pattern = GroupLayerNorms()
    examples = (
        Example(
            norms,
            (X, Y, tensor(6), tensor(4)),
            before={LayerNorm: 2},
            after={LayerNorm: 0, Split: 1},
            changes=(6, 2),
        ),
    )


class TestGatherIntoCat(PatternConformance):
    pattern = GatherIntoCat()
    examples = (
        Example(
            lookups,
            (index("b", rows=4), index("b", rows=7), tensor(4, 3), tensor(7, 2)),
            before={Embedding: 2, Cat: 1},
            after={Embedding: 0, Cat: 0},
            changes=(1, 3),
        ),
    )

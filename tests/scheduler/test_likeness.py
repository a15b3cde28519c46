"""Candidates that are called alike gain alike, and one expert is called like the next."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Hashable

import pytest
import torch
from torch import Tensor, nn

from passwright.passes.graph import GraphView
from passwright.passes.matching import Rewriter
from passwright.passes.pattern import Candidate
from passwright.passes.table import default_table
from passwright.scheduler import sites
from passwright.scheduler.analytic import likeness
from passwright.scheduler.device import describe_gpu
from passwright.training.as_gpu import as_on_gpu
from passwright.training.workloads import build
from passwright.training.workloads.capture import captured

PAIRS = list(itertools.combinations(range(4), 2))
#: Models in which what is matched alike differs in what it shares with the rest, and their packages.
SHARING = {
    "zoo:deepctr/ONN?fields=6": "deepctr_torch",
    "zoo:deepctr/FiBiNET?fields=6": "deepctr_torch",
    "zoo:rechub/AutoInt?fields=6": "torch_rechub",
}


class FirstAndSecond(nn.Module):
    """Two cats of look-ups, of which those in the middle are in both, as PNN has them."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(1000, 16) for _ in range(4))

    def forward(self, fields: Tensor) -> Tensor:
        rows = [t(fields[:, n : n + 1].long()) for n, t in enumerate(self.tables)]
        products = torch.cat([rows[a] for a, _ in PAIRS], 1) * torch.cat(
            [rows[b] for _, b in PAIRS], 1
        )
        return torch.cat([torch.cat(rows, 2).flatten(1), products.sum(2)], 1)


def gains_by_likeness(
    module: nn.Module, inputs: tuple[Tensor, ...], train: bool, monkeypatch: pytest.MonkeyPatch
) -> dict[Hashable, list[float]]:
    """Of candidates that are called alike, what each gains when it is rehearsed itself."""
    [graph] = captured(module.train(train), inputs, train=train)
    as_on_gpu(graph.graph)
    view = GraphView(graph.graph)
    rewriter = Rewriter(view, default_table())
    rewriter.apply(rewriter.sweep())
    candidates = rewriter.candidates(cleanup=False)

    def each(candidate: Candidate, _: GraphView) -> Hashable:
        return candidate.order

    monkeypatch.setattr(sites, "likeness", each)
    reader = sites.SiteReader(view, describe_gpu("NVIDIA H200"), training=train)
    gains = defaultdict(list)
    for candidate, site in zip(candidates, reader.read(rewriter, candidates), strict=True):
        assert site is not None
        if not site.refused:
            gains[likeness(candidate, view)].append(site.analytic.mean)
    return gains


def assert_alike(gains: dict[Hashable, list[float]]) -> None:
    for some in gains.values():
        assert max(some) - min(some) <= max(0.005, 0.05 * max(map(abs, some)))


@pytest.mark.parametrize("name", ["own:norm_branches?fields=8", "own:mmoe", "own:wukong?fields=6"])
@pytest.mark.parametrize("train", [False, True])
def test_alike_candidates_gain_alike(
    name: str, train: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, inputs = build(name, batch=64, train=train)
    gains = gains_by_likeness(module, inputs, train, monkeypatch)
    assert sum(len(some) > 1 for some in gains.values()) > 1
    assert_alike(gains)


@pytest.mark.parametrize("name", SHARING)
@pytest.mark.parametrize("train", [False, True])
def test_what_public_models_share_is_part_of_the_likeness(
    name: str, train: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip(SHARING[name])
    module, inputs = build(name, batch=64, train=train)
    assert_alike(gains_by_likeness(module, inputs, train, monkeypatch))


@pytest.mark.parametrize("train", [False, True])
def test_for_how_many_a_value_is_used_is_part_of_the_likeness(
    train: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    fields = torch.randint(1000, (64, 4), generator=torch.Generator().manual_seed(0))
    assert_alike(gains_by_likeness(FirstAndSecond(), (fields,), train, monkeypatch))

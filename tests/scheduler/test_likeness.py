"""Candidates that are called alike gain alike, and one expert is called like the next."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable

import pytest

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


@pytest.mark.parametrize("name", ["own:norm_branches?fields=8", "own:mmoe", "own:wukong?fields=6"])
@pytest.mark.parametrize("train", [False, True])
def test_alike_candidates_gain_alike(
    name: str, train: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, inputs = build(name, batch=64, train=train)
    [graph] = captured(module, inputs, train=train)
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
    assert len(gains) < len(candidates)
    assert sum(len(some) > 1 for some in gains.values()) > 1
    for some in gains.values():
        assert max(some) - min(some) <= max(0.005, 0.05 * max(map(abs, some)))

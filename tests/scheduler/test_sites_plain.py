"""What is remembered and counted on makes no difference: sites are those of a reader that knows nothing."""

from __future__ import annotations

import pytest

from passwright.passes.graph import GraphView
from passwright.passes.matching import Rewriter
from passwright.passes.random_graphs import random_graph
from passwright.passes.table import default_table
from passwright.scheduler.device import DeviceDescriptor
from passwright.scheduler.inductor import clone_for_compile
from passwright.scheduler.sites import SiteReader
from tests.support.plain_sites import differences, plain_site


def check(
    rewriter: Rewriter, reader: SiteReader, device: DeviceDescriptor, *, training: bool
) -> list[int]:
    """Compares all candidates on the graph as it is; numbers of those that could be done."""
    candidates = rewriter.candidates(cleanup=False)
    # Each by itself: alike candidates share what the first of them does.
    sites = [reader.read(rewriter, [candidate])[0] for candidate in candidates]
    seen = set()
    for number, (candidate, site) in enumerate(zip(candidates, sites, strict=True)):
        plain = plain_site(rewriter, candidate, device, training=training)
        assert site is not None
        assert (site.analytic, site.refused) == (plain.analytic, plain.refused), candidate.label
        assert list(differences(site.example, plain.example)) == [], candidate.label
        if not site.refused:
            seen.add(number)
    return sorted(seen)


@pytest.mark.parametrize("training", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("seed", range(20, 28))
def test_random_graphs(seed: int, training: bool, device: DeviceDescriptor) -> None:
    """The same reader looks on as the graph changes."""
    rewriter = Rewriter(GraphView(random_graph(seed).module.graph), default_table())
    reader = SiteReader(rewriter.view, device, training=training)
    for _ in range(2):
        done = check(rewriter, reader, device, training=training)
        if not done:
            return
        rewriter.apply(rewriter.candidates(cleanup=False)[done[seed % len(done)]])


@pytest.mark.parametrize("name", ["case:D3", "own:norm_branches?fields=4", "own:mmoe"])
def test_workloads(built, name: str, device: DeviceDescriptor) -> None:
    rewriter = Rewriter(GraphView(clone_for_compile(built(name, True)[0]).graph), default_table())
    rewriter.apply(rewriter.sweep())
    reader = SiteReader(rewriter.view, device, training=True)
    done = check(rewriter, reader, device, training=True)
    assert done
    rewriter.apply(rewriter.candidates(cleanup=False)[done[0]])
    check(rewriter, reader, device, training=True)

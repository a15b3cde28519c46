"""Sites as they are read the long way: everything anew for each candidate, the whole graph each time."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from passwright.features.device_row import device_row
from passwright.features.example import Example, example
from passwright.features.facts import fact
from passwright.features.graph_tensors import Taken, graph_tensors
from passwright.features.neighbourhood import neighbourhood
from passwright.features.site import Cost, Effect, graph_row, site_row
from passwright.passes.errors import IllegalRewrite
from passwright.passes.matching import Rewriter
from passwright.passes.pattern import Candidate
from passwright.passes.spec import parts_of
from passwright.scheduler.cost import GraphCost
from passwright.scheduler.device import DeviceDescriptor
from passwright.scheduler.estimate import Estimate, gain_between
from passwright.scheduler.gain import Interval
from passwright.scheduler.sites import Site, figures

_HALF = ("torch.float16", "torch.bfloat16")


def plain_site(
    rewriter: Rewriter,
    candidate: Candidate,
    device: DeviceDescriptor,
    *,
    training: bool,
    folds: bool = False,
) -> Site:
    """What `SiteReader` says of one candidate, whatever it knows of others."""
    view = rewriter.view
    view._lasting.clear()
    cost = GraphCost(view, device, training=training, folds=folds)
    before = cost.estimate()
    graph = graph_tensors(
        view, lambda node: Taken(*before.parts[node]) if node in before.parts else Taken(0, 0, 0)
    )
    facts = {node: fact(view, node) for node in graph.places}
    specs = [part for node in graph.places for part in parts_of(view.any_spec(node))]
    halves = sum(part.nbytes for part in specs if str(part.dtype) in _HALF)
    floats = sum(part.nbytes for part in specs if part.dtype.is_floating_point)
    whole = graph_row(
        _cost(before),
        len(graph.words),
        training=training,
        half=halves > floats - halves,
        tf32=device.tf32,
    )
    gain, refused = Interval(0.0, 0.0, 0.0), ""
    effect = Effect((), (), _cost(before), _cost(before), 0.0, 0.0)
    with rewriter.rehearsal():
        try:
            record = rewriter.apply(candidate)
            after = cost.estimate()
            gain = gain_between(before, after)
            effect = Effect(
                [facts[node] for node in record.removed if node in facts],
                [fact(view, n) for n in dict.fromkeys(record.inserted) if view.is_living(n)],
                _cost(before),
                _cost(after),
                gain.mean,
                gain.mean - gain.lower,
            )
        except IllegalRewrite as error:
            refused = str(error)
    found = example(
        candidate.pattern.name(),
        graph,
        neighbourhood(graph, candidate),
        site=site_row(candidate, graph, facts, effect),
        whole=whole,
        device=device_row(figures(device)),
    )
    return Site(found, gain, refused)


def differences(first: Example, second: Example) -> Iterator[str]:
    """Names of what is not equal, but for how sums are rounded."""
    if (first.pattern, first.words) != (second.pattern, second.words):
        yield "pattern or words"
    for name in ("roles", "edges", "device"):
        if not np.array_equal(getattr(first, name), getattr(second, name)):
            yield name
    for name in ("site", "graph", "nodes", "edge_features"):
        one, other = getattr(first, name), getattr(second, name)
        if one.shape != other.shape or not np.allclose(one, other, rtol=1e-5, atol=1e-6):
            yield name


def _cost(estimate: Estimate) -> Cost:
    launch, arithmetic, traffic = map(sum, zip(*estimate.parts.values(), strict=True))
    return Cost(estimate.kernels, Taken(launch + estimate.call, arithmetic, traffic))

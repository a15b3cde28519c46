"""Candidates on a graph as a learned gain model sees them: each is rehearsed once, and features are taken.

A rehearsal performs the step with its clean-up on the real graph and undoes it. Alike candidates, such as
one step of an unrolled loop and the next, are rehearsed once (`analytic.likeness`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import fx

from passwright.features.device_row import device_row
from passwright.features.example import Example, example
from passwright.features.facts import Fact, fact
from passwright.features.graph_tensors import Taken, graph_tensors
from passwright.features.neighbourhood import neighbourhood
from passwright.features.site import Cost, Effect, graph_row, site_row
from passwright.passes.editor import Record
from passwright.passes.errors import IllegalRewrite
from passwright.passes.graph import GraphView
from passwright.passes.matching import Rewriter
from passwright.passes.pattern import Candidate
from passwright.passes.spec import parts_of
from passwright.scheduler.analytic import likeness
from passwright.scheduler.device import DeviceDescriptor
from passwright.scheduler.estimate import Estimate, Seconds, gain_between
from passwright.scheduler.gain import Interval
from passwright.scheduler.garbage import no_collection
from passwright.scheduler.rehearsal_cost import RehearsalCost


@dataclass(frozen=True)
class Site:
    """One candidate: its features, and what the analytic model says of the step alone; or why it cannot be
    done."""

    example: Example
    analytic: Interval
    refused: str = ""


class _Rehearsed(NamedTuple):
    """What candidates that are alike have in common."""

    effect: Effect
    gain: Interval
    refused: str = ""


class SiteReader:
    """Reads states of one graph, again and again as it changes, for one device."""

    def __init__(
        self, view: GraphView, device: DeviceDescriptor, *, training: bool, folds: bool = False
    ) -> None:
        self.view = view
        self._descriptor = device
        self._training = training
        self._folds = folds
        self._device = device_row(figures(device))

    def read(
        self,
        rewriter: Rewriter,
        candidates: Sequence[Candidate],
        late: Callable[[], bool] = lambda: False,
    ) -> list[Site | None]:
        """A site for each candidate on the graph as it is, in order; None for those it is too late for."""
        with no_collection():
            return self._read(rewriter, candidates, late)

    def _read(
        self, rewriter: Rewriter, candidates: Sequence[Candidate], late: Callable[[], bool]
    ) -> list[Site | None]:
        # Made anew: what it knows of a node may change with the graph, as does what one pass touches.
        estimates = RehearsalCost(
            self.view, self._descriptor, training=self._training, folds=self._folds
        )
        before = estimates.before
        graph = graph_tensors(self.view, lambda node: _taken(before.parts.get(node)))
        facts = {node: self._fact(node) for node in graph.places}
        row = graph_row(
            _cost_of(before),
            len(graph.words),
            training=self._training,
            half=_mostly_half(self.view, graph.places),
            tf32=self._descriptor.tf32,
        )
        alike: dict[Hashable, _Rehearsed] = {}
        sites: list[Site | None] = []
        for candidate in candidates:
            key = likeness(candidate, self.view)
            # Why one is refused need not hold for another: that depends on what is written around it.
            if key not in alike or alike[key].refused:
                if late():
                    sites.append(None)
                    continue
                alike[key] = self._rehearse(rewriter, candidate, facts, estimates)
            found = alike[key]
            around, name = neighbourhood(graph, candidate), candidate.pattern.name()
            own = site_row(candidate, graph, facts, found.effect)
            features = example(name, graph, around, site=own, whole=row, device=self._device)
            sites.append(Site(features, found.gain, found.refused))
        return sites

    def _fact(self, node: fx.Node) -> Fact:
        return self.view.lasting(node, "fact", lambda: fact(self.view, node))

    def _rehearse(
        self,
        rewriter: Rewriter,
        candidate: Candidate,
        facts: dict[fx.Node, Fact],
        estimates: RehearsalCost,
    ) -> _Rehearsed:
        with rewriter.rehearsal(), self.view.noted() as touched:
            try:
                record = rewriter.apply(candidate)
            except IllegalRewrite as error:
                cost = _cost_of(estimates.before)
                nothing = Effect((), (), cost, cost, 0.0, 0.0)
                return _Rehearsed(nothing, Interval(0.0, 0.0, 0.0), str(error))
            before, after = estimates.compared(touched)
            gain = gain_between(before, after)
            effect = Effect(
                [facts[node] for node in record.removed if node in facts],
                [fact(self.view, node) for node in _living(record, self.view)],
                _cost_of(before),
                _cost_of(after),
                gain.mean,
                gain.mean - gain.lower,
            )
        return _Rehearsed(effect, gain)


def figures(device: DeviceDescriptor) -> dict[str, float]:
    """A descriptor's figures by the names of `schema.DEVICE`."""
    flops = {f"flops_{name}": device.peak_flops.get(name, 0.0) for name in ("fp32", "tf32", "bf16")}
    plain = (
        "cores", "memory_bandwidth", "cache_bandwidth", "cache_bytes", "fused_launch",
        "extern_launch", "item_seconds", "exp_rate", "call_seconds",
    )  # fmt: skip
    own = {name: float(getattr(device, name)) for name in plain}
    return {**own, **flops, "is_cuda": float(device.kind == "cuda")}


def _living(record: Record, view: GraphView) -> Iterable[fx.Node]:
    return (node for node in dict.fromkeys(record.inserted) if view.is_living(node))


def _taken(seconds: Seconds | None) -> Taken:
    return Taken(*seconds) if seconds is not None else Taken(0.0, 0.0, 0.0)


def _cost_of(estimate: Estimate) -> Cost:
    parts = estimate.parts.values()
    launch = sum(part.launch for part in parts) + estimate.call
    arithmetic = sum(part.arithmetic for part in parts)
    return Cost(estimate.kernels, Taken(launch, arithmetic, sum(part.traffic for part in parts)))


def _mostly_half(view: GraphView, nodes: Iterable[fx.Node]) -> bool:
    """Most bytes of floats are in 16 bits."""
    halves = others = 0.0
    for node in nodes:
        for spec in parts_of(view.any_spec(node)):
            if spec.dtype in (torch.float16, torch.bfloat16):
                halves += spec.nbytes
            elif spec.dtype.is_floating_point:
                others += spec.nbytes
    return halves > others

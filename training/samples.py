"""What a learned gain model is trained on: steps as features, plans as sums of steps, labels from records.

A record says how a whole plan did. Gains are logarithms and telescope, so a plan's gain is the sum of the
gains of its steps, each on the graph that the steps before it left: that sum is what a model is fitted to,
and a step that many plans share is told from the others by where they differ. Nothing is measured here:
workloads are built from their names, and the steps performed once more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import fx

from passwright.passes.graph import GraphView
from passwright.passes.matching import Rewriter
from passwright.passes.table import PatternTable, default_table
from passwright.scheduler.device import DeviceDescriptor
from passwright.scheduler.inductor import clone_for_compile
from passwright.scheduler.plan import Plan
from passwright.scheduler.sites import Site, SiteReader
from passwright.training.labels import Label, label_of
from passwright.training.plan_text import plans_of
from passwright.training.records import Record


@dataclass(frozen=True)
class PlanSample:
    """One measured plan: which steps of the workload's it consists of, and its label."""

    steps: tuple[int, ...]
    label: Label
    proposed_by: str


@dataclass(frozen=True)
class WorkloadSamples:
    """All of one workload on one device."""

    workload: str
    family: str
    kind: str
    device: str
    steps: tuple[Site, ...]
    plans: tuple[PlanSample, ...]


def samples_of(
    records: Sequence[Record],
    graphs: Sequence[fx.GraphModule],
    device: DeviceDescriptor,
    table: PatternTable | None = None,
) -> WorkloadSamples:
    """Of the records of one workload on one kind of device, whose graphs these are.

    A plan whose steps are not all found is left out, and so are one that sets Inductor as well, whose gain
    is not that of its steps, and a censored record.
    """
    table = table or default_table()
    train = records[0].train
    steps: list[Site] = []
    plans: list[PlanSample] = []
    with torch.set_grad_enabled(train):
        known = {GraphView(graph.graph).fingerprint: graph for graph in graphs}
        replays = {
            name: _Replay(graph, device, train, table, steps) for name, graph in known.items()
        }
        for record in records:
            label = label_of(record)
            found = None if label is None else _numbers(plans_of(record.plan), replays)
            if label is not None and found is not None:
                plans.append(PlanSample(tuple(found), label, record.proposed_by))
    first = records[0]
    return WorkloadSamples(
        first.workload, first.family, first.kind, first.device, tuple(steps), tuple(plans)
    )


class _Replay:
    """Steps of plans of one graph, each looked at once for all plans that begin alike."""

    def __init__(
        self,
        graph: fx.GraphModule,
        device: DeviceDescriptor,
        train: bool,
        table: PatternTable,
        steps: list[Site],
    ) -> None:
        self._graph, self._device, self._train, self._table = graph, device, train, table
        self._steps = steps
        self._known: dict[tuple[str, ...], int] = {}

    def of(self, plan: Plan) -> list[int] | None:
        """Numbers of its steps; None where one is not found."""
        labels = [step.label for step in plan.rewrites]
        prefixes = [tuple(labels[: n + 1]) for n in range(len(labels))]
        if all(prefix in self._known for prefix in prefixes):
            return [self._known[prefix] for prefix in prefixes]
        there = clone_for_compile(self._graph)
        rewriter = Rewriter(GraphView(there.graph), self._table)
        reader = SiteReader(rewriter.view, self._device, training=self._train)
        for step, prefix in zip(plan.rewrites, prefixes, strict=True):
            candidate = rewriter.find(step.anchor, step.key)
            if candidate is None:
                return None
            if prefix not in self._known:
                [site] = reader.read(rewriter, [candidate])
                if site is None or site.refused:
                    return None
                self._known[prefix] = len(self._steps)
                self._steps.append(site)
            rewriter.apply(candidate)
        return [self._known[prefix] for prefix in prefixes]


def _numbers(plans: Sequence[Plan], replays: Mapping[str, _Replay]) -> list[int] | None:
    """Of the steps of all plans; None where one is not found, or is no rewrite."""
    found: list[int] = []
    for plan in plans:
        if not plan.steps:
            continue
        replay = replays.get(plan.fingerprint)
        numbers = replay.of(plan) if replay is not None and not plan.settings else None
        if numbers is None:
            return None
        found += numbers
    return found

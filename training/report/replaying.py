"""Applies plans that are given, at every IR level, and decides nothing.

    torch.compile(model, backend=replaying([Plan.from_text(text), ...]))

A graph is known by its fingerprint; one that none of the plans is for stays as it is. So does a graph of a
lower level whose plan was made after steps that this one does not take.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

from torch import fx

from passwright.passes.address import digest
from passwright.passes.graph import GraphView
from passwright.scheduler.compiler import Compiler
from passwright.scheduler.device import DeviceDescriptor
from passwright.scheduler.optimize import Scheduler
from passwright.scheduler.plan import Plan
from passwright.scheduler.settings import Settings
from passwright.scheduler.tune import Forgetful

Backend = Callable[[fx.GraphModule, Sequence[Any]], Callable[..., Any]]


@dataclass(frozen=True)
class Replaying(Scheduler):
    """A scheduler that has these plans, by fingerprint, and makes none. Nothing is read from the plan store
    or written there."""

    plans: Mapping[str, Plan] = field(default_factory=dict)

    @classmethod
    def of_plans(cls, settings: Settings, plans: Iterable[Plan]) -> Self:
        """For these plans; the settings say which levels are looked at."""
        plain = Scheduler.of(replace(settings, plan=""))
        return cls(
            plain.settings,
            plain.table,
            Forgetful(plain.store.directory),
            None,
            plain.kernel_patterns,
            plain.choices,
            {plan.fingerprint: plan for plan in plans},
        )

    def context(self, device: DeviceDescriptor) -> str:
        """With the plans: what is compiled by others is other code, also to torch's caches."""
        texts = [plan.to_text() for plan in self.plans.values()]
        return digest(super().context(device), *texts)

    def plan_graph(
        self, graph: fx.Graph, *, training: bool, given: Iterable[str] | None = None
    ) -> Plan:
        view = GraphView(graph)
        nothing = Plan(view.fingerprint, view.dialect.name.lower())
        plan = self.plans.get(view.fingerprint, nothing)
        # As if the user had given this one plan.
        one = Scheduler(
            self.settings, self.table, self.store, plan, self.kernel_patterns, self.choices
        )
        return one.plan_graph(graph, training=training, given=given)

    def kept_kernels(self, key: str, fingerprint: str) -> Plan | None:
        return self.plans.get(fingerprint, Plan(fingerprint, "inductor"))


def replaying(plans: Iterable[Plan], settings: Settings | None = None) -> Backend:
    """A backend of `torch.compile` that applies these plans of whatever levels."""
    scheduler = Replaying.of_plans(settings or Settings(), plans)
    return Compiler(scheduler).compile_planned

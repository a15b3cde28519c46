"""What is done to a whole model: a plan for each of its graphs, and a name for what comes out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from torch import fx

from passwright.passes.errors import IllegalRewrite
from passwright.passes.graph import GraphView
from passwright.passes.matching import Rewriter
from passwright.passes.table import PatternTable, default_table
from passwright.scheduler.gain import Interval
from passwright.scheduler.inductor import clone_for_compile
from passwright.scheduler.plan import Plan
from passwright.scheduler.planner import replay
from passwright.training.plan_text import graphs_key, text_of

NOTHING = "nothing"


@dataclass(frozen=True)
class ModelPlan:
    """Plans of Torch-IR for the graphs that Dynamo makes of a model; graphs without one stay as they are.

    `key` is a fingerprint of the graphs that come out: sequences of steps that differ only in the order of
    what commutes, or make the same graph in another way, have the same.
    """

    plans: tuple[Plan, ...] = ()
    key: str = ""
    #: Who proposed it.
    by: str = NOTHING
    #: log(before / after) as the gain model of the time foretold it, 90 %.
    predicted: Interval | None = None

    @property
    def steps(self) -> int:
        return sum(len(plan.steps) for plan in self.plans)

    @property
    def text(self) -> str:
        """All plans, one after the other; "" for doing nothing."""
        return text_of(self.plans)

    def of(self, fingerprint: str) -> Plan | None:
        """The plan of the graph with that fingerprint."""
        return next((plan for plan in self.plans if plan.fingerprint == fingerprint), None)


def fingerprints(graphs: Sequence[fx.GraphModule]) -> list[str]:
    """Of the graphs of a model, in their order."""
    return [GraphView(graph.graph).fingerprint for graph in graphs]


def applied(
    graph: fx.GraphModule, plan: Plan | None, table: PatternTable | None = None
) -> tuple[fx.GraphModule, Plan | None]:
    """A rewritten copy, and the steps that found their place. The graph itself where there is none.

    Raises IllegalRewrite where the steps together are refused.
    """
    if plan is None or not plan.steps:
        return graph, None
    there = clone_for_compile(graph)
    rewriter = Rewriter(GraphView(there.graph), table or default_table())
    fingerprint = rewriter.view.fingerprint
    try:
        done = replay(plan, rewriter)
        rewriter.editor.finish()
    except IllegalRewrite:
        rewriter.editor.rollback()
        raise
    there.graph.lint()
    there.recompile()
    return there, done.replaced(fingerprint=fingerprint)


def settled(
    graphs: Sequence[fx.GraphModule], plan: ModelPlan, table: PatternTable | None = None
) -> tuple[ModelPlan, list[fx.GraphModule]]:
    """The plan with the steps that do apply and its key, and the rewritten graphs.

    Raises IllegalRewrite where the steps of a graph together are refused.
    """
    after: list[fx.GraphModule] = []
    plans: list[Plan] = []
    for graph in graphs:
        wanted = plan.of(GraphView(graph.graph).fingerprint)
        there, done = applied(graph, wanted, table)
        after.append(there)
        if done is not None and done.steps:
            plans.append(done)
    return replace(plan, plans=tuple(plans), key=graphs_key(fingerprints(after))), after

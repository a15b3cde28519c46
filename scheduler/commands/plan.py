"""`passwright plan MODEL`: what would be done, why, and why nothing else; compiles nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

import torch
from torch import fx

from passwright.passes.graph import GraphView
from passwright.scheduler.commands.console import FAILED, cause, print_json, say
from passwright.scheduler.commands.models import Subject
from passwright.scheduler.cost import GraphCost
from passwright.scheduler.device import describe
from passwright.scheduler.inductor import clone_for_compile, torch_versions
from passwright.scheduler.lowering import plan_below
from passwright.scheduler.optimize import (
    Applied,
    Scheduler,
    collect_plans,
    device_of,
    is_training,
    read_plan,
)
from passwright.scheduler.plan import Plan
from passwright.scheduler.settings import Settings


class Diff(StrEnum):
    """How much of each step's diff is shown."""

    NONE = "none"
    SHORT = "short"
    FULL = "full"


@dataclass(frozen=True)
class PlannedGraph:
    """One of the graphs that Dynamo made of a model. Seconds before and after are estimates."""

    plan: Plan | None
    #: Where the plan is kept.
    path: Path | None = None
    seconds_before: float = 0.0
    seconds_after: float = 0.0
    planning_seconds: float = 0.0
    #: The plan was made before.
    stored: bool = False
    #: Why there is no plan.
    error: str = ""
    #: The plans of the levels below, forward before backward, and why they are not known.
    below: tuple[Applied, ...] = ()
    below_error: str = ""

    def to_json(self) -> dict[str, Any]:
        """For `--json`: everything, the plan as it is stored."""
        return {
            "plan": json.loads(self.plan.to_json()) if self.plan else None,
            "path": str(self.path) if self.path else None,
            "estimated_seconds": {"before": self.seconds_before, "after": self.seconds_after},
            "planning_seconds": self.planning_seconds,
            "stored": self.stored,
            "error": self.error,
            "below": [
                {
                    "plan": json.loads(applied.plan.to_json()),
                    "path": str(applied.path),
                    "stored": applied.stored,
                    "planning_seconds": applied.seconds,
                }
                for applied in self.below
            ],
            "below_error": self.below_error,
        }


def plan_model(subject: Subject, settings: Settings) -> list[PlannedGraph]:
    """Captures every graph of the model and plans each. Errors in one graph are kept with it."""
    scheduler = Scheduler.of(settings)
    if settings.plan:
        read_plan(settings.plan)  # here, where its error is not one of a graph
    graphs: list[PlannedGraph] = []

    def backend(gm: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        graphs.append(_planned(scheduler, gm, inputs))
        return gm.forward

    torch._dynamo.reset()
    subject.step(torch.compile(subject.module, backend=backend))()
    return graphs


def _planned(scheduler: Scheduler, gm: fx.GraphModule, inputs: Sequence[Any]) -> PlannedGraph:
    training = is_training(gm.graph)
    try:
        rewritten = clone_for_compile(gm)
        before = _estimate(gm, training)
        with collect_plans() as plans:
            scheduler.plan_graph(rewritten.graph, training=training, given=())
        [applied] = plans
        found = PlannedGraph(
            applied.plan,
            applied.path,
            before,
            _estimate(rewritten, training),
            applied.seconds,
            applied.stored,
        )
    except Exception as error:
        return PlannedGraph(None, error=cause(error))
    if scheduler.settings.levels == "torch":
        return found
    try:
        rewritten.recompile()
        return replace(found, below=tuple(plan_below(scheduler, rewritten, inputs)))
    except Exception as error:
        return replace(found, below_error=cause(error))


def _estimate(gm: fx.GraphModule, training: bool) -> float:
    view = GraphView(gm.graph)
    cost = GraphCost(view, describe(device_of(view)), training=training)
    return cost.estimate().seconds


def plan_command(
    subject: Subject, settings: Settings, *, diff: Diff, output: Path | None, as_json: bool
) -> int:
    """Plans and prints; the exit code is 1 if some graph could not be planned."""
    graphs = plan_model(subject, settings)
    if output is not None:
        for path in write_plans(graphs, output):
            say(f"written: {path}")
    if as_json:
        print_json(
            {
                "model": subject.name,
                "phase": subject.phase,
                "versions": torch_versions(),
                "graphs": [graph.to_json() for graph in graphs],
            }
        )
    else:
        from passwright.scheduler.commands.show_plan import show

        show(subject, graphs, diff)
    return FAILED if any(graph.plan is None for graph in graphs) else 0


def write_plans(graphs: Sequence[PlannedGraph], output: Path) -> list[Path]:
    """One file a graph: `model.plan`, or `model.1.plan`, `model.2.plan` where there are several."""
    plans = [graph.plan for graph in graphs if graph.plan is not None]
    written = []
    for number, plan in enumerate(plans, 1):
        name = f"{output.stem}.{number}{output.suffix}" if len(plans) > 1 else output.name
        path = output.with_name(name)
        text = plan.to_json() if output.suffix == ".json" else plan.to_text()
        path.write_text(text, encoding="utf-8")
        written.append(path)
    return written

"""`passwright tune MODEL`: measure the plans against default compile and keep the winner."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import fx

from passwright.passes.errors import PasswrightError
from passwright.scheduler.commands.console import FAILED, cause, console, print_json, progress
from passwright.scheduler.commands.models import Subject
from passwright.scheduler.commands.show_plan import duration
from passwright.scheduler.comparison import Comparison
from passwright.scheduler.compiler import Compiler
from passwright.scheduler.inductor import torch_versions
from passwright.scheduler.optimize import Scheduler, collect_plans
from passwright.scheduler.plan import Plan, speedup
from passwright.scheduler.settings import Settings
from passwright.scheduler.tune import DEFAULT, Tuned, tune_graph


@dataclass(frozen=True)
class TunedGraph:
    """One graph after tuning; `tuned` is None where an earlier measurement was kept."""

    plan: Plan
    path: Path
    tuned: Tuned | None

    def to_json(self) -> dict[str, Any]:
        """For `--json`: the plan, and every raw block that was measured."""
        comparison = self.tuned.comparison if self.tuned else None
        variants = self.tuned.variants if self.tuned else ()
        return {
            "plan": json.loads(self.plan.to_json()),
            "path": str(self.path),
            "measured_now": self.tuned is not None and self.tuned.kept,
            "variants": {v.name: [step.label for step in v.plan.steps] for v in variants},
            "left_out": list(self.tuned.left_out) if self.tuned else [],
            "winner": self.tuned.best.name if self.tuned and self.tuned.kept else None,
            "comparison": json.loads(comparison.to_json()) if comparison else None,
        }


#: Searches for so many seconds; what it finds are plans of the model's graphs. Told a line now and then.
Search = Callable[[float, Callable[[str], None]], Sequence[Sequence[Plan]]]


def tune_model(
    subject: Subject,
    settings: Settings,
    *,
    again: bool,
    proposals: Sequence[Plan] = (),
    deadline: float = math.inf,
) -> list[TunedGraph]:
    """Tunes every graph that Dynamo makes of the model, as `tune_graph` does. Errors of the compile pass
    through."""
    compiler = Compiler(Scheduler.of(settings))
    graphs: list[TunedGraph] = []

    def backend(gm: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        seen: list[Tuned] = []
        with collect_plans() as plans:
            compiled = tune_graph(
                compiler,
                gm,
                inputs,
                again=again,
                proposals=proposals,
                deadline=deadline,
                observe=seen.append,
            )
        # The first plan is that of this graph; those of ATen-IR come while it compiles.
        chosen = (seen[-1].best.plan, seen[-1].path) if seen else (plans[0].plan, plans[0].path)
        graphs.append(TunedGraph(*chosen, seen[-1] if seen else None))
        return compiled

    torch._dynamo.reset()
    subject.step(torch.compile(subject.module, backend=backend))()
    return graphs


def tune_command(
    subject: Subject,
    settings: Settings,
    *,
    again: bool,
    as_json: bool,
    budget: float = 0.0,
    search: Search | None = None,
    started: float | None = None,
) -> int:
    """Tunes and prints; the exit code is 1 if the model does not compile.

    With a budget in seconds, plans are searched first, and of them and the predicted ones so many are
    compared as there is time for; the others are named. It counts from `started` on (by `time.monotonic`),
    or from now, and is overrun as `tune_graph` says. Without one, `tune_seconds` bounds each of two
    comparisons a graph, and nothing bounds compiles.
    """
    started = time.monotonic() if started is None else started
    deadline = started + budget if budget else math.inf
    with progress(1) as report:
        try:
            proposals: list[Plan] = []
            if budget and search is not None:
                report.working_on(f"searching plans for {subject.name}")
                found = search(deadline - time.monotonic(), report.working_on)
                proposals = [plan for plans in found for plan in plans]
            report.working_on(f"compiling and measuring {subject.name}")
            again = again or bool(budget)
            graphs = tune_model(
                subject, settings, again=again, proposals=proposals, deadline=deadline
            )
        except PasswrightError:
            raise
        except Exception as error:
            report.finished(f"{subject.name} does not compile: {cause(error)}")
            return FAILED
        report.finished(f"{subject.name}: {len(graphs)} graph(s) tuned")
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
        _show(subject, graphs)
    return 0


def _show(subject: Subject, graphs: Sequence[TunedGraph]) -> None:
    out = console()
    for number, graph in enumerate(graphs, 1):
        which = f", graph {number} of {len(graphs)}" if len(graphs) > 1 else ""
        out.print(f"{subject.name}, {subject.phase}{which}", markup=False)
        plan, tuned = graph.plan, graph.tuned
        if tuned is None:
            known = speedup(plan.measured) if plan.measured else plan.stopped
            out.print(f"tuned before: {known} (--again measures anew)", markup=False)
        elif tuned.comparison is not None:
            _measured(tuned, tuned.comparison)
        elif tuned.kept:
            out.print("no plan to measure: nothing was predicted to help")
        if tuned is not None and tuned.left_out:
            _not_begun(tuned)
        if tuned is not None and not tuned.kept:
            continue
        steps = f"{len(plan.steps)} steps" if plan.steps else "the untouched graph"
        steps += " and what is planned at the levels below" if plan.later else ""
        out.print(f"From now on torch.compile(backend='passwright') uses {steps}:", markup=False)
        out.print(str(graph.path), markup=False, soft_wrap=True)
        out.print()


def _not_begun(tuned: Tuned) -> None:
    """What there was no time for, and what to do about it."""
    out = console()
    names = ", ".join(tuned.left_out)
    out.print(
        f"Not begun, since it might not have been measured in time: {names}. A longer --budget has"
        " room for more.",
        markup=False,
    )
    if not tuned.kept:
        out.print("Nothing was compared with default compile, so nothing is kept.")
        out.print()


def _measured(tuned: Tuned, comparison: Comparison) -> None:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("variant", "steps", "predicted", "measured, 95 % interval", "a step takes", ""):
        table.add_column(column)
    for variant in tuned.variants:
        name, plan = variant.name, variant.plan
        timing, gain = comparison.timings.get(name), comparison.gains.get(name)
        took = duration(timing.median) if timing else "-"
        found = "baseline" if name == DEFAULT else comparison.censored.get(name, "-")
        if gain is not None:
            low, high = gain.speedup_interval
            found = f"{gain.speedup:.2f}x [{low:.2f}, {high:.2f}]"
        predicted = speedup(plan.predicted) if plan.steps else ""
        kept = "kept" if variant is tuned.best else ""
        table.add_row(name, str(len(plan.steps)), predicted, found, took, kept)
    out = console()
    out.print(table)
    out.print(f"Measuring ended: {comparison.stopped}. Noise floor {comparison.floor:.1%}.")
    for note in comparison.notes:
        out.print(note, markup=False)

"""Gathers a report about a model: its plan, pictures of its graphs, and what every step gains, measured.

Stage by stage, each of which adds to the report, so that whoever stops it gets what there is.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from passwright.passes.errors import PasswrightError, cause
from passwright.passes.graph import GraphView
from passwright.scheduler.commands.models import Subject
from passwright.scheduler.commands.plan import PlannedGraph, plan_model
from passwright.scheduler.gain import Interval
from passwright.scheduler.inductor import clone_for_compile
from passwright.scheduler.plan import Plan, Step, speedup
from passwright.scheduler.settings import Settings
from passwright.training.agreement import without_dropout
from passwright.training.demo_report import Row, State
from passwright.training.report.about import about_model
from passwright.training.report.content import About
from passwright.training.report.drawing import Drawn, drawn, drawn_below, parameters
from passwright.training.report.kernels import profiled
from passwright.training.report.measure_steps import (
    STOPPED,
    Limits,
    Timed,
    chosen_prefixes,
    time_plan,
)
from passwright.training.report.model_content import (
    DEFAULT,
    PASSWRIGHT,
    GraphPart,
    ModelReport,
    Profile,
)
from passwright.training.report.parts import (
    below_parts,
    graph_part,
    left_parts,
    measured_parts,
    step_parts,
)
from passwright.training.report.prefixes import (
    ATEN,
    INDUCTOR,
    Placed,
    alike,
    has_predictions,
    in_order,
    plans_of,
)
from passwright.training.report.replaying import Replaying
from passwright.training.workloads.capture import capture

Say = Callable[[str], None]
_NO_PREDICTIONS = "A plan that was written as text holds no predictions."


@dataclass(frozen=True)
class Request:
    """What is asked for. `command` makes the report again."""

    subject: Subject
    settings: Settings
    device: torch.device
    batch: int | None
    command: str
    measure: bool = True
    limits: Limits = Limits()


class Gathering:
    """The report so far."""

    def __init__(self, request: Request, say: Say = lambda _: None) -> None:
        self._request, self._say = request, say
        self._subject = request.subject
        about = about_model(request.subject.name, request.settings, request.device, request.command)
        self.report = ModelReport(about, request.subject.train, request.batch)
        self._planned: list[PlannedGraph] = []
        self._order: list[Placed] = []

    def run(self) -> ModelReport:
        """All stages. Ctrl-C ends it with what there is; raises what keeps a model from being planned."""
        try:
            self._say("planning")
            self._plan()
            self._say("drawing the graphs")
            self._draw()
            if self._request.measure:
                self._measure()
        except KeyboardInterrupt:
            self._change(ended=STOPPED)
        return self.report

    def _change(self, **changes: Any) -> None:
        self.report = replace(self.report, **changes)

    def _note(self, *notes: str) -> None:
        self._change(notes=(*self.report.notes, *notes))

    # ---- stages

    def _plan(self) -> None:
        if self._subject.train:
            without_dropout(self._subject.module)
        planned = plan_model(self._subject, self._request.settings)
        failed = [graph for graph in planned if graph.plan is None]
        for graph in failed:
            self._note(f"a graph was left as it is: {graph.error}")
        self._note(
            *(f"levels below are not known: {g.below_error}" for g in planned if g.below_error)
        )
        # Graphs that are alike have one plan.
        known: dict[str, PlannedGraph] = {}
        for graph in planned:
            if graph.plan is not None:
                known.setdefault(graph.plan.fingerprint, graph)
        self._planned, counts = list(known.values()), alike(planned)
        self._order = in_order(self._planned, counts)
        self._change(
            graphs=tuple(
                graph_part(number, graph, counts[fingerprint])
                for number, (fingerprint, graph) in enumerate(known.items(), 1)
            ),
            below=below_parts(self._planned, counts),
            steps=step_parts(self._order),
            left=left_parts(self._planned),
            predicted=predicted_of([plan for one in planned for _, plan in plans_of([one])]),
        )
        if self._order and self.report.predicted is None:
            self._note(_NO_PREDICTIONS)

    def _draw(self) -> None:
        plans = [plan for _, plan in plans_of(self._planned)]
        settings = self._request.settings
        scheduler = Replaying.of_plans(settings, plans)
        numbered: dict[str, list[tuple[int, Step]]] = {}
        for number, placed in enumerate(self._order, 1):
            if placed.plan.level != INDUCTOR:
                numbered.setdefault(placed.plan.fingerprint, []).append((number, placed.step))
        found: dict[str, Drawn] = {}
        subject = self._subject
        try:
            for one in capture(subject.module, subject.inputs, train=subject.train):
                fingerprint = GraphView(one.graph.graph).fingerprint
                graph = clone_for_compile(one.graph).graph
                steps = numbered.get(fingerprint, ())
                found[fingerprint] = drawn(graph, steps, scheduler.table, parameters(one))
            if any(placed.plan.level == ATEN for placed in self._order):
                found |= drawn_below(subject, settings, plans, numbered)
        except Exception as error:  # a picture is not worth a report
            self._note(f"the graphs cannot be drawn: {cause(error)}")
        diffs = {number: diff for one in found.values() for number, diff in one.diffs.items()}
        self._change(
            graphs=tuple(_with_pictures(part, found) for part in self.report.graphs),
            below=tuple(_with_pictures(part, found) for part in self.report.below),
            steps=tuple(
                replace(step, diff=step.diff or diffs.get(step.number, ()))
                for step in self.report.steps
            ),
        )

    def _measure(self) -> None:
        request = self._request
        lengths = chosen_prefixes(len(self._order), request.limits.most) if self._order else []
        timed = time_plan(
            self._subject,
            self._order,
            lengths[:-1],  # the last is the whole
            request.settings,
            request.device,
            request.limits,
            self._say,
        )
        floor = timed.comparison.floor if timed.comparison else math.nan
        self._change(
            parts=tuple(measured_parts(self._order, lengths, timed)),
            found=timed.gain(DEFAULT, PASSWRIGHT),
            floor=floor if math.isfinite(floor) else None,
            before=timed.variants.get(DEFAULT),
            after=timed.variants.get(PASSWRIGHT),
            ended=timed.ended,
        )
        self._note(*self._remarks(timed))
        if not timed.ended:
            self._profile(timed)

    def _remarks(self, timed: Timed) -> list[str]:
        notes = [] if timed.comparison is None else list(timed.comparison.notes)
        # Graphs that are alike apply the steps of one several times.
        wanted = Counter(placed.step.label for placed in self._order)
        missing = (wanted - Counter(timed.applied)).total()
        if PASSWRIGHT in timed.variants and missing:
            notes.append(
                f"the compile did not apply all that is shown: {missing} of {wanted.total()} steps found no"
                " place, or Inductor failed on them"
            )
        for name, variant in timed.variants.items():
            if not variant.agrees:
                title = f"the first {name} steps" if name.isdecimal() else name
                notes.append(f"{title}: {variant.agreement}")
        if PASSWRIGHT in timed.why:
            notes.append(f"as Passwright compiles it: {timed.why[PASSWRIGHT]}")
        return notes

    def _profile(self, timed: Timed) -> None:
        found: dict[str, Profile] = {}
        for name in (DEFAULT, PASSWRIGHT):
            at = timed.same.get(name, name)
            if at in found:  # the same code
                found[name] = found[at]
            if name in found or at not in timed.steps:
                continue
            self._say("listing kernels")
            try:
                found[name] = profiled(
                    timed.steps[at], self._request.device, timed.namespaces.get(at, ())
                )
            except Exception as error:  # the profiler needs the driver's leave
                self._note(f"kernels cannot be listed: {cause(error)}")
                break
        self._change(kernels_before=found.get(DEFAULT), kernels_after=found.get(PASSWRIGHT))


def gather(request: Request, say: Say = lambda _: None) -> ModelReport:
    """The report. Raises PasswrightError for a plan file that cannot be read; other errors are in it."""
    gathering = Gathering(request, say)
    try:
        return gathering.run()
    except PasswrightError:
        raise
    except Exception as error:
        return replace(gathering.report, ended=f"it does not run: {cause(error)}")


def _with_pictures(part: GraphPart, found: Mapping[str, Drawn]) -> GraphPart:
    one = found.get(part.fingerprint)
    return part if one is None else replace(part, before=one.before, after=one.after)


def of_plan(plan: Plan, about: About) -> ModelReport:
    """A report from a plan alone: nothing is built, drawn or measured, but what the plan itself knows."""
    planned = PlannedGraph(plan, stored=True)
    notes = ["Made from a plan alone: name the model as well for pictures and measurements."]
    predicted = predicted_of([plan])
    if plan.steps and predicted is None:
        notes.append(_NO_PREDICTIONS)
    if plan.measured is not None:
        notes.append(f"`passwright tune` measured {speedup(plan.measured)} for it.")
    return ModelReport(
        about,
        plan.training,
        None,
        graphs=(graph_part(1, planned),),
        steps=step_parts(in_order([planned])),
        left=left_parts([planned]),
        predicted=predicted,
        notes=tuple(notes),
    )


def predicted_of(plans: Sequence[Plan]) -> Interval | None:
    """Of plans of all graphs and levels, as the demo joins them; None where they do not say."""
    steps = [step for plan in plans for step in plan.steps]
    if steps and not has_predictions(steps):
        return None
    if len(plans) == 1:  # also of a plan that no graph was matched with, and so has no ops
        return plans[0].predicted
    entries = [
        {
            "plan": {"level": plan.level, "ops_before": plan.ops_before},
            "predicted": asdict(plan.predicted),
        }
        for plan in plans
    ]
    return Row("", False, None, State.EQUAL, compiled={PASSWRIGHT: {"plans": entries}}).predicted

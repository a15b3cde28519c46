"""Gathers a report about a data set of measured plans, and about what a gain model says of them."""

from __future__ import annotations

import json
import shlex
import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from passwright.passes.errors import WorkloadError, cause
from passwright.scheduler import model_store
from passwright.scheduler.commands.console import progress
from passwright.scheduler.ensemble import load
from passwright.scheduler.gain_models import ANALYTIC
from passwright.scheduler.predictor import Predictor
from passwright.training.baselines import BASELINES, Analytic
from passwright.training.data_stats import records_at, summarise
from passwright.training.failures import by_family
from passwright.training.gain_data import samples_at
from passwright.training.gain_eval import held_out, plans_of
from passwright.training.gain_metrics import Plans
from passwright.training.noise import with_floors
from passwright.training.processes import cores
from passwright.training.records import Record
from passwright.training.report.about import now, versions
from passwright.training.report.content import About
from passwright.training.report.data_content import DataReport, FamilyRow, Miss, Point
from passwright.training.report.data_scores import (
    group_of,
    pattern_rows,
    record_of,
    search_rows,
)
from passwright.training.report.measure_steps import STOPPED
from passwright.training.samples import WorkloadSamples
from passwright.training.workloads.spec import Spec

#: Misses that are listed, and how many of one workload.
_MISSES, _OF_ONE = 15, 2
UNSEEN, SEEN, HELD_OUT = "families it never saw", "families it learned from", "families held out"
_FOLDS = 5


@dataclass(frozen=True)
class DataRequest:
    """What is asked for. `records`: None for the committed ones; `gain_model`: a folder, "analytic", or
    None for the one in use; `held_out`: a baseline that predicts each family from the others instead."""

    records: Path | None
    gain_model: str | None
    samples: Path | None
    evaluation: Path | None
    device: str | None
    jobs: int | None
    command: str
    held_out: str | None = None


@dataclass(frozen=True)
class _Judge:
    """Whose predictions are shown, and the families it has learned from."""

    name: str
    predictor: Predictor
    families: frozenset[str]


def gather_data(request: DataRequest, tell: Callable[[str], None]) -> DataReport:
    """The report. Ctrl-C while features are built ends it with what the records themselves say. Raises
    WorkloadError where there are no records, or no such gain model."""
    records = with_floors(records_at(request.records))
    device = _device(records, request.device)
    own = [record for record in records if record.device == device]
    judge = _judge(request, device)
    report = DataReport(_about(request, device, judge), summarise(own).to_json())
    if request.evaluation is not None:
        report = replace(report, evaluation=_evaluation(request.evaluation))
    try:
        samples = samples_at(
            request.records, request.samples, device=device, jobs=request.jobs or cores()
        )
        plans = _predicted(request, judge, samples)
    except KeyboardInterrupt:
        return replace(report, ended=STOPPED)
    tell(f"{sum(len(one.gains) - 1 for one in plans)} plans of {len(plans)} graphs predicted")
    return _with_plans(report, plans, own, judge, request.held_out)


def _device(records: Sequence[Record], wanted: str | None) -> str:
    counts = Counter(record.device for record in records)
    if wanted is not None and wanted not in counts:
        raise WorkloadError(
            f"nothing was measured on {wanted!r}; there are {', '.join(sorted(counts))}"
        )
    return wanted or counts.most_common(1)[0][0]


def _judge(request: DataRequest, device: str) -> _Judge:
    """Raises WorkloadError for a folder that holds no model, and for an unknown baseline."""
    if request.held_out is not None:
        if request.held_out not in BASELINES:
            raise WorkloadError(
                f"{request.held_out!r} cannot be held out here: {', '.join(BASELINES)} can;"
                " networks take long, so let `passwright evaluate` do it, and show its --json file by"
                " --evaluation"
            )
        return _Judge(request.held_out, BASELINES[request.held_out](0), frozenset())
    place = Path(request.gain_model) if request.gain_model else model_store.find(device)
    if request.gain_model == ANALYTIC or place is None:
        return _Judge(ANALYTIC, Analytic(), frozenset())
    try:
        found = load(place)
        about = json.loads((place / model_store.CONFIG).read_text(encoding="utf-8"))["about"]
    except (ValueError, OSError, ImportError) as error:
        raise WorkloadError(str(error)) from error
    return _Judge(place.name, found, frozenset(about.get("families", ())))


def _predicted(
    request: DataRequest, judge: _Judge, samples: Sequence[WorkloadSamples]
) -> list[Plans]:
    useful = [one for one in samples if one.steps]
    if request.held_out is None:
        with progress(len(useful)) as reporter:
            found = []
            for one in useful:
                reporter.working_on(f"predicting {one.workload}")
                found.append(plans_of(one, judge.predictor))
        return found
    with progress(_FOLDS) as reporter:
        learn = BASELINES[request.held_out]
        return held_out(
            useful,
            lambda known, seed: learn(seed).fit(known),
            count=_FOLDS,
            done=lambda number, of: reporter.finished(f"{request.held_out}: part {number} of {of}"),
        )


def _with_plans(
    report: DataReport,
    plans: Sequence[Plans],
    records: Sequence[Record],
    judge: _Judge,
    was_held_out: str | None,
) -> DataReport:
    points = tuple(point for one in plans for point in points_of(one, judge.families))
    unseen = [one for one in plans if one.family not in judge.families]
    seen = [one for one in plans if one.family in judge.families]
    named = ((HELD_OUT if was_held_out else UNSEEN, unseen), (SEEN, seen))
    notes = []
    if judge.name == ANALYTIC:
        notes.append("The analytic model has learned nothing: every family is new to it.")
    elif not unseen:
        notes.append("The model has learned from every family here: scores are of the fit.")
    return replace(
        report,
        points=points,
        floor=statistics.median(point.floor for point in points) if points else 0.0,
        groups=tuple(group_of(name, found) for name, found in named if found),
        families=family_rows(plans, judge.families),
        patterns=tuple(pattern_rows(plans)),
        searches=tuple(search_rows(plans)),
        misses=tuple(misses_of(points, records)),
        notes=(*report.notes, *notes),
    )


def family_rows(plans: Sequence[Plans], learned: frozenset[str]) -> tuple[FamilyRow, ...]:
    """Every family, those first whose first choices cost most in all."""
    return tuple(
        FamilyRow(name, row["graphs"], row["tau"], row["top1"], name not in learned)
        for row in by_family(plans)
        for name in (row["family"],)
    )


def points_of(plans: Plans, learned: frozenset[str]) -> list[Point]:
    """A point for every plan but doing nothing."""
    found = []
    for at in range(1, len(plans.gains)):
        lower, upper = (
            None if side is None else float(side[at]) for side in (plans.lower, plans.upper)
        )
        found.append(
            Point(
                plans.workload,
                plans.family,
                float(plans.gains[at]),
                float(plans.floors[at]),
                float(plans.predicted[at]),
                lower,
                upper,
                plans.by[at] if plans.by else "",
                tuple(sorted(plans.patterns[at])) if plans.patterns else (),
                plans.family not in learned,
            )
        )
    return found


def misses_of(points: Sequence[Point], records: Sequence[Record]) -> list[Miss]:
    """Those furthest off, no more than two of one workload; none that noise may explain."""
    by_workload: dict[str, list[Record]] = {}
    for record in records:
        by_workload.setdefault(record.workload, []).append(record)
    taken: Counter[str] = Counter()
    found: list[Miss] = []
    for point in sorted(points, key=lambda p: -abs(p.gain - p.predicted)):
        if len(found) == _MISSES or abs(point.gain - point.predicted) <= point.floor:
            break
        taken[point.workload] += 1
        if taken[point.workload] > _OF_ONE:
            continue
        known = record_of(point, by_workload.get(point.workload, ()))
        found.append(
            Miss(
                len(found) + 1,
                point,
                known.plan if known is not None else "",
                known.date[:10] if known is not None else "",
                known.run if known is not None else "",
                command_for(point.workload),
            )
        )
    return found


def command_for(workload: str) -> str:
    """Shows the candidates of a model; measures anew what is no whole model, or in bfloat16, which a report
    does not take."""
    if not workload.startswith(("cut:", "random:")):
        spec = Spec.parse(workload)
        if spec.precision != "bf16":
            batch = f" --batch {spec.batch}" if spec.batch else ""
            train = " --train" if spec.train else ""
            return f"passwright report {shlex.quote(spec.model)}{batch}{train} --seed {spec.seed}"
    return f"passwright collect runs/again {shlex.quote(workload)} --plans 12"


def _evaluation(file: Path) -> Mapping[str, Any]:
    """What `passwright evaluate --json` wrote. Raises WorkloadError for anything else."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        if not all("model" in row and "mean" in row for row in found["models"]):
            raise KeyError("models")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise WorkloadError(
            f"{file} is no evaluation ({cause(error)}); `passwright evaluate --json FILE` writes one"
        ) from error
    return dict(found)


def _about(request: DataRequest, device: str, judge: _Judge) -> About:
    subject = request.records.name if request.records else "the committed data set"
    return About(
        subject,
        device,
        "data",
        now(),
        request.command,
        versions=versions(),
        gain_model=judge.name,
    )

"""Curves of one model: the best gain after each trial of several samplers, and what remains of it.

The best of many measurements is partly the luckiest. So what a curve has found after so many trials is
measured again, several times, and those figures are compared.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from passwright.scheduler.device import describe
from passwright.training.farm import Farm
from passwright.training.model_plan import ModelPlan
from passwright.training.recording import stamp
from passwright.training.records import Record
from passwright.training.search.models import ModelProblem
from passwright.training.search.problem import STOPPED, TIME_LIMIT
from passwright.training.search.space import Labels
from passwright.training.search.study import search
from passwright.training.store import Store
from passwright.training.workloads.capture import captured
from passwright.training.workloads.exact import build_exact
from passwright.training.workloads.spec import Spec

#: So many of the best are measured again, so often.
_BEST, _AGAIN = 3, 4


@dataclass(frozen=True)
class Job:
    """The curves of one workload."""

    workload: str
    device: str
    #: Worker processes.
    jobs: int
    #: Where its measured plans are kept, and where others, at the same time, keep theirs of this workload.
    directory: Path
    beside: tuple[Path, ...]
    #: Trials by sampler.
    trials: dict[str, int]
    #: After how many of them what was found is measured again, beside the last.
    marks: tuple[int, ...] = ()
    seed: int = 0
    #: Trials that are proposed at a time.
    together: int = 4
    #: Of `time.time`.
    until: float = math.inf

    @property
    def how(self) -> dict[str, Any]:
        """What a row must have been made with, to stand for this."""
        return {"workload": self.workload, "seed": self.seed, "together": self.together}


@dataclass
class Remembering:
    """A farm that asks only for what no store holds: neither its own, nor those that others write to.
    What stands in a store was measured on this device, unless `usable` says otherwise."""

    farm: Farm
    store: Store
    beside: Sequence[Path] = ()
    usable: Callable[[Record], bool] = lambda _: True
    known: dict[str, Record] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._take(self.store.records())

    def records(self, plans: Sequence[ModelPlan], *, seconds: float = 2.0) -> list[Record]:
        for directory in self.beside:
            self._take(Store(directory).records())
        fresh = [plan for plan in plans if plan.key not in self.known]
        for record in self.farm.records(fresh, seconds=seconds) if fresh else ():
            self.known[record.result] = record
            self.store.append([record])
        return [self.known[plan.key] for plan in plans]

    def _take(self, records: Sequence[Record]) -> None:
        for record in filter(self.usable, records):
            self.known.setdefault(record.result, record)


@dataclass
class Curve:
    """The best gain after each trial."""

    gains: list[float] = field(default_factory=list)
    #: The trials themselves, None for what failed.
    trials: list[tuple[Labels, float | None]] = field(default_factory=list)
    #: All trials were made.
    complete: bool = False

    def best(self, trials: int) -> list[Labels]:
        """The best of the first so many trials, best first; none where nothing was faster."""
        faster = {q: gain for q, gain in self.trials[:trials] if gain is not None and gain > 0}
        return sorted(faster, key=lambda sequence: -faster[sequence])[:_BEST]

    def told(self, sequence: Labels, gain: float | None) -> None:
        self.trials.append((sequence, gain))
        best = self.gains[-1] if self.gains else 0.0
        better = gain is not None and gain > best
        self.gains.append(gain if better and gain is not None else best)


def curve(
    problem: ModelProblem,
    sampler: str,
    *,
    trials: int,
    seed: int,
    batch: int,
    time_limit: float | None = None,
    begun: Sequence[tuple[Labels, float | None]] = (),
    told: Callable[[Curve], None] = lambda _: None,
) -> Curve:
    """The curve of one sampler, from the trials on that it had before. Raises KeyboardInterrupt where the
    search was stopped."""
    found = Curve()
    alphabet = set(problem.alphabet)
    # With other patterns, or another plan, it is another search.
    begun = begun if all(alphabet.issuperset(sequence) for sequence, _ in begun) else ()
    for sequence, gain in begun:
        found.told(sequence, gain)

    def note(sequence: Labels, gain: float | None) -> None:
        found.told(sequence, gain)
        told(found)

    outcome = search(
        problem,
        trials=trials,
        seed=seed,
        sampler=sampler,
        batch=batch,
        confirm=0,
        time_limit=time_limit,
        begun=begun,
        told=note,
    )
    if outcome.why == STOPPED:
        raise KeyboardInterrupt
    # A space may have fewer sequences than there are trials; then it is exhausted.
    found.complete = outcome.why != TIME_LIMIT
    return found


def confirmed(
    problem: ModelProblem, farm: Farm, ends: Sequence[Sequence[Labels]]
) -> list[dict[str, Any]]:
    """What a search that ended with these sequences as its best would choose, and its gains.

    Each sequence is compiled and measured anew several times. The first of these decides between the
    sequences of an end, as a search confirms its best; the others say what the chosen one gains. Where
    none is faster, that is doing nothing, which gains nothing by definition.
    """
    plans = [[problem.plan_of(sequence) for sequence in end] for end in ends]
    different = {plan.key: plan for end in plans for plan in end if plan.steps}
    gains: dict[str, list[float]] = {key: [] for key in different}
    for record in farm.records([plan for plan in different.values() for _ in range(_AGAIN)]):
        if record.gain is not None:
            gains[record.result].append(record.gain)
    found = []
    for end in plans:
        faster = [plan for plan in end if gains.get(plan.key) and gains[plan.key][0] > 0]
        chosen = max(faster, key=lambda plan: gains[plan.key][0], default=ModelPlan())
        rest = gains[chosen.key][1:] if chosen.steps else [0.0]
        steps = [step.label for plan in chosen.plans for step in plan.steps]
        found.append({"steps": steps, "gains": rest, "gain": _median(rest)})
    return found


def _median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None


def rows_of(
    job: Job, rows: Sequence[dict[str, Any]], say: Callable[[str], None] = lambda _: None
) -> list[dict[str, Any]]:
    """The rows of this workload and these samplers: those of `rows` that are complete, and the others,
    which go on from the trials that they have.

    What was measured before comes from the job's directory. Raises WorkloadError if the workload cannot be
    had.
    """
    # What there is no time for stays as it was.
    there = {row["sampler"]: row for row in rows if _is_same(row, job)}
    done = {sampler for sampler, row in there.items() if _stands(row, job)}
    if len(done) == len(job.trials) or time.time() > job.until:
        return list(there.values())
    spec, device = Spec.parse(job.workload), torch.device(job.device)
    torch.set_float32_matmul_precision(spec.matmul_precision)
    module, inputs = build_exact(job.workload, device)
    graphs = captured(module, inputs, train=spec.train)
    here = stamp(device)
    with Store(job.directory) as store, Farm(job.workload, [job.device], job.jobs) as farm:

        def usable(record: Record) -> bool:
            there = (record.workload, record.device, record.torch)
            return there == (job.workload, here["device"], here["torch"])

        source: Any = Remembering(farm, store, job.beside, usable)
        for sampler, trials in job.trials.items():
            if sampler in done or time.time() > job.until:
                continue
            # Made anew, so that no sampler gains by what another was told.
            problem = ModelProblem(graphs, describe(device), source, training=spec.train)

            def told(now: Curve, sampler: str = sampler) -> None:
                say(f"{job.workload}, {sampler}: {len(now.gains)} trials, {_shown(now)}")

            left = None if math.isinf(job.until) else max(1.0, job.until - time.time())
            how: dict[str, Any] = {
                "seed": job.seed,
                "batch": job.together,
                "time_limit": left,
                "begun": _trials(there.get(sampler, {})),
            }
            found = curve(problem, sampler, trials=trials, told=told, **how)
            marks = sorted({min(mark, len(found.gains)) for mark in (*job.marks, trials)})
            ends = [found.best(mark) for mark in marks]
            again = dict(there.get(sampler, {}).get("confirmed", {}))
            if found.complete:
                again = dict(zip(map(str, marks), confirmed(problem, farm, ends), strict=True))
            there[sampler] = {
                **job.how,
                "sampler": sampler,
                "trials": trials,
                "complete": found.complete,
                "gains": [round(gain, 5) for gain in found.gains],
                "sequences": [" + ".join(sequence) for sequence, _ in found.trials],
                "measured": [gain if gain is None else round(gain, 5) for _, gain in found.trials],
                "confirmed": again,
                "device": here["device"],
                "torch": here["torch"],
            }
    return list(there.values())


def _stands(row: dict[str, Any], job: Job) -> bool:
    wanted = job.trials.get(row["sampler"])
    return _is_same(row, job) and row["complete"] and row["trials"] == wanted


def _is_same(row: dict[str, Any], job: Job) -> bool:
    return row["sampler"] in job.trials and all(
        row.get(name) == value for name, value in job.how.items()
    )


def _trials(row: Mapping[str, Any]) -> list[tuple[Labels, float | None]]:
    sequences = (tuple(text.split(" + ")) if text else () for text in row.get("sequences", ()))
    return list(zip(sequences, row.get("measured", ()), strict=True))


def _shown(now: Curve) -> str:
    return f"{math.exp(now.gains[-1]):.2f}x" if now.gains else "nothing yet"

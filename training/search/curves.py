"""How fast samplers find what there is to gain on real models: curves of the best gain over trials.

    python -m passwright.training.search.curves MODELS --trials 60 --records runs/search --json FILE

Every sampler starts from the same sequences. What one had measured, the others need not have measured
again: gains come from `--records`, where every measured plan is kept, and the same command goes on with
what is there. Rows are the best measured gain after each trial.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from passwright.scheduler.commands.console import progress, say
from passwright.scheduler.commands.models import pick_device
from passwright.scheduler.device import describe
from passwright.training.collect_run import exact_names
from passwright.training.farm import Farm
from passwright.training.measure import stamp
from passwright.training.model_plan import ModelPlan
from passwright.training.processes import cores
from passwright.training.records import Record
from passwright.training.search.models import ModelProblem
from passwright.training.search.problem import STOPPED
from passwright.training.search.space import Labels
from passwright.training.search.study import search
from passwright.training.store import Store
from passwright.training.workloads.capture import captured
from passwright.training.workloads.exact import build_exact
from passwright.training.workloads.spec import Spec

_SAMPLERS = ("local", "tpe", "random")


@dataclass
class Remembering:
    """A farm that asks only for what the store does not hold."""

    farm: Farm
    store: Store
    known: dict[str, Record] = field(default_factory=dict)

    def records(self, plans: Sequence[ModelPlan], *, seconds: float = 2.0) -> list[Record]:
        fresh = [plan for plan in plans if plan.key not in self.known]
        for record in self.farm.records(fresh, seconds=seconds) if fresh else ():
            self.known[record.result] = record
            self.store.append([record])
        return [self.known[plan.key] for plan in plans]


def curve(
    problem: ModelProblem, sampler: str, *, trials: int, seed: int, batch: int
) -> list[float]:
    """The best gain after each trial. Raises KeyboardInterrupt where the search was stopped."""
    found: list[float] = []

    def told(_: Labels, gain: float | None) -> None:
        found.append(max(gain or 0.0, found[-1] if found else 0.0))

    outcome = search(
        problem,
        trials=trials,
        seed=seed,
        sampler=sampler,
        batch=batch,
        confirm=0,
        told=told,
    )
    if outcome.why == STOPPED:
        raise KeyboardInterrupt
    return found


def run(
    models: Annotated[list[str], typer.Argument(help="Workloads: zoo:rechub/MMOE?fields=8, ...")],
    json_file: Annotated[Path, typer.Option("--json", help="Where curves are kept.")],
    records: Annotated[Path, typer.Option(help="Where measured plans are kept.")],
    trials: Annotated[int, typer.Option(min=1, help="Of each sampler.")] = 60,
    batch: Annotated[int, typer.Option(min=1, help="Rows of the inputs.")] = 2048,
    precision: Annotated[str, typer.Option(help="fp32, tf32 or bf16.")] = "tf32",
    mode: Annotated[str, typer.Option(help="infer, train or both.")] = "infer",
    time_limit: Annotated[float, typer.Option(min=1, help="Seconds, asked between curves.")] = 1e9,
    together: Annotated[int, typer.Option(min=1, help="Trials that are proposed at a time.")] = 4,
    jobs: Annotated[int | None, typer.Option(min=1, help="Worker processes.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda or cuda:N.")] = None,
    seed: Annotated[int, typer.Option(help="Of the samplers.")] = 0,
) -> None:
    """Compare samplers on models, and write how fast each finds what."""
    where = pick_device(device)
    names = exact_names(models, batches=[batch], precisions=[precision], mode=mode, seed=0)
    rows: list[dict[str, Any]] = []
    if json_file.exists():
        rows = json.loads(json_file.read_text(encoding="utf-8"))["rows"]
    start, workers = time.monotonic(), jobs or cores()
    with Store(records) as store, progress(len(names) * len(_SAMPLERS)) as reporter:
        kept = store.records()
        for name in names:
            done = {row["sampler"] for row in rows if row["workload"] == name}
            left = [s for s in _SAMPLERS if s not in done]
            if not left or time.monotonic() - start > time_limit:
                continue
            train = Spec.parse(name).train
            torch.set_float32_matmul_precision(Spec.parse(name).matmul_precision)
            module, inputs = build_exact(name, where)
            graphs = captured(module, inputs, train=train)
            with Farm(name, [str(where)], workers, run="curves") as farm:
                here = stamp(where)
                known = {
                    r.result: r
                    for r in kept
                    if (r.workload, r.device, r.torch) == (name, here["device"], here["torch"])
                }
                source: Any = Remembering(farm, store, known)
                for sampler in left:
                    if time.monotonic() - start > time_limit:
                        break
                    # Made anew, so that no sampler gains by what another was told.
                    problem = ModelProblem(graphs, describe(where), source, training=train)
                    reporter.working_on(f"{name}, {sampler}")
                    gains = curve(problem, sampler, trials=trials, seed=seed, batch=together)
                    how = {"trials": trials, "seed": seed, "together": together}
                    rows.append({"workload": name, "sampler": sampler, **how, "gains": gains})
                    json_file.write_text(json.dumps({"rows": rows}, indent=1) + "\n", "utf-8")
                    best = math.exp(gains[-1]) if gains else 1.0
                    reporter.finished(f"{name}, {sampler}: {best:.2f}x in {len(gains)} trials")
    say(f"written: {json_file}")


if __name__ == "__main__":
    typer.run(run)

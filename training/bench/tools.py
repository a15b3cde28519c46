"""What the command `passwright bench` calls."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from passwright.passes.errors import WorkloadError
from passwright.scheduler.commands.models import devices_of
from passwright.training.bench.devices import default_jobs
from passwright.training.bench.rivals import TUNE_SECONDS, all_rivals, chosen, has_graphs
from passwright.training.bench.rows import Case, load
from passwright.training.bench.run import Request, bench, show
from passwright.training.bench.suites import PUBLIC, SUITES, of_kernelbench, of_models, suites
from passwright.training.bench.worker import Limits
from passwright.training.workloads.registry import cpu_only

__all__ = ["bench", "listing", "load", "request", "show"]


def request(
    *,
    models: Sequence[str] = (),
    suite: str | None = None,
    home: Path | None = None,
    mode: str = "both",
    batch: int | None = None,
    precisions: Sequence[str] = (),
    rivals: Sequence[str] = (),
    tune_seconds: float = TUNE_SECONDS,
    device: torch.device,
    jobs: int | None = None,
    measure: float = 1.0,
    compile: float = 600.0,
    time_limit: float | None = None,
    seed: int = 0,
) -> Request:
    """What the command line asks for: on `cuda` without a number, every GPU. Raises WorkloadError for what
    there is not."""
    cases = [*_cases(models, suite, home, mode, batch, precisions)]
    devices = devices_of(device)
    left_out = {} if device.type == "cpu" else _cpu_only(cases)
    cases = [case for case in cases if case.model not in left_out]
    if not cases:
        reasons = "; ".join(
            f"{model} runs on a CPU alone: {why}" for model, why in left_out.items()
        )
        raise WorkloadError(reasons)
    jobs = min(jobs or default_jobs(devices), len(cases))
    return Request(
        tuple(dict.fromkeys(cases)),
        chosen(rivals, tune_seconds=tune_seconds),
        devices[:jobs],
        jobs,
        Limits(measure, compile),
        time_limit,
        seed,
        home,
        left_out,
    )


def _cpu_only(cases: Sequence[Case]) -> dict[str, str]:
    """Models that do not run on a GPU, and why."""
    found = {case.model: cpu_only(case.model) for case in cases}
    return {model: why for model, why in found.items() if why}


def _cases(
    models: Sequence[str],
    suite: str | None,
    home: Path | None,
    mode: str,
    batch: int | None,
    precisions: Sequence[str],
) -> Iterator[Case]:
    named = suites(suite) if suite else []
    if home is not None:
        if batch is not None and not named:
            raise WorkloadError("--batch: KernelBench's files say how many rows their inputs have")
        only = () if named else models
        yield from of_kernelbench(home).cases(mode, precisions=precisions, only=only)
    elif models and not named:
        yield from of_models(models).cases(mode, batch=batch, precisions=precisions)
    elif not named:
        named = [SUITES[PUBLIC]]
    # Of several suites, those that have such a model.
    able = [one for one in named if one.has(models)] or named
    for one in able:
        yield from one.cases(mode, batch=batch, precisions=precisions, only=models)


def listing() -> str:
    """Suites and rivals, a line each."""
    lines = ["Suites (--suite):"]
    for suite in SUITES.values():
        batches = "/".join(map(str, suite.batches))
        about = f"{len(suite.models())} models, batch {batches}, {'/'.join(suite.precisions)}"
        lines.append(f"  {suite.name}: {suite.note} {about}.")
    lines.append("Rivals (--rivals), each also with CUDA graphs as 'NAME + CUDA graphs':")
    for rival in all_rivals():
        if not has_graphs(rival.name):
            usual = "" if rival.usual else " Only if named."
            lines.append(f"  {rival.name}: {rival.note}{usual}")
    return "\n".join(lines) + "\n"

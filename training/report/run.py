"""What `passwright report` asks for: gathers, writes page and JSON, prints."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from passwright.passes.errors import WorkloadError
from passwright.scheduler.commands.console import FAILED, INTERRUPTED, Reporter, progress, say
from passwright.scheduler.commands.models import Subject
from passwright.scheduler.optimize import read_plan
from passwright.scheduler.settings import Settings
from passwright.training.report import html, of_model, terminal
from passwright.training.report.about import now, versions
from passwright.training.report.content import About, from_json, to_json
from passwright.training.report.data_content import DataReport
from passwright.training.report.measure_steps import STOPPED, Limits
from passwright.training.report.model_content import ModelReport
from passwright.training.writable import check, unwritable

__all__ = ["check", "finish", "on_data", "on_model", "on_plan", "read"]

Report = ModelReport | DataReport
KINDS: dict[str, type[Any]] = {"model": ModelReport, "data": DataReport}


def on_model(
    subject: Subject,
    settings: Settings,
    device: torch.device,
    *,
    batch: int | None,
    command: str,
    measure: bool,
    prefixes: int,
    seconds: float,
    time_limit: float | None,
    started: float,
) -> ModelReport:
    """Plans, draws and measures a model. Progress goes to stderr."""
    html.require()
    deadline = started + time_limit if time_limit else float("inf")
    request = of_model.Request(
        subject,
        settings,
        device,
        batch,
        command,
        measure,
        Limits(prefixes, seconds, deadline),
    )
    with progress(1) as reporter:
        found = of_model.gather(request, _teller(reporter))
        reporter.finished(f"{subject.name}: {found.ended or 'done'}")
    return found


def on_plan(plan: Path, *, command: str) -> ModelReport:
    """From a plan file alone. Raises PlanFormatError."""
    html.require()
    found = read_plan(str(plan))
    kind = "cpu" if found.device.startswith("cpu") else "cuda"
    device = found.device or "an unnamed device"
    about = About(str(plan), device, kind, now(), command, threads=0, versions=versions())
    return of_model.of_plan(found, about)


def on_data(
    records: Path | None,
    *,
    gain_model: str | None,
    samples: Path | None,
    held_out: str | None,
    evaluation: Path | None,
    device: str | None,
    jobs: int | None,
    command: str,
) -> DataReport:
    """From records and a gain model. Raises WorkloadError."""
    html.require()
    from passwright.training.report.of_data import DataRequest, gather_data

    request = DataRequest(records, gain_model, samples, evaluation, device, jobs, command, held_out)
    return gather_data(request, say)


def read(file: Path) -> Report:
    """A report from its JSON. Raises WorkloadError."""
    html.require()
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        raise WorkloadError(f"{file} cannot be read: {error}") from error
    found: Report = from_json(text, KINDS, str(file))
    return found


def finish(report: Report, *, output: Path, json_file: Path | None) -> int:
    """Prints and writes the report; the exit code is 130 after Ctrl-C, 1 where something failed."""
    terminal.show(report)
    if json_file is not None:
        _write(json_file, to_json(report))
    _write(output, html.render(report))
    if report.ended == STOPPED:
        return INTERRUPTED
    wrong = isinstance(report, ModelReport) and (not report.graphs or _is_wrong(report))
    failed = bool(report.ended) and "time limit" not in report.ended
    return FAILED if wrong or failed else 0


def _is_wrong(report: ModelReport) -> bool:
    """Results are off, and those of default compile are not."""
    before, after = report.before, report.after
    return after is not None and not after.agrees and (before is None or before.agrees)


def _write(file: Path, text: str) -> None:
    """In one piece or not at all."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        part = file.with_name(f"{file.name}.part")
        part.write_text(text, encoding="utf-8")
        part.replace(file)
    except OSError as error:
        raise unwritable(file, error) from error
    say(f"written: {file}")


def _teller(reporter: Reporter) -> Callable[[str], None]:
    """Shows what is being done; off a terminal, what goes on for long is said once."""
    last = ""

    def tell(what: str) -> None:
        nonlocal last
        reporter.working_on(what)
        stage = what.partition(": round")[0]
        if not sys.stderr.isatty() and stage != last:
            say(stage)
        last = stage

    return tell

"""Where patterns match in public models: `python -m passwright.training.pattern_table`.

    python -m passwright.training.pattern_table --as-gpu             (all models; goes on where it stopped)
    python -m passwright.training.pattern_table --fields 8 --json small.json
    python -m passwright.training.pattern_table --markdown           (the page from the file, no counting)

Every graph that Dynamo makes of a model is cleaned up, searched for candidates, and rewritten by
everything that matches. Nothing is compiled or measured. The file is written after every model, and a
later call goes on where it stopped if patterns, torch and options are the same.
"""

from __future__ import annotations

import gc
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from passwright.passes.errors import WorkloadError
from passwright.scheduler.commands.console import (
    FAILED,
    INTERRUPTED,
    WRONG,
    cause,
    progress,
    say,
)

if TYPE_CHECKING:
    from passwright.training.pattern_page import Report, Row

FILE, PAGE = Path("data/reports/patterns.json"), Path("docs/patterns.md")


def new_report(fields: int | None = None, *, as_gpu: bool = False) -> Report:
    """A report without rows, of this torch and these patterns."""
    import platform

    import torch

    from passwright.passes.table import default_table
    from passwright.scheduler.toolchain import own_version
    from passwright.training.pattern_page import Report

    table = default_table()
    return Report(
        date=datetime.now(UTC).date().isoformat(),
        torch=torch.__version__,
        passwright=own_version(),
        python=platform.python_version(),
        version=table.version,
        patterns=tuple(pattern.name() for pattern in table),
        fields=fields,
        as_gpu=as_gpu,
    )


def jobs(models: list[str], fields: int | None) -> list[tuple[str, bool]]:
    """Names of workloads, each with no more than so many fields, in both modes. Raises WorkloadError
    for an unknown name."""
    from passwright.training.workloads import find

    found = []
    for name in models:
        workload = find(name)
        if fields is not None and workload.size is not None and workload.size > fields:
            workload = workload.sized(fields=fields)
        found += [(workload.name, train) for train in (False, True)]
    return found


def counted(name: str, train: bool, *, as_gpu: bool) -> Row:
    """The row of one model in one mode."""
    from passwright.passes.table import default_table
    from passwright.training.pattern_counts import count_model
    from passwright.training.pattern_page import Row

    try:
        return Row(name, train, count_model(name, default_table(), train=train, as_gpu=as_gpu))
    except Exception as error:  # a model is somebody else's code
        return Row(name, train, why=cause(error))


def count_all(
    report: Report, wanted: list[tuple[str, bool]], path: Path, time_limit: float
) -> tuple[Report, bool]:
    """The report with the rows that it lacks, as far as the time suffices; and whether it did."""
    from dataclasses import replace

    from passwright.training.pattern_page import save

    rows = {(row.model, row.train): row for row in report.rows if not row.why}
    missing = [job for job in wanted if job not in rows]
    deadline = time.monotonic() + time_limit
    with progress(len(missing)) as reporter:
        for name, train in missing:
            if time.monotonic() > deadline:
                break
            title = f"{name} {'train' if train else 'infer'}"
            reporter.working_on(title)
            start = time.monotonic()
            row = rows[name, train] = counted(name, train, as_gpu=report.as_gpu)
            # In the order asked for; what was there before and is not asked for comes last.
            order = {job: place for place, job in enumerate(wanted)}
            known = sorted(rows, key=lambda job: order.get(job, len(order)))
            report = replace(report, rows=tuple(rows[job] for job in known))
            save(report, path)
            found = row.why or "{} -> {} -> {} ops".format(*row.count.ops)
            reporter.finished(f"{title}: {found}, {time.monotonic() - start:.0f} s")
            gc.collect()
    return report, all(job in rows for job in wanted)


def render(path: Path, page: Path) -> None:
    """Writes the tables of the page from the file. Raises WorkloadError for another file."""
    from passwright.passes.table import default_table
    from passwright.training.pattern_page import load, with_tables

    text = page.read_text(encoding="utf-8")
    page.write_text(with_tables(text, load(path), default_table()), encoding="utf-8")


def pattern_table(
    models: Annotated[
        list[str] | None,
        typer.Option(help="A model; may be repeated. All public ones if left out."),
    ] = None,
    fields: Annotated[int | None, typer.Option(min=3, help="At most so many fields.")] = None,
    as_gpu: Annotated[
        bool, typer.Option("--as-gpu", help="Also look for what would match on a GPU.")
    ] = False,
    json_file: Annotated[Path, typer.Option("--json", help="Where the counts are kept.")] = FILE,
    time_limit: Annotated[
        float, typer.Option(min=0, help="Seconds after which no further model is begun.")
    ] = 1200.0,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Write the page from the file, and count nothing.")
    ] = False,
    page: Annotated[Path, typer.Option(help="The page.")] = PAGE,
) -> None:
    """Count the places where patterns match in the public models."""
    try:
        if markdown:
            render(json_file, page)
            return
        raise typer.Exit(_count(models, fields, as_gpu, json_file, time_limit))
    except WorkloadError as error:
        say(f"pattern_table: {error}")
        raise typer.Exit(WRONG) from error
    except KeyboardInterrupt as error:
        say("pattern_table: stopped; the same command goes on from here")
        raise typer.Exit(INTERRUPTED) from error


def _count(
    models: list[str] | None, fields: int | None, as_gpu: bool, path: Path, time_limit: float
) -> int:
    from dataclasses import replace

    from passwright.training.pattern_page import load, with_candidates
    from passwright.training.workloads import names

    public = [name for name in names() if name.startswith("zoo:")]
    wanted = jobs(models or public, fields)
    report = new_report(fields, as_gpu=as_gpu)
    if path.exists():
        before = load(path)
        if report.continues(before):
            report = replace(report, rows=before.rows)
        else:
            say(f"{path} is of other patterns, another torch or other options: counting anew")
    report, complete = count_all(report, wanted, path, time_limit)
    total = len({row.model for row in report.rows})
    say(f"{len(with_candidates(report))} of {total} models have candidates; written: {path}")
    if not complete:
        say("time limit: the same command goes on from here")
    failed = any(row.why for row in report.rows)
    return FAILED if failed or not complete else 0


if __name__ == "__main__":
    typer.run(pattern_table)

"""`passwright bench`: every rival on every case, in one run on one machine.

Cases compile in several worker processes at a time, each on its worker's device, and are measured there
one after the other. Rows are kept in the file as they come; what fails, hangs or kills its process is a row
too.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path

import torch

from passwright.passes.errors import WorkloadError
from passwright.scheduler.commands.console import INTERRUPTED, Reporter, progress, say
from passwright.scheduler.inductor import torch_versions
from passwright.scheduler.toolchain import own_version
from passwright.training.bench import summary, table
from passwright.training.bench.devices import one_kind
from passwright.training.bench.loop import Bench, Request
from passwright.training.bench.rows import Report, Row, State, load, save
from passwright.training.bench.worker import work
from passwright.training.pool import Pool
from passwright.training.processes import ProcessWorker, Worker, cores, spawning
from passwright.training.worker import Seat, seats
from passwright.training.writable import check, check_unused

__all__ = ["Request", "bench", "load", "run", "show"]

#: Seconds between two lines off a terminal, where there is no bar.
_LINE_EVERY = 30.0


def bench(
    request: Request, *, json_file: Path | None, resume: bool = False, markdown: bool = False
) -> int:
    """Runs, prints tables and writes the file after each case. The exit code is 130 after Ctrl-C, 1 if
    one of ours failed or was wrong."""
    check(json_file)
    if not resume:
        check_unused(json_file, load)
    report = _earlier(request, json_file) if resume and json_file is not None else None
    report, interrupted = run(request, report=report, json_file=json_file)
    show(report, markdown=markdown)
    if json_file is not None:
        save(report, json_file)
        say(f"written: {json_file}")
    if report.not_run:
        count = len(report.not_run)
        missing = f"{count} case{'s are' if count > 1 else ' is'} missing"
        again = "; the same command with --resume goes on" if json_file else ""
        say(f"{missing}: {'stopped' if interrupted else 'time limit'}{again}")
    if interrupted:
        return INTERRUPTED
    ours = {rival.name for rival in request.rivals if rival.ours}
    bad = (State.FAILED, State.WRONG, State.TIMEOUT)
    return int(any(row.rival in ours and row.state in bad for row in report.rows))


def run(
    request: Request,
    launch: Callable[[Seat], Worker] | None = None,
    *,
    report: Report | None = None,
    json_file: Path | None = None,
) -> tuple[Report, bool]:
    """The report, gone on from an earlier one, and whether Ctrl-C cut it short. `launch` starts a
    worker."""
    if report is None:
        report = _empty(request)
    interrupted = False
    with (
        tempfile.TemporaryDirectory(
            prefix="passwright-bench-", ignore_cleanup_errors=True
        ) as place,
        progress(len(request.cases)) as reporter,
    ):
        threads = torch.get_num_threads() if request.devices[0].type == "cpu" else 1
        places = seats(place, request.jobs, [str(one) for one in request.devices], threads)
        teller = _Teller(reporter, request, json_file)
        pool = Pool(places, launch or launcher())
        found = Bench(request, pool, report, teller, teller.now_and_then)
        teller.known(found)
        try:
            found.run()
        except KeyboardInterrupt:
            interrupted = True
        report = replace(found.report, seconds=round(found.total_seconds, 1))
    teller.keep(report)
    return report, interrupted


def show(report: Report, *, markdown: bool) -> None:
    """Prints the tables."""
    if markdown:
        import typer

        typer.echo(table.markdown(report), nl=False)
    else:
        table.show(report)


class _Teller:
    """Shows the progress and keeps the file up to date, so that no kind of end loses much."""

    def __init__(self, reporter: Reporter, request: Request, json_file: Path | None) -> None:
        self._reporter, self._request, self._json_file = reporter, request, json_file
        self._told = time.monotonic()

    def known(self, bench: Bench) -> None:
        """Counts what an earlier run has done."""
        done = len(self._request.cases) - bench.total
        if done:
            self._reporter.done = done
            say(f"{done} of {len(self._request.cases)} cases were measured before")

    def __call__(self, bench: Bench, rows: Sequence[Row]) -> None:
        forecast = bench.forecast()
        line = f"{rows[0].case.title}: {summary.of_case(rows)}"
        self._reporter.finished(f"{line}; {forecast}" if forecast else line)
        self.keep(replace(bench.report, seconds=round(bench.total_seconds, 1)))

    def keep(self, report: Report) -> None:
        """Into the file. A full disk is no reason to lose what is there."""
        if self._json_file is None:
            return
        try:
            save(report, self._json_file)
        except WorkloadError as error:
            say(f"passwright: {error}; it is tried again")

    def now_and_then(self, bench: Bench) -> None:
        """What goes on: beside the bar, or off a terminal a line now and then."""
        doing_now = bench.doing()
        self._reporter.working_on(doing_now)
        if not sys.stderr.isatty() and time.monotonic() - self._told > _LINE_EVERY:
            self._told = time.monotonic()
            say(doing_now)


def launcher() -> Callable[[Seat], Worker]:
    """Fresh processes: one that has used CUDA cannot be copied."""
    context = spawning()
    return lambda seat: ProcessWorker(context, work, seat)


def _earlier(request: Request, path: Path) -> Report | None:
    """The report in the file, if its figures were made by this code on this kind of device."""
    if not path.exists():
        return None
    report = load(path)
    if report.context != request.context:
        raise WorkloadError(
            f"{path} was made by other code, on another device or with another seed, so its times do not"
            " count here; write to another file"
        )
    most = max(report.options.get("devices", 1), len(request.devices))
    return replace(
        report,
        rivals={**report.rivals, **_notes(request)},
        options={**report.options, "devices": most},
    )


def _notes(request: Request) -> dict[str, str]:
    return {rival.name: rival.note for rival in request.rivals}


def _empty(request: Request) -> Report:
    described = one_kind(request.devices)
    return Report(
        date=datetime.now(UTC).strftime("%Y-%m-%d"),
        device={**asdict(described), "key": described.key()},
        versions={**torch_versions(), "passwright": own_version()},
        context=request.context,
        seed=request.seed,
        seconds=0.0,
        rivals=_notes(request),
        options={
            "devices": len(request.devices),
            "jobs": request.jobs,
            "cores": cores(),
            "measure_seconds": request.limits.measure,
            "compile_limit": request.limits.compile,
            "left_out": dict(request.left_out),
        },
    )

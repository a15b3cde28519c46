"""The demo: public models, plain `torch.compile` against `backend="passwright"`, one table.

Sizes are such that everything is done within five minutes on two CPU cores. What takes the time is
compiling: a public model with all its fields takes one core a minute or more, twice. So the models
have fewer fields here, unless all are asked for.
"""

from __future__ import annotations

import multiprocessing
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from passwright.scheduler.commands.console import INTERRUPTED, progress, say
from passwright.scheduler.device import describe
from passwright.scheduler.inductor import torch_versions
from passwright.scheduler.optimize import Scheduler
from passwright.scheduler.settings import Settings
from passwright.scheduler.toolchain import own_version
from passwright.training import demo_table, workloads
from passwright.training.demo_report import Report, Row, State, load, save
from passwright.training.demo_rows import STOPPED, TIME_LIMIT, Limits, ProcessWorker, Rows, Worker
from passwright.training.demo_worker import Job, work
from passwright.training.processes import cores, spawning

__all__ = ["Request", "demo", "load", "show"]

#: Seconds for everything, in the usual size.
TIME_LIMIT_SECONDS = 300.0
#: Bytes of main memory that a worker needs at most: torch with Inductor, a model, a C++ compiler.
_WORKER_BYTES = {"cpu": 1.2e9, "cuda": 3.5e9}
_MEASURE_SECONDS = 4.0


@dataclass(frozen=True)
class Entry:
    """A model of the demo, its size in the usual demo, and in which modes it is shown."""

    name: str
    small: str
    modes: tuple[bool, ...] = (False, True)


# From those that take longest to compile to those that take least.
ENTRIES = (
    Entry("zoo:rechub/MMOE", "?fields=8,experts=3"),
    Entry("zoo:deepctr/PLE", "?fields=8,experts=1"),
    Entry("zoo:deepctr/AutoInt", "?fields=6"),
    Entry("zoo:torchfm/FFM", "?fields=9"),
    # Without parameters, hence nothing to train.
    Entry("own:split_cat", "", (False,)),
    Entry("own:norm_branches", "?fields=8"),
)


@dataclass(frozen=True)
class Request:
    """What is to be shown, where."""

    jobs: tuple[tuple[str, bool], ...]
    batch: int | None
    device: torch.device
    seed: int
    settings: Settings
    time_limit: float | None
    #: Leave out default compile where no step was chosen.
    skip_equal: bool = True

    @classmethod
    def of(
        cls,
        *,
        models: str | None = None,
        batch: int | None = None,
        full: bool = False,
        time_limit: float | None = None,
        device: torch.device,
        seed: int = 0,
        settings: Settings,
    ) -> Request:
        """Checks every name first: raises WorkloadError for one that nobody knows.

        `models` are separated by commas, as sizes are: `zoo:rechub/MMOE?fields=9,experts=4,own:mmoe`.
        """
        limit = time_limit or (None if full else TIME_LIMIT_SECONDS)
        names = re.split(r",(?=\s*\w+:)", models) if models else ()
        entries = [_entry(name) for name in names] or ENTRIES
        jobs = tuple(
            (workloads.find(entry.name + ("" if full else entry.small)).name, train)
            for entry in entries
            for train in entry.modes
        )
        return cls(jobs, batch, device, seed, settings, limit, skip_equal=not full)


def _entry(name: str) -> Entry:
    """The demo's entry of that name; a size that comes with the name is kept."""
    wanted = workloads.find(name.strip()).name
    plain = wanted.partition("?")[0]
    known = next((entry for entry in ENTRIES if entry.name == plain), Entry(plain, ""))
    return known if wanted == plain else replace(known, name=wanted, small="")


def demo(request: Request, *, json_file: Path | None, markdown: bool) -> int:
    """Runs, prints the table and writes the file. The exit code is 130 after Ctrl-C, 1 if a row
    failed or a result was wrong."""
    report, interrupted = run(request)
    if json_file is not None:
        save(report, json_file)
        say(f"written: {json_file}")
    show(report, markdown=markdown)
    if interrupted:
        return INTERRUPTED
    wrong = any(row.agreement and not row.agreement["ok"] for row in report.rows)
    return int(wrong or any(row.state is State.FAILED for row in report.rows))


def show(report: Report, *, markdown: bool) -> None:
    """Prints the table."""
    if markdown:
        import typer

        typer.echo(demo_table.markdown(report), nl=False)
    else:
        demo_table.show(report)


def run(request: Request, launch: Callable[[Job], Worker] | None = None) -> tuple[Report, bool]:
    """The report, and whether Ctrl-C cut it short. `launch` starts a worker for one job."""
    start = time.monotonic()
    plan_directory = str(Scheduler.of(request.settings).store.directory.absolute())
    interrupted = False
    with tempfile.TemporaryDirectory(
        prefix="passwright-demo-", ignore_cleanup_errors=True
    ) as place:
        jobs = [*_jobs(request, place, plan_directory)]
        with progress(len(jobs)) as reporter:
            limits = limits_for(request.device, request.time_limit)
            rows = Rows(jobs, launch or _launcher(request.device), limits, reporter)
            try:
                rows.run()
            except KeyboardInterrupt:
                interrupted = True
    found = rows.finish(STOPPED if interrupted else TIME_LIMIT)
    return _report(request, found, plan_directory, time.monotonic() - start), interrupted


def _jobs(request: Request, place: str, plan_directory: str) -> Iterator[Job]:
    options = {**_changed(request.settings), "plan_directory": plan_directory}
    count = len(request.jobs)
    for number, (model, train) in enumerate(request.jobs):
        yield Job(
            model,
            train,
            request.batch,
            str(request.device),
            torch.get_num_threads(),
            request.seed,
            str(Path(place) / str(number)),
            options,
            request.skip_equal,
            _MEASURE_SECONDS,
            # Quick ones first: if the time is up, much of the table is there.
            order=count * train - number,
        )


def _changed(settings: Settings) -> dict[str, Any]:
    """The settings that are not at their defaults."""
    plain = Settings()
    values = ((item.name, getattr(settings, item.name)) for item in fields(settings))
    return {name: value for name, value in values if value != getattr(plain, name)}


def _launcher(device: torch.device) -> Callable[[Job], Worker]:
    """Copies of one warm process on a CPU. A process that has used CUDA cannot be copied, nor one
    whose torch sees a CUDA device, whose backward starts threads."""
    methods = multiprocessing.get_all_start_methods()
    if device.type == "cpu" and not torch.cuda.is_available() and "forkserver" in methods:
        context: Any = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["passwright.training.demo_preload"])
    else:
        context = spawning()
    return lambda job: ProcessWorker(context, work, job)


def limits_for(device: torch.device, seconds: float | None) -> Limits:
    """As many compiles at a time as there are cores, as many models as there is memory."""
    parallel = cores() if device.type == "cpu" else max(1, min(8, cores() // 2))
    alive = max(1, int(_available_bytes() * 0.8 / _WORKER_BYTES[device.type]))
    return Limits(seconds, min(parallel, alive), alive)


def _available_bytes() -> float:
    """Main memory that is free or can be freed; 8 GB where the system does not say."""
    with suppress(OSError):
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return 1024.0 * int(line.split()[1])
    return 8e9


def _report(request: Request, rows: tuple[Row, ...], plan_directory: str, seconds: float) -> Report:
    return Report(
        date=datetime.now(UTC).strftime("%Y-%m-%d"),
        device={**asdict(describe(request.device)), "key": describe(request.device).key()},
        versions={**torch_versions(), "passwright": own_version()},
        threads=torch.get_num_threads(),
        seed=request.seed,
        plan_directory=plan_directory,
        seconds=round(seconds, 1),
        rows=rows,
        settings=_changed(request.settings),
    )

"""`passwright headroom`: how much faster can the patterns make a model, by measurement?

For each model and mode a search over macros (`greedy`), several at the same time, all compiles in
worker processes; then default and ours, each with and without combo kernels, in one comparison.
"""

from __future__ import annotations

import math
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import torch

from passwright.passes.address import digest
from passwright.passes.errors import WorkloadError
from passwright.scheduler.commands.console import INTERRUPTED, Reporter, progress, say
from passwright.scheduler.device import describe
from passwright.scheduler.inductor import torch_versions
from passwright.scheduler.optimize import code_version
from passwright.scheduler.toolchain import own_version
from passwright.training import workloads
from passwright.training.demo_report import State as RowState
from passwright.training.headroom import table
from passwright.training.headroom.report import Report, Row, load, save
from passwright.training.headroom.runs import Run
from passwright.training.headroom.worker import Task, work
from passwright.training.pool import Hand, Pool
from passwright.training.processes import ProcessWorker, Worker, cores, spawning
from passwright.training.worker import Seat
from passwright.training.writable import check_unused

__all__ = ["MODELS", "Request", "headroom", "load", "show"]

MODELS = (
    "zoo:rechub/MMOE",
    "zoo:deepctr/PLE",
    "zoo:deepctr/AutoInt",
    "zoo:torchfm/FFM",
    "zoo:rechub/DCNv2_mix",
    "zoo:rechub/EDCN",
    "zoo:deepctr/xDeepFM",
    "zoo:rtdl/FTTransformer",
    "zoo:rechub/SharedBottom",
    "zoo:rechub/AITM",
    "zoo:rechub/DIN",
    "zoo:rechub/BST",
)
STOPPED, TIME_LIMIT = "stopped", "time limit"
MODES = {"infer": (False,), "train": (True,), "both": (False, True)}
_MOST_JOBS = 12
#: Seconds kept for last comparisons at the end, and as a share of all.
_RESERVE, _RESERVE_SHARE = {"cpu": 30.0, "cuda": 75.0}, 0.3
_TICK = 0.5
#: Seconds between two lines off a terminal, where there is no bar.
_LINE_EVERY = 30.0


@dataclass(frozen=True)
class Request:
    """What is to be searched, where, and for how long."""

    tasks: tuple[Task, ...]
    device: torch.device
    jobs: int
    search_seconds: float
    time_limit: float | None
    seed: int = 0

    @classmethod
    def of(
        cls,
        models: Sequence[str] = (),
        *,
        mode: str = "both",
        device: torch.device,
        jobs: int | None = None,
        search_seconds: float = 600.0,
        time_limit: float | None = None,
        **task: Any,
    ) -> Request:
        """Raises WorkloadError for a model that nobody knows; `task` are further fields of Task."""
        if mode not in MODES:
            raise WorkloadError(f"--mode {mode}: it is one of {', '.join(MODES)}")
        names = [known(name) for name in models or MODELS]
        # Inference first: it compiles quicker, so that much of the table is there if the time is up.
        tasks = (
            Task(name, train, device=str(device), **task) for train in MODES[mode] for name in names
        )
        usual = max(1, min(_MOST_JOBS, cores() // 2))
        seed = task.get("seed", 0)
        return cls(tuple(tasks), device, jobs or usual, search_seconds, time_limit, seed)

    @property
    def context(self) -> str:
        """Hash of what trials depend on: those of an equal context may be used again."""
        described = describe(self.device).key()
        versions = sorted(map(str, torch_versions().items()))
        common = sorted(
            {(t.batch, t.seed, t.relaxed, t.fold, t.precision) for t in self.tasks}, key=str
        )
        return digest(code_version(), described, versions, common)


def known(name: str) -> str:
    """The full name of a workload; that of a user's own model as it is."""
    try:
        return workloads.find(name).name
    except WorkloadError:
        home = name.rpartition(":")[0]
        if not home or home in workloads.sources() or home == "zoo":
            raise
        return name


class Listener(Protocol):
    """Who is told how it goes."""

    def row(self, search: Headroom, row: Row) -> None: ...

    def now_and_then(self, search: Headroom) -> None: ...


class Headroom:
    """All runs of one benchmark, and the loop that keeps the workers busy."""

    def __init__(
        self,
        request: Request,
        pool: Pool,
        earlier: dict[Task, Row],
        listener: Listener,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.request = request
        self._pool = pool
        self._listener = listener
        self._told = clock()
        self._clock = clock
        self._start = clock()
        self._deadline = self._start + (request.time_limit or math.inf)
        reserve = _RESERVE[request.device.type]
        self._search_end = self._deadline - min(
            reserve, _RESERVE_SHARE * (request.time_limit or math.inf)
        )
        self.runs = [Run(task, earlier.get(task), clock) for task in request.tasks]

    def run(self) -> None:
        """Does what the time allows. KeyboardInterrupt passes through, with all workers ended."""
        done = False
        try:
            while any(run.row is None for run in self.runs) and self._clock() < self._deadline:
                self._put_questions()
                self._take_answers()
                if self._clock() - self._told > _LINE_EVERY:
                    self._told = self._clock()
                    self._listener.now_and_then(self)
            done = all(run.row is not None for run in self.runs)
        finally:
            self._pool.close(at_once=not done)

    def finish(self, why: str) -> tuple[Row, ...]:
        """A row for each task; `why` the missing ones were not measured."""
        return tuple(run.row or run.finish(RowState.NOT_RUN, why) for run in self.runs)

    def rows(self) -> tuple[Row, ...]:
        """As they are now."""
        return tuple(run.row or run.so_far(RowState.NOT_RUN, STOPPED) for run in self.runs)

    @property
    def left(self) -> float:
        """Seconds until the time limit."""
        return self._deadline - self._clock()

    def doing(self) -> str:
        """One line about what goes on."""
        busy = [f"{run.task.title} ({run.tried} tried)" for run in self.runs if run.running]
        waiting = sum(run.began is None and run.row is None for run in self.runs)
        limit = "" if math.isinf(self.left) else f"; {self.left:.0f} s left"
        return f"searching {', '.join(busy)}; {waiting} wait{limit}"

    # ---- the loop

    def _put_questions(self) -> None:
        self._begin_runs()
        for hand in self._pool.idle:
            for run in self._in_order(hand):
                found = run.ask()
                if found is None:
                    continue
                question, ticket, seconds = found
                try:
                    self._pool.ask(hand, question, ticket, seconds)
                except OSError as error:
                    run.tell(ticket, {"failed": f"no worker process: {error}"})
                break

    def _begin_runs(self) -> None:
        """As many at a time as keep the workers busy, each with its share of the time."""
        at_once = max(2, (len(self._pool.hands) + 1) // 2)
        waiting = [run for run in self.runs if run.began is None and run.row is None]
        free = at_once - sum(run.searching for run in self.runs)
        for number, run in enumerate(waiting[: max(0, free)]):
            waves = math.ceil((len(waiting) - number) / at_once)
            share = (self._search_end - self._clock()) / waves
            run.begin(max(0.0, min(self.request.search_seconds, share)))

    def _in_order(self, hand: Hand) -> Iterator[Run]:
        """Runs that may have a question for this worker: fairly, and rather those that it knows."""
        open_runs = [run for run in self.runs if run.row is None and run.began is not None]
        yield from sorted(open_runs, key=lambda run: (run.running, run.task not in hand.recent))

    def _take_answers(self) -> None:
        for ticket, message in self._pool.answers(min(_TICK, max(0.0, self.left))):
            had = ticket.run.row
            ticket.run.tell(ticket, message)
            if ticket.run.row is not had:
                self._listener.row(self, ticket.run.row)
        if not any(not hand.idle for hand in self._pool.hands):
            time.sleep(0.01)


def headroom(
    request: Request, *, json_file: Path | None, resume: bool = False, markdown: bool = False
) -> int:
    """Runs, prints the table and writes the file after each row. The exit code is 130 after Ctrl-C, 1
    if a row failed or a result was wrong."""
    if not resume:
        check_unused(json_file, load)
    earlier = _earlier(request, json_file) if resume and json_file is not None else {}
    report, interrupted = run(request, earlier=earlier, json_file=json_file)
    if json_file is not None:
        say(f"written: {json_file}")
    show(report, markdown=markdown)
    if interrupted:
        return INTERRUPTED
    wrong = any(table.is_wrong(r) or table.wrong_states(r) for r in report.rows)
    return int(wrong or any(row.state is RowState.FAILED for row in report.rows))


def run(
    request: Request,
    launch: Callable[[Seat], Worker] | None = None,
    *,
    earlier: dict[Task, Row] | None = None,
    json_file: Path | None = None,
) -> tuple[Report, bool]:
    """The report, and whether Ctrl-C cut it short. `launch` starts a worker."""
    start = time.monotonic()
    why = TIME_LIMIT
    with (
        tempfile.TemporaryDirectory(
            prefix="passwright-headroom-", ignore_cleanup_errors=True
        ) as place,
        progress(len(request.tasks)) as reporter,
    ):
        threads = torch.get_num_threads() if request.device.type == "cpu" else 1
        seats = [Seat(place, n, str(request.device), threads) for n in range(request.jobs)]

        pool = Pool(seats, launch or launcher())
        found = Headroom(request, pool, earlier or {}, _Teller(reporter, request, start, json_file))
        try:
            found.run()
        except KeyboardInterrupt:
            why = STOPPED
        report = _report(request, found.finish(why), time.monotonic() - start)
    if json_file is not None:
        save(report, json_file)
    return report, why == STOPPED


def show(report: Report, *, markdown: bool) -> None:
    """Prints the table."""
    if markdown:
        import typer

        typer.echo(table.markdown(report), nl=False)
    else:
        table.show(report)


@dataclass(frozen=True)
class _Teller:
    """Shows the progress and keeps the file up to date, so that no kind of end loses much."""

    reporter: Reporter
    request: Request
    start: float
    json_file: Path | None

    def row(self, search: Headroom, row: Row) -> None:
        self.reporter.finished(f"{row.title}: {table.summary(row)}")
        self._save(search)

    def now_and_then(self, search: Headroom) -> None:
        self.reporter.working_on(search.doing())
        if not sys.stderr.isatty():
            say(search.doing())
        self._save(search)

    def _save(self, search: Headroom) -> None:
        if self.json_file is not None:
            seconds = time.monotonic() - self.start
            save(_report(self.request, search.rows(), seconds), self.json_file)


def launcher() -> Callable[[Seat], Worker]:
    """Fresh processes: one that has used CUDA cannot be copied."""
    context = spawning()
    return lambda seat: ProcessWorker(context, work, seat)


def _earlier(request: Request, path: Path) -> dict[Task, Row]:
    """Rows of the file by task, if they were made by this code on this device."""
    if not path.exists():
        return {}
    report = load(path)
    if report.context != request.context:
        raise WorkloadError(
            f"{path} was made by other code, on another device or with other options, so its times do"
            " not count here; write to another file"
        )
    rows = {(row.model, row.train): row for row in report.rows}
    found = {task: rows.get((task.model, task.train)) for task in request.tasks}
    return {task: row for task, row in found.items() if row is not None}


def _report(request: Request, rows: Sequence[Row], seconds: float) -> Report:
    described = describe(request.device)
    return Report(
        date=datetime.now(UTC).strftime("%Y-%m-%d"),
        device={**asdict(described), "key": described.key()},
        versions={**torch_versions(), "passwright": own_version()},
        context=request.context,
        seed=request.seed,
        seconds=round(seconds, 1),
        rows=tuple(rows),
        options={
            "jobs": request.jobs,
            "search_seconds": request.search_seconds,
            "time_limit": request.time_limit,
            "precision": next((task.precision for task in request.tasks), ""),
            "relaxed": any(task.relaxed for task in request.tasks),
            "fold": any(task.fold for task in request.tasks),
        },
    )

"""Runs the rows of the demo: compiles in parallel, then measures one after another with nothing else
running, and loses nothing when a worker dies or the time is up.

Policy only: what a worker does is `demo_worker.work`, how one is started the caller's business.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any, Protocol

from passwright.training.demo_report import Row, State
from passwright.training.demo_worker import DEFAULT, Job
from passwright.training.processes import ProcessWorker, Worker, received

#: Seconds that measuring one row may take beyond what it was allowed.
_GRACE = 20.0
_TICK = 0.5
#: Measuring takes this much of what it is allowed, first calls and messages included.
_OVER = 1.25

TIME_LIMIT, STOPPED = "time limit", "stopped"

__all__ = ["STOPPED", "TIME_LIMIT", "Limits", "ProcessWorker", "Reporter", "Rows", "Worker"]


class Reporter(Protocol):
    """Who is told how it goes."""

    def working_on(self, what: str) -> None: ...

    def finished(self, line: str) -> None: ...


@dataclass(frozen=True)
class Limits:
    """Wall seconds for everything (None: no limit), compiles at a time, and workers alive at a time,
    each of which holds a model."""

    seconds: float | None
    parallel: int
    alive: int


class Rows:
    """The rows of one demo, by job; `finish` gives them all, also after an interrupt."""

    def __init__(
        self,
        jobs: Sequence[Job],
        launch: Callable[[Job], Worker],
        limits: Limits,
        reporter: Reporter,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.jobs = jobs
        self._launch = launch
        self._limits = limits
        self._reporter = reporter
        self._clock = clock
        self._deadline = clock() + limits.seconds if limits.seconds else float("inf")
        self._rows: dict[Job, Row] = {}
        self._compiling: dict[Connection, tuple[Job, Worker]] = {}
        self._compiled: list[tuple[Job, Worker, dict[str, Any]]] = []

    def run(self) -> None:
        """Does what the time allows. KeyboardInterrupt passes through, with all workers ended."""
        queue = deque(sorted(self.jobs, key=lambda job: job.order))
        try:
            while queue:
                self._compile(queue)
                self._measure()
        finally:
            for worker in self._alive():
                worker.stop(at_once=True)

    def finish(self, why: str = TIME_LIMIT) -> tuple[Row, ...]:
        """A row for each job, in their order; `why` the missing ones were not run."""
        return tuple(self._rows.get(job) or _row(job, State.NOT_RUN, why) for job in self.jobs)

    # ---- compiling

    def _compile(self, queue: deque[Job]) -> None:
        """Compiles as many of the queue as may be alive at a time."""
        while self._compiling or (queue and len(self._compiled) < self._limits.alive):
            while queue and self._has_room():
                self._start(queue.popleft())
            left = self._deadline - self._clock() - self._reserve()
            if left <= 0:
                self._give_up(queue)
                return
            if not self._compiling:  # nothing could be started
                continue
            self._show()
            for connection in wait([*self._compiling], timeout=min(left, _TICK)):
                assert isinstance(connection, Connection)
                self._receive(connection)

    def _has_room(self) -> bool:
        busy = len(self._compiling)
        return busy < self._limits.parallel and busy + len(self._compiled) < self._limits.alive

    def _reserve(self) -> float:
        """Seconds that measuring what is compiled will take, and one row more."""
        measuring = [job.measure_seconds for job, _, _ in self._compiled]
        measuring += [job.measure_seconds for job, _ in self._compiling.values()][:1]
        return _OVER * sum(measuring)

    def _start(self, job: Job) -> None:
        self._reporter.working_on(f"starting {job.title}")  # the first takes a while
        try:
            worker = self._launch(job)
        except OSError as error:
            self._record(_row(job, State.FAILED, f"no worker process: {error}"), job)
            return
        self._compiling[worker.connection] = (job, worker)

    def _receive(self, connection: Connection) -> None:
        job, worker = self._compiling.pop(connection)
        message = received(worker)
        if "compiled" not in message:
            worker.stop()
            self._record(_row(job, State.FAILED, message["failed"]), job)
            return
        compiled = message["compiled"]
        if compiled[DEFAULT] is None:
            worker.stop()
            self._record(_row(job, State.EQUAL, compiled=compiled), job)
            return
        self._compiled.append((job, worker, compiled))

    def _give_up(self, queue: deque[Job]) -> None:
        for job, worker in self._compiling.values():
            worker.stop(at_once=True)
            self._record(_row(job, State.NOT_RUN, TIME_LIMIT), job)
        self._compiling.clear()
        while queue:
            job = queue.popleft()
            self._record(_row(job, State.NOT_RUN, TIME_LIMIT), job)

    # ---- measuring

    def _measure(self) -> None:
        while self._compiled:
            job, worker, compiled = self._compiled[0]
            self._reporter.working_on(f"measuring {job.title}")
            row = self._measured(job, worker, compiled)
            self._compiled.pop(0)
            worker.stop()
            self._record(row, job)

    def _measured(self, job: Job, worker: Worker, compiled: dict[str, Any]) -> Row:
        with suppress(OSError):  # it has died; receiving says so
            worker.connection.send("measure")
        if not worker.connection.poll(job.measure_seconds + _GRACE):
            return _row(job, State.FAILED, "measuring does not end", compiled)
        message = received(worker)
        if "measured" not in message:
            return _row(job, State.FAILED, message["failed"], compiled)
        return _row(job, State.MEASURED, compiled=compiled, measured=message["measured"])

    # ---- telling

    def _record(self, row: Row, job: Job) -> None:
        self._rows[job] = row
        self._reporter.finished(f"{job.title}: {_summary(row)}")

    def _show(self) -> None:
        titles = [job.title for job, _ in self._compiling.values()]
        waiting = f"; {len(self._compiled)} wait to be measured" if self._compiled else ""
        self._reporter.working_on(f"compiling {', '.join(titles)}{waiting}")

    def _alive(self) -> Iterable[Worker]:
        yield from (worker for _, worker in self._compiling.values())
        yield from (worker for _, worker, _ in self._compiled)


def _row(
    job: Job,
    state: State,
    why: str = "",
    compiled: dict[str, Any] | None = None,
    measured: dict[str, Any] | None = None,
) -> Row:
    batch = compiled["batch"] if compiled else job.batch
    return Row(job.model, job.train, batch, state, why, compiled, measured)


def _summary(row: Row) -> str:
    if row.state in (State.FAILED, State.NOT_RUN):
        return f"{row.state}: {row.why}"
    if row.state is State.EQUAL:
        return "no step chosen"
    gain = row.gain
    return f"{gain.speedup:.2f}x" if gain else "could not be measured"

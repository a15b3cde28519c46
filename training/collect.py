"""Collects measured plans: proposes, compiles in many processes, measures one at a time, and keeps it all.

Policy only: what is asked next, and what becomes of an answer. `collect_worker` does the work,
`pool` keeps the workers, `store` the records. A plan that takes its process down, hangs or fills the
memory ends as
one censored record, and the others that were asked for with it are measured without it.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from passwright.scheduler.commands.console import Reporter
from passwright.training.collect_worker import censored, doing
from passwright.training.model_plan import ModelPlan
from passwright.training.pool import Hand, Pool
from passwright.training.processes import Worker
from passwright.training.recording import DEFAULT, stamp
from passwright.training.records import Record, Status
from passwright.training.store import Store
from passwright.training.worker import Question, Seat, seats
from passwright.training.workloads.cuts import is_cut, model_of

#: Plans of one workload that a worker compiles and measures at a time: some of a model, all of a cut.
_OF_A_MODEL, _OF_OTHERS = 4, 12
#: Seconds between two lines about what goes on.
_TICK = 0.5


@dataclass(frozen=True)
class Request:
    """What to collect."""

    #: Exact names of workloads.
    workloads: Sequence[str]
    device: str
    jobs: int
    #: Plans of each workload, doing nothing among them.
    plans: int = 12
    #: Cuts of each whole model, beside the model.
    cuts: int = 0
    #: Whole models themselves are measured, not only their cuts.
    whole: bool = True
    seed: int = 0
    run: str = ""
    #: Seconds of all, of timing the plans of one question, and that each plan of one may take.
    time_limit: float = math.inf
    seconds: float = 3.0
    patience: float = 300.0


@dataclass(frozen=True)
class Job:
    """A question for a worker, and how often it was put before."""

    kind: str
    name: str
    plans: tuple[ModelPlan, ...] = ()
    tries: int = 0

    @property
    def model(self) -> str:
        """The model as it is run that this is about: whoever has built it has less to do."""
        place, at, how = self.name.partition("@")
        return f"{model_of(place)}{at}{how}" if is_cut(place) else self.name

    def question(self, request: Request) -> Question:
        arguments: tuple[object, ...]
        if self.kind == "cuts":
            arguments = (request.cuts, request.seed)
        elif self.kind == "propose":
            arguments = (request.plans, request.seed)
        else:
            arguments = (self.plans, request.seconds, request.run)
        return Question(self.kind, self.name, arguments)


@dataclass
class Tally:
    """What has come of it so far."""

    records: Counter[str] = field(default_factory=Counter)
    workloads: int = 0
    #: Workloads that cannot be had at all, and why.
    failed: dict[str, str] = field(default_factory=dict)
    skipped: int = 0

    @property
    def measured(self) -> int:
        return self.records.total()


class Collector:
    """One collection: what waits to be seen and to be measured, and what has come of it."""

    def __init__(
        self,
        request: Request,
        store: Store,
        launch: Callable[[Seat], Worker],
        reporter: Reporter,
        *,
        threads: int = 1,
        devices: Sequence[str] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.request, self.tally = request, Tally()
        self._store, self._launch, self._reporter = store, launch, reporter
        self._threads, self._devices = threads, list(devices) or [request.device]
        self._clock, self._start = clock, clock()
        self._measuring: deque[Job] = deque()
        self._proposing: deque[Job] = deque()
        self._open: Counter[str] = Counter()
        #: What each seat did last.
        self._models: dict[int, str] = {}
        here = stamp(torch.device(request.device))
        self._known = {
            (r.workload, r.result)
            for r in store.records()
            if (r.device, r.torch) == (here["device"], here["torch"])
        }

    def run(self) -> bool:
        """Collects until all is done or the time is up; whether all is done. KeyboardInterrupt passes
        through; what was measured is in the store."""
        for name in self.request.workloads:
            if self.request.whole or not _is_model(name):
                self._proposing.append(Job("propose", name))
            if self.request.cuts and _is_model(name):
                self._proposing.append(Job("cuts", name))
        with tempfile.TemporaryDirectory(
            prefix="passwright-", ignore_cleanup_errors=True
        ) as directory:
            places = seats(directory, self.request.jobs, self._devices, self._threads)
            pool = Pool(places, self._launch, self._clock)
            try:
                while (self._measuring or self._proposing or self._busy(pool)) and self._in_time:
                    for hand in pool.idle:
                        self._put(pool, hand)
                    for (job, hand), message in pool.answers(_TICK):
                        self._take(job, hand, message)
                    self._reporter.working_on(self.status())
            finally:
                # What is done is kept, whatever ends it.
                for (job, hand), message in pool.answers(0.0):
                    self._take(job, hand, message)
                pool.close(at_once=True)
        return not (self._measuring or self._proposing) and self._in_time

    @property
    def _in_time(self) -> bool:
        return self._clock() - self._start < self.request.time_limit

    @staticmethod
    def _busy(pool: Pool) -> bool:
        return any(not hand.idle for hand in pool.hands)

    def status(self) -> str:
        """`412 plans, 63 a minute, 120 wait; 48 s left`."""
        elapsed = self._clock() - self._start
        rate = 60 * self.tally.measured / max(elapsed, 1e-9)
        waiting = sum(len(job.plans) for job in self._measuring)
        left = self.request.time_limit - elapsed
        limit = "" if math.isinf(left) else f"; {max(0.0, left):.0f} s left"
        to_see = f", {len(self._proposing)} workloads to see" if self._proposing else ""
        return f"{self.tally.measured} plans, {rate:.0f} a minute, {waiting} wait{to_see}{limit}"

    # ---- asking

    def _put(self, pool: Pool, hand: Hand) -> None:
        job = self._next(hand.seat.number)
        if job is None:
            return
        self._models[hand.seat.number] = job.model
        doing(hand.seat).unlink(missing_ok=True)
        self._open[job.name] += 1
        patience = self.request.patience * (1 + len(job.plans))
        pool.ask(hand, job.question(self.request), (job, hand), patience)

    def _next(self, seat: int) -> Job | None:
        """A worker stays with its model to the end, measuring first, so that nothing proposed is kept
        waiting; then it begins another, and at last it helps those that are not done."""
        mine = self._models.get(seat)
        for queue in (self._measuring, self._proposing):
            for job in queue:
                if job.model == mine:
                    queue.remove(job)
                    return job
        for queue in (self._proposing, self._measuring):
            if queue:
                return queue.popleft()
        return None

    # ---- answers

    def _take(self, job: Job, hand: Hand, message: dict[str, object]) -> None:
        self._open[job.name] -= 1
        failed = message.get("failed")
        if failed is not None:
            died = bool(message.get("ends") or message.get("late"))
            self._failed(job, hand, str(failed), died=died)
        elif job.kind == "cuts":
            names = message["answer"]
            assert isinstance(names, list)
            self._proposing.extend(Job("propose", name) for name in names)
        elif job.kind == "propose":
            plans = message["answer"]
            assert isinstance(plans, list)
            self._proposed(job.name, plans)
        else:
            records = message["answer"]
            assert isinstance(records, list)
            self._keep(records)
        if job.kind != "cuts":
            self._finish(job.name)

    def _proposed(self, name: str, plans: Sequence[ModelPlan]) -> None:
        fresh = [plan for plan in plans if (name, plan.key) not in self._known]
        self.tally.skipped += len(plans) - len(fresh)
        size = _OF_A_MODEL if _is_model(name) else _OF_OTHERS
        for start in range(0, len(fresh), size):
            self._measuring.append(Job("measure", name, tuple(fresh[start : start + size])))

    def _failed(self, job: Job, hand: Hand, why: str, *, died: bool) -> None:
        """Nobody is blamed who was not alone: the plan that was being run is tried once more by itself,
        and so are all, where it is not known which it was."""
        if job.kind != "measure":
            self.tally.failed[job.name] = why
            return
        culprit = _read(doing(hand.seat)) if died else ""
        guilty = [plan for plan in job.plans if plan.key == culprit]
        if len(job.plans) > 1:
            alone = guilty or job.plans
            self._measuring.extend(replace(job, plans=(plan,)) for plan in alone)
            rest = tuple(plan for plan in job.plans if plan not in alone)
            if rest:
                self._measuring.append(replace(job, plans=rest))
        elif guilty:
            self._keep([censored(job.name, guilty[0], why, self.request.run, self.request.device)])
        elif job.tries == 0:
            self._measuring.append(replace(job, tries=1))
        elif died and culprit != DEFAULT:
            [plan] = job.plans
            self._keep([censored(job.name, plan, why, self.request.run, self.request.device)])
        else:  # the workload, or its default compile, cannot be had
            self.tally.failed[job.name] = why

    def _keep(self, records: Sequence[Record]) -> None:
        self._store.append(records)
        self._known |= {(record.workload, record.result) for record in records}
        self.tally.records.update(record.status for record in records)

    def _finish(self, name: str) -> None:
        """Says so when nothing more is to come of the workload."""
        if self._open[name] or any(job.name == name for job in self._measuring):
            return
        self.tally.workloads += 1
        if name in self.tally.failed:
            self._reporter.finished(f"{name}: {self.tally.failed[name]}")
            return
        self._reporter.finished(f"{name}; {self.status()}")


def _is_model(name: str) -> bool:
    return not name.startswith(("cut:", "random:"))


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""


def summary(tally: Tally) -> str:
    """One line at the end."""
    parts = [f"{tally.records[status]} {status}" for status in Status if tally.records[status]]
    parts += [f"{tally.skipped} known before"] if tally.skipped else []
    parts += [f"{len(tally.failed)} workloads not to be had"] if tally.failed else []
    return f"{tally.measured} records of {tally.workloads} workloads: " + (
        ", ".join(parts) or "nothing new"
    )

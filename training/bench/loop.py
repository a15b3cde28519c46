"""The loop of `passwright bench`: cases go to worker processes, and rows come back.

Each case is compiled and measured on its worker's device; what fails, hangs or kills its process is a row
too.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from passwright.passes.address import digest
from passwright.scheduler.inductor import torch_versions
from passwright.scheduler.optimize import code_version
from passwright.training.bench.devices import one_kind
from passwright.training.bench.rivals import Rival
from passwright.training.bench.rows import Case, Report, Row, failed, rows_of
from passwright.training.bench.worker import Limits, task_of
from passwright.training.collect_worker import doing
from passwright.training.pool import Hand, Pool
from passwright.training.worker import Question

_TICK = 0.5
#: Seconds that a case may take beyond its compiles and measuring: building, checking, waiting.
_GRACE = 300.0


@dataclass(frozen=True)
class Request:
    """What is to be measured, where, and for how long."""

    cases: tuple[Case, ...]
    rivals: tuple[Rival, ...]
    #: Each case falls to one of them.
    devices: tuple[torch.device, ...]
    jobs: int
    limits: Limits = field(default_factory=Limits)
    time_limit: float | None = None
    seed: int = 0
    #: Of a user's KernelBench; its name is kept in no report.
    home: Path | None = None
    #: Models that were asked for and do not run on this device, and why.
    left_out: Mapping[str, str] = field(default_factory=dict)

    @property
    def context(self) -> str:
        """Hash of what figures depend on."""
        versions = sorted(map(str, torch_versions().items()))
        return digest(code_version(), one_kind(self.devices).key(), versions, self.seed)

    @property
    def patience(self) -> float:
        """Seconds after which a worker with a case is given up."""
        return _GRACE + len(self.rivals) * (self.limits.measure + self.limits.compile)


@dataclass(frozen=True)
class _Ticket:
    """A case that somebody works on, and those of its rivals that are still in it."""

    case: Case
    rivals: tuple[Rival, ...]
    hand: Hand

    def placed(self, rows: Iterable[Row]) -> list[Row]:
        """The rows, with the GPU that they are of."""
        number = torch.device(self.hand.seat.device).index
        return [replace(row, gpu=number) for row in rows]


class Bench:
    """The loop that keeps the workers busy; `report` holds what is there so far."""

    def __init__(
        self,
        request: Request,
        pool: Pool,
        report: Report,
        listener: Callable[[Bench, Sequence[Row]], None],
        idle: Callable[[Bench], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.request, self.report = request, report
        self._pool, self._clock = pool, clock
        self._listener, self._idle = listener, idle
        self._start, self._earlier = clock(), report.seconds
        self._deadline = self._start + (request.time_limit or math.inf)
        names = [rival.name for rival in request.rivals]
        waiting = [case for case in request.cases if not report.is_done(case, names)]
        # What takes longest first, so that no worker is left with it at the end.
        waiting.sort(key=lambda case: not case.train)
        self._waiting: deque[tuple[Case, tuple[Rival, ...]]] = deque(
            (case, request.rivals) for case in waiting
        )
        self._open: dict[int, _Ticket] = {}
        #: Rows of rivals that took a worker down, while the others are measured without them.
        self._lost: dict[Case, list[Row]] = {}
        self.total, self.done = len(waiting), 0
        #: When the last case was done, in seconds of this run.
        self._last = 0.0

    @property
    def seconds(self) -> float:
        """Of this run."""
        return self._clock() - self._start

    @property
    def total_seconds(self) -> float:
        """With those of earlier runs."""
        return self._earlier + self.seconds

    @property
    def left(self) -> float:
        """Seconds until the time limit."""
        return self._deadline - self._clock()

    def forecast(self) -> str:
        """How long the rest may take, judged by what is done."""
        missing = self.total - self.done
        if not self.done or not missing:
            return ""
        since = self.seconds - self._last
        minutes = max(0.0, self._last / self.done * missing - since) / 60
        return f"about {max(1, round(minutes))} min left"

    def doing(self) -> str:
        """One line about what goes on."""
        busy = []
        for ticket in self._open.values():
            rival = _read(doing(ticket.hand.seat))
            busy.append(f"{ticket.case.title} ({rival or 'measuring'})")
        parts = [", ".join(busy) or "starting", f"{len(self._waiting)} wait", self.forecast()]
        return "; ".join(part for part in parts if part)

    def run(self) -> None:
        """Does what the time allows; what is missing then is in the report too. KeyboardInterrupt passes
        through, with all workers ended."""
        try:
            while (self._waiting or self._open) and self.left > 0:
                self._put_questions()
                self._take_answers()
                self._idle(self)
        finally:
            self._pool.close(at_once=bool(self._waiting or self._open))
            self.report = self._with_missing()

    def _put_questions(self) -> None:
        request = self.request
        for hand in self._pool.idle:
            if not self._waiting:
                return
            case, rivals = self._waiting.popleft()
            task = task_of(
                case,
                device=hand.seat.device,
                seed=request.seed,
                home=str(request.home) if case.is_kernelbench and request.home else "",
            )
            doing(hand.seat).unlink(missing_ok=True)
            ticket = _Ticket(case, rivals, hand)
            self._open[hand.seat.number] = ticket
            question = Question("rivals", task, (rivals, request.limits))
            try:
                self._pool.ask(hand, question, ticket, min(request.patience, max(self.left, 0.0)))
            except OSError as error:
                self._finish(ticket, failed(case, rivals, f"no worker process: {error}"))

    def _take_answers(self) -> None:
        for ticket, message in self._pool.answers(max(0.0, min(_TICK, self.left))):
            if "answer" in message:
                self._finish(ticket, rows_of(ticket.case, ticket.rivals, message["answer"]))
            elif message.get("late") and self.left <= 0:
                self._waiting.appendleft((ticket.case, ticket.rivals))
                del self._open[ticket.hand.seat.number]
            else:
                self._fail(ticket, message)

    def _fail(self, ticket: _Ticket, message: Mapping[str, Any]) -> None:
        """Of a worker that died or hung, only the rival that it was busy with is to blame."""
        case, rivals = ticket.case, ticket.rivals
        why, late = str(message.get("failed", "died")), bool(message.get("late"))
        culprit = _read(doing(ticket.hand.seat)) if late or message.get("ends") else ""
        guilty = [rival for rival in rivals if rival.name == culprit]
        others = tuple(rival for rival in rivals if rival not in guilty)
        if guilty and others:
            lost = ticket.placed(failed(case, guilty, why, late=late))
            self._lost.setdefault(case, []).extend(lost)
            self._waiting.appendleft((case, others))
            del self._open[ticket.hand.seat.number]
        else:
            self._finish(ticket, failed(case, rivals, why, late=late))

    def _finish(self, ticket: _Ticket, rows: Iterable[Row]) -> None:
        order = [rival.name for rival in self.request.rivals]
        found = [*ticket.placed(rows), *self._lost.pop(ticket.case, ())]
        found.sort(key=lambda row: order.index(row.rival))
        self.report = self.report.with_rows(found)
        self.done, self._last = self.done + 1, self.seconds
        del self._open[ticket.hand.seat.number]
        self._listener(self, found)

    def _with_missing(self) -> Report:
        """With the cases that have no rows yet, and the rows of rivals that were lost on the way."""
        report = self.report
        missing = [case for case, _ in self._waiting]
        missing += [ticket.case for ticket in self._open.values()]
        for case in missing:
            if case in self._lost and not report.of(case):
                report = report.with_rows(self._lost[case])
        asked = {*self.request.cases}
        kept = [case for case in report.not_run if case not in asked]
        return replace(report, not_run=tuple(sorted({*missing, *kept}, key=_order)))


def _order(case: Case) -> tuple[str, str, bool, int, str]:
    return case.suite, case.model, case.train, case.batch or 0, case.precision


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""

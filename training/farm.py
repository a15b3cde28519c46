"""Workers that measure plans of one workload, several at a time: what a search over a real model asks."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from passwright.training.collect_worker import censored, work
from passwright.training.model_plan import ModelPlan
from passwright.training.pool import Hand, Pool
from passwright.training.processes import ProcessWorker, Worker, spawning
from passwright.training.records import Record
from passwright.training.worker import Question, Seat, seats

_TICK = 0.5


class Farm:
    """Worker processes on one device (or on several, in turn), for one workload.

    Every plan is compiled by whoever is free, and measured against default compile while nobody else uses
    the device. What takes its process down, or more than `patience` seconds, comes back censored.
    """

    def __init__(
        self,
        name: str,
        devices: Sequence[str],
        jobs: int,
        *,
        threads: int = 1,
        patience: float = 600.0,
        run: str = "",
        launch: Callable[[Seat], Worker] | None = None,
    ) -> None:
        self.name, self.patience, self.run = name, patience, run
        self._devices, self._jobs, self._threads = list(devices), jobs, threads
        context = spawning()
        self._launch = launch or partial(ProcessWorker, context, work)

    def __enter__(self) -> Self:
        self._place = tempfile.TemporaryDirectory(prefix="passwright-", ignore_cleanup_errors=True)
        self._seats = seats(self._place.name, self._jobs, self._devices, self._threads)
        self._pool = Pool(self._seats, self._launch)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._pool.close(at_once=True)
        self._place.cleanup()

    @property
    def directory(self) -> Path:
        """Where the workers keep what they share."""
        return Path(self._place.name)

    def records(
        self, plans: Sequence[ModelPlan], *, seconds: float = 2.0, within: float = math.inf
    ) -> list[Record]:
        """A record for each plan, in their order; each is timed for so many seconds at most.

        After `within` seconds, workers that still have a plan are ended, and the plans that have no
        record are left out: nothing is known about them.
        """
        waiting = list(enumerate(plans))
        found: dict[int, Record] = {}
        try:
            self._fill(waiting, found, plans, seconds, time.monotonic() + within)
        except BaseException:
            # Answers that are still to come would be taken for those of the next call.
            self._pool.close(at_once=True)
            self._pool = Pool(self._seats, self._launch)
            raise
        return [found[number] for number in sorted(found)]

    def _fill(
        self,
        waiting: list[tuple[int, ModelPlan]],
        found: dict[int, Record],
        plans: Sequence[ModelPlan],
        seconds: float,
        deadline: float,
    ) -> None:
        open_ones = set(range(len(plans)))
        while open_ones:
            left = deadline - time.monotonic()
            if left <= 0:
                open_ones -= {number for number, _ in waiting}
                waiting.clear()
            for hand in self._pool.idle:
                if waiting:
                    number, plan = waiting.pop(0)
                    self._ask(hand, number, plan, seconds, left)
            for number, message in self._pool.answers(max(0.0, min(_TICK, left))):
                open_ones.discard(number)
                answer = message.get("answer")
                if isinstance(answer, list):
                    [found[number]] = answer
                elif not (message.get("late") and time.monotonic() >= deadline):
                    why = str(message.get("failed"))
                    found[number] = censored(
                        self.name, plans[number], why, self.run, self._devices[0]
                    )

    def _ask(self, hand: Hand, number: int, plan: ModelPlan, seconds: float, left: float) -> None:
        question = Question("measure", self.name, ([plan], seconds, self.run))
        self._pool.ask(hand, question, number, min(self.patience, left))

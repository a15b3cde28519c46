"""Workers of a collector that compile nothing: `python collecting.py DIRECTORY` collects with them."""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

from passwright.scheduler.commands.console import Reporter
from passwright.training.collect import Collector, Request
from passwright.training.collect_worker import censored, doing
from passwright.training.model_plan import ModelPlan
from passwright.training.processes import ProcessWorker
from passwright.training.records import Record, Status
from passwright.training.store import Store
from passwright.training.worker import Seat, serve

#: What a plan of this key does to the process that runs it.
CRASH, HANG, FULL = "crash", "hang", "full"
NAMES = [f"own:split_cat@batch={n},precision=fp32,mode=infer,seed=0" for n in range(1, 9)]


def plans(name: str, count: int) -> list[ModelPlan]:
    """As many plans of a workload, with keys of their own."""
    return [ModelPlan(key=f"{name} {n}", by="walk") for n in range(count)]


class Stub:
    """Answers at once. The keys of plans say what goes wrong."""

    def __init__(self, seat: Seat) -> None:
        self.seat = seat

    def propose(self, name: str, count: int, seed: int) -> list[ModelPlan]:
        return plans(name, count)

    def measure(
        self, name: str, wanted: Sequence[ModelPlan], seconds: float, run: str
    ) -> list[Record]:
        now = doing(self.seat)
        found = []
        for plan in wanted:
            now.write_text(plan.key, encoding="utf-8")
            if CRASH in plan.key:
                faulthandler.disable()  # nobody wants to read where
                os.kill(os.getpid(), signal.SIGSEGV)
            if HANG in plan.key:
                time.sleep(600)
            time.sleep(0.002)
            why = "out of memory" if FULL in plan.key else ""
            record = replace(censored(name, plan, why, run, "cpu"), plan_key=plan.key)
            found.append(record if why else replace(record, status=Status.MEASURED, gain=0.1))
        now.unlink(missing_ok=True)
        return found

    def tidy_up(self) -> None: ...

    def unusable(self) -> bool:
        return False


def work(seat: Seat, connection: Connection) -> None:
    """The life of a worker that compiles nothing."""
    # A fork has the lock of the store and the pipes of the others, which a spawned process has not.
    for link in Path("/proc/self/fd").iterdir():
        number = int(link.name)
        with suppress(OSError):
            what = str(link.readlink())
            if number > 2 and number != connection.fileno() and what.endswith((".lock", "]")):
                os.close(number)
    serve(seat, connection, Stub)


def main(directory: Path) -> None:
    """Collects nine plans of each workload."""
    context = multiprocessing.get_context("fork")
    with Store(directory, segment_rows=20) as store:
        request = Request(NAMES, "cpu", jobs=2, plans=9)
        launch = partial(ProcessWorker, context, work)
        Collector(request, store, launch, Reporter(0, None)).run()


if __name__ == "__main__":
    main(Path(sys.argv[1]))

"""One row of the demo, in a process of its own: compile both ways, compare, then wait to measure.

A worker compiles as soon as it starts, says so, and measures when told to, which is when nothing else
runs. Both compiles start with empty caches, a directory each, in a process that has compiled another
model before. Passwright's goes first: what torch remembers of it in spite of all, some 5 % of the
time, helps default compile.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from passwright.training.processes import into_log, warm_up

DEFAULT, PASSWRIGHT = "default", "passwright"


@dataclass(frozen=True)
class Job:
    """What to do in one row. The batch is None where the workload's own is used."""

    model: str
    train: bool
    batch: int | None
    device: str
    threads: int
    seed: int
    #: Of this job alone: caches and the log.
    directory: str
    #: Options of the backend, and the plan directory, which outlives the demo.
    options: dict[str, Any] = field(default_factory=dict, hash=False)
    #: Leave out default compile where no step was chosen: it would make the same code again.
    skip_equal: bool = True
    measure_seconds: float = 4.0
    #: Jobs start in this order.
    order: int = 0

    @property
    def phase(self) -> str:
        return "train" if self.train else "infer"

    @property
    def title(self) -> str:
        return f"{self.model} {self.phase}"

    @property
    def log(self) -> Path:
        return Path(self.directory) / "log.txt"


def work(job: Job, connection: Connection) -> None:
    """The life of a worker process. Sends {"compiled": ...}, awaits the word "measure" (any other
    ends it), sends {"measured": ...}; {"failed": why} in place of either."""
    into_log(job.log)
    try:
        prepared = Prepared(job)
        connection.send({"compiled": prepared.compile()})
        if connection.recv() == "measure":
            connection.send({"measured": prepared.measure()})
    except (EOFError, BrokenPipeError, KeyboardInterrupt):  # nobody waits for the result any more
        sys.exit(1)
    except Exception as error:
        import traceback

        from passwright.scheduler.commands.console import cause

        traceback.print_exc()
        connection.send({"failed": cause(error)})


class Prepared:
    """The model with its inputs, and what eager makes of them."""

    def __init__(self, job: Job) -> None:
        import torch

        from passwright.training import workloads
        from passwright.training.agreement import observe, oracle, without_dropout

        self.job = job
        self.device = torch.device(job.device)
        self.workload = workloads.find(job.model)
        warm_up(job.device, threads=job.threads)
        module, self.inputs = self.workload.build(
            batch=job.batch, seed=job.seed, device=self.device, train=job.train
        )
        self.module = without_dropout(module)
        # First, since a module that keeps a tensor of its last run cannot be copied any more.
        self.oracle = oracle(self.module, self.inputs, train=job.train, seed=job.seed)
        self.expected = observe(
            self.module, self.module, self.inputs, train=job.train, seed=job.seed
        )
        self.compiled: dict[str, Callable[..., Any]] = {}

    def compile(self) -> dict[str, Any]:
        """Compiles both ways and compares each with eager."""
        ours = self._compile(PASSWRIGHT)
        plans = [entry["plan"] for entry in ours["plans"]]
        equal = bool(plans) and not any(plan["steps"] for plan in plans)
        skip = equal and self.job.skip_equal
        return {
            "batch": self.job.batch or self.workload.batch,
            PASSWRIGHT: ours,
            DEFAULT: None if skip else self._compile(DEFAULT),
        }

    def _shaken(self) -> list[Any]:
        from passwright.training.agreement import shaken

        return shaken(self.module, self.inputs, train=self.job.train, seed=self.job.seed)

    def _compile(self, name: str) -> dict[str, Any]:
        import torch

        from passwright.scheduler.inductor import cold_cache
        from passwright.scheduler.kernel_counts import capture_kernels
        from passwright.scheduler.optimize import collect_plans
        from passwright.training.agreement import agreement, observe

        ours = name == PASSWRIGHT
        how: dict[str, Any] = {"backend": "passwright", "options": self.job.options} if ours else {}
        compiled = torch.compile(self.module, **how)
        step = self._step(compiled)
        with (
            cold_cache(Path(self.job.directory)),
            capture_kernels() as kernels,
            collect_plans() as plans,  # none come from default compile
            _collected_warnings() as warnings,
            _frozen_heap(),
        ):
            wall, cpu = time.perf_counter(), _cpu_seconds()
            step()
            if self.device.type == "cuda":
                torch.cuda.synchronize()
            seconds = {"wall": time.perf_counter() - wall, "cpu": _cpu_seconds() - cpu}
        self.compiled[name] = compiled
        actual = observe(
            self.module, compiled, self.inputs, train=self.job.train, seed=self.job.seed
        )
        return {
            "seconds": seconds,
            "kernels": [asdict(graph) for graph in kernels],
            "agreement": asdict(agreement(self.expected, actual, self.oracle, self._shaken)),
            "plans": [
                {
                    "plan": json.loads(applied.plan.to_json()),
                    "predicted": asdict(applied.plan.predicted),
                    "path": str(applied.path),
                    "stored": applied.stored,
                    "seconds": applied.seconds,
                }
                for applied in plans
            ],
            "warnings": warnings,
        }

    def measure(self) -> dict[str, Any] | None:
        """Interleaved blocks of both; the raw times, and the gain with its interval. None where there
        is but one."""
        if DEFAULT not in self.compiled:
            return None
        from passwright.scheduler.timing import compare

        comparison = compare(
            {name: self._step(self.compiled[name]) for name in (DEFAULT, PASSWRIGHT)},
            baseline=DEFAULT,
            device=self.device,
            time_limit=self.job.measure_seconds,
            seed=self.job.seed,
        )
        result: dict[str, Any] = json.loads(comparison.to_json())
        return result

    def _step(self, compiled: Callable[..., Any]) -> Callable[[], object]:
        from passwright.scheduler.timing import inference_step, training_step

        if self.job.train:
            return training_step(compiled, self.inputs, seed=self.job.seed)
        return inference_step(compiled, self.inputs)


@contextmanager
def _frozen_heap() -> Iterator[None]:
    """What an earlier compile left alive does not slow the garbage collector in this one."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


@contextmanager
def _collected_warnings() -> Iterator[list[str]]:
    """What Passwright warns of meanwhile, which would not be seen in a worker's log."""
    messages: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: messages.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("passwright")
    logger.addHandler(handler)
    try:
        yield messages
    finally:
        logger.removeHandler(handler)


def _cpu_seconds() -> float:
    """Of this process and of the compilers that it has run."""
    return sum(os.times()[:4])

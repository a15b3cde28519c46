"""One row of the demo, in a process of its own: compile both ways, compare, then wait to measure.

A worker compiles as soon as it starts, says so, and measures when told to, which is when nothing else
runs. Both compiles start cold: a cache directory each, and the parts of torch that remember earlier
compiles emptied. Which of the two goes first alternates from row to row.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

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
    options: dict[str, Any] = field(default_factory=dict)
    passwright_first: bool = False
    measure_seconds: float = 3.0

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
    """The life of a worker process. Sends {"compiled": ...}, awaits a word, sends {"measured": ...};
    {"failed": why} in place of either."""
    os.makedirs(job.directory, exist_ok=True)
    log = os.open(job.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    # Libraries and compilers print; the table is not the place for that.
    os.dup2(log, 1)
    os.dup2(log, 2)
    try:
        prepared = Prepared(job)
        connection.send({"compiled": prepared.compile()})
        connection.recv()
        connection.send({"measured": prepared.measure()})
    except (EOFError, KeyboardInterrupt):  # nobody waits for the result any more
        sys.exit(1)
    except Exception as error:
        import traceback

        traceback.print_exc()
        lines = str(error).strip().splitlines()
        connection.send({"failed": f"{type(error).__name__}: {lines[0] if lines else ''}"})


class Prepared:
    """The model with its inputs, and what eager makes of them."""

    def __init__(self, job: Job) -> None:
        import torch

        from passwright.scheduler.inductor import warm_toolchain
        from passwright.training import workloads
        from passwright.training.agreement import observe, oracle, without_dropout

        torch.set_num_threads(job.threads)
        self.job = job
        self.device = torch.device(job.device)
        warm_toolchain(str(self.device))
        self.workload = workloads.find(job.model)
        module, self.inputs = self.workload.build(
            batch=job.batch, seed=job.seed, device=self.device, train=job.train
        )
        self.module = without_dropout(module)
        self.expected = observe(
            self.module, self.module, self.inputs, train=job.train, seed=job.seed
        )
        self.oracle = oracle(self.module, self.inputs, train=job.train, seed=job.seed)
        self.compiled: dict[str, Callable[..., Any]] = {}

    def compile(self) -> dict[str, Any]:
        """Compiles both ways and compares each with eager."""
        found: dict[str, Any] = {"batch": self.job.batch or self.workload.batch}
        names = [DEFAULT, PASSWRIGHT]
        for name in reversed(names) if self.job.passwright_first else names:
            found[name] = self._compile(name)
        return found

    def _compile(self, name: str) -> dict[str, Any]:
        import torch

        from passwright.scheduler.inductor import capture_kernels, cold_cache
        from passwright.scheduler.optimize import collect_plans
        from passwright.training.agreement import agreement, observe

        ours = name == PASSWRIGHT
        how: dict[str, Any] = {"backend": "passwright", "options": self.job.options} if ours else {}
        plan_directory = Path(self.job.options.get("plan_directory", ""))
        stored = set(plan_directory.glob("*.json")) if ours else set()
        compiled = torch.compile(self.module, **how)
        step = self._step(compiled)
        with (
            cold_cache(Path(self.job.directory)),
            capture_kernels() as kernels,
            collect_plans() if ours else nullcontext([]) as plans,
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
            "agreement": asdict(agreement(self.expected, actual, self.oracle)),
            "plans": [
                {"path": str(path), "stored": path in stored, "plan": json.loads(plan.to_json())}
                for plan, path in plans
            ],
        }

    def measure(self) -> dict[str, Any]:
        """Interleaved blocks of both; the raw times, and the gain with its interval."""
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


def _cpu_seconds() -> float:
    """Of this process and of the compilers that it has run."""
    return sum(os.times()[:4])

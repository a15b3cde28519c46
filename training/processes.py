"""Worker processes of the demo and of the benchmark: starting, hearing and ending them, and getting
one ready to compile."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

#: PR_SET_PDEATHSIG of `prctl(2)`.
_SET_DEATH_SIGNAL = 1
#: Seconds within which a worker that was asked to stop must do so.
_GRACE = 20.0
#: What Python takes the filters of warnings from.
_WARNINGS = "PYTHONWARNINGS"
#: A worker that has nothing left to do must have ended by itself within this.
_GOODBYE = 5.0


class Logged(Protocol):
    """What a worker is started with names the file that holds what it and its compilers print."""

    @property
    def log(self) -> Path: ...


J = TypeVar("J", bound=Logged)


class Worker(Protocol):
    """A started job: its messages come over `connection`."""

    connection: Connection

    def stop(self, *, at_once: bool = False) -> None:
        """Ends it; unless `at_once`, one that has nothing left to do ends by itself."""

    def last_words(self) -> str:
        """What it left behind, where it ended without a message."""


class ProcessWorker(Generic[J]):
    """A job in a process of its own."""

    def __init__(self, context: Any, work: Callable[[J, Connection], None], job: J) -> None:
        self._job = job
        self.connection, theirs = context.Pipe()
        self._process = context.Process(target=work, args=(job, theirs), daemon=True)
        self._process.start()
        theirs.close()

    def stop(self, *, at_once: bool = False) -> None:
        """Ends it with the compilers that it has started."""
        with suppress(OSError):
            self.connection.send("goodbye")
        self.connection.close()
        if not at_once:
            self._process.join(_GOODBYE)
        if self._process.is_alive():
            self._signal(signal.SIGTERM)
            self._process.join(_GRACE)
        if self._process.is_alive():
            self._signal(signal.SIGKILL)
            self._process.join()

    def _signal(self, number: signal.Signals) -> None:
        pid = self._process.pid
        with suppress(ProcessLookupError):
            if pid is not None and os.getpgid(pid) == pid:  # it has made itself a group
                os.killpg(pid, number)
            else:
                self._process.kill()

    def last_words(self) -> str:
        self._process.join(_GRACE)
        code = self._process.exitcode
        how = f"the worker ended with exit code {code}"
        if code is not None and code < 0:
            how = f"the worker was killed by signal {-code}"
        try:
            lines = self._job.log.read_text(encoding="utf-8", errors="replace").split("\n")
        except OSError:
            lines = []
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return f"{how}: {last}" if last else how


def spawning() -> Any:
    """The context for worker processes, which start afresh: threads and CUDA do not survive a fork.

    Workers that are killed leave semaphores behind, which Python's tracker frees; its warning of each run
    about that is of no use to anybody.
    """
    before = os.environ.get(_WARNINGS)
    os.environ[_WARNINGS] = "ignore:resource_tracker:UserWarning"
    try:
        resource_tracker.ensure_running()
    finally:
        if before is None:
            del os.environ[_WARNINGS]
        else:
            os.environ[_WARNINGS] = before
    return multiprocessing.get_context("spawn")


def received(worker: Worker) -> dict[str, Any]:
    """The worker's next message; {"failed": why, "ends": True} where it has died."""
    try:
        message: dict[str, Any] = worker.connection.recv()
    except (EOFError, OSError):
        return {"failed": worker.last_words(), "ends": True}
    return message


def cores() -> int:
    """CPU cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)  # not on macOS
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def into_log(log: Path) -> None:
    """Libraries and compilers print; a table is not the place for that. The process becomes a group
    of its own, so that it can be ended together with the compilers that it runs."""
    os.setpgrp()
    log.parent.mkdir(parents=True, exist_ok=True)
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(file, 1)
    os.dup2(file, 2)


def end_with_parent() -> None:
    """This process ends when the one that started it does, however that ends. On Linux; elsewhere it goes
    on until it has something to say."""
    if not sys.platform.startswith("linux"):
        return
    import ctypes

    ctypes.CDLL(None).prctl(_SET_DEATH_SIGNAL, signal.SIGKILL)


def warm_up(device: str, *, threads: int, backend: Any = "inductor") -> None:
    """Imports what compiling imports, and compiles a small model with the usual kinds of op, so that
    the first compile that is timed does not pay for what only the first pays. Done once a process.
    `backend` is one of `torch.compile` that comes to Inductor.
    """
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1" if device == "cpu" else "4")
    import torch

    from passwright.scheduler.inductor import fresh_cache, warm_toolchain

    torch.set_num_threads(threads)
    if _warm:
        return
    _warm.append(device)
    warm_toolchain(device, backend)
    table, layer = torch.nn.Embedding(8, 8, device=device), torch.nn.Linear(16, 16, device=device)

    def model(ids: torch.Tensor) -> torch.Tensor:
        joined = torch.cat([table(ids), table(ids + 1)], dim=1)
        x = torch.nn.functional.layer_norm(layer(joined), [16])
        first, second = torch.split(x, 8, dim=1)
        return torch.relu(first) * torch.softmax(second, dim=1)

    ids = torch.arange(4, device=device)
    with fresh_cache(), torch.no_grad():
        torch.compile(model, backend=backend)(ids)


_warm: list[str] = []

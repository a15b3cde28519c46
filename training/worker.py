"""A worker process: imports torch once, and then answers one question after another."""

from __future__ import annotations

import gc
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from passwright.training.device_lock import DeviceLock
from passwright.training.processes import end_with_parent, into_log, warm_up

if TYPE_CHECKING:
    import torch
    from torch import fx


@dataclass(frozen=True)
class Seat:
    """A place for a worker: the run's directory, and what is the worker's own."""

    directory: str
    number: int
    device: str
    threads: int

    @property
    def log(self) -> Path:
        return Path(self.directory) / f"worker-{self.number}.txt"


def seats(directory: str, jobs: int, devices: Sequence[str], threads: int) -> list[Seat]:
    """So many seats, which take the devices in turn."""
    return [Seat(directory, n, devices[n % len(devices)], threads) for n in range(jobs)]


@dataclass(frozen=True)
class Question:
    """`kind` is the method of `Answers` to call, with the arguments."""

    kind: str
    task: Any
    arguments: tuple[Any, ...] = ()


def serve(seat: Seat, connection: Connection, make: Callable[[Seat], Respondent]) -> None:
    """Answers one question after the other: for each {"answer": ...}, or {"failed": why}; with "ends"
    where the worker is of no more use."""
    into_log(seat.log)
    end_with_parent()
    try:
        answers = make(seat)
        while isinstance(question := connection.recv(), Question):
            message = _answered(answers, question)
            ends = answers.unusable()
            connection.send(message | ({"ends": True} if ends else {}))
            if ends:
                return
    except (EOFError, BrokenPipeError, KeyboardInterrupt):  # nobody waits for the answer any more
        sys.exit(1)


def _answered(answers: Respondent, question: Question) -> dict[str, Any]:
    try:
        return {"answer": getattr(answers, question.kind)(question.task, *question.arguments)}
    except Exception as error:
        import traceback

        from passwright.scheduler.commands.console import cause

        traceback.print_exc()
        return {"failed": cause(error)}
    finally:
        answers.tidy_up()


def on_device(seat: Seat) -> torch.device:
    """The seat's device, and this process made ready to compile for it."""
    import torch

    directory = Path(seat.directory)
    # One for all workers; of the user's own, several runs can profit.
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(directory / "cache"))
    device = torch.device(seat.device)
    torch.set_num_threads(seat.threads)
    if device.type == "cpu":
        os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    else:
        # Imported before anybody has to wait for it.
        import torch._inductor.compile_fx

        from passwright.scheduler.inductor import compile_with_inductor

        lock = lock_of(seat)

        def sharing(gm: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
            """Compiling takes ten seconds, and all others would wait until they can measure."""
            lock.release()
            compiled = compile_with_inductor(gm, inputs)

            def run(*arguments: Any) -> Any:
                lock.share()
                return compiled(*arguments)

            return run

        with lock.shared():
            if device.index is not None:
                # Or what waits for the device waits for the first one, and takes memory there.
                torch.cuda.set_device(device)
            warm_up(seat.device, threads=seat.threads, backend=sharing)
        # What is there by now stays; looking through it again takes most of each collection of garbage.
        gc.collect()
        gc.freeze()
    return device


def lock_of(seat: Seat) -> DeviceLock:
    """Of a GPU one for all processes of this user, whichever way they name it; of the CPU one for the run,
    since nobody can keep others from that."""
    if seat.device == "cpu":
        return DeviceLock(Path(seat.directory), seat.device)
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    place = Path(tempfile.gettempdir()) / f"passwright-locks-{os.getuid()}-{visible}"
    place.mkdir(parents=True, exist_ok=True)
    return DeviceLock(place, "cuda:0" if seat.device == "cuda" else seat.device)


def forget() -> None:
    """Forgets what was compiled, so that the next compile starts afresh."""
    import torch

    torch._dynamo.reset()
    free(torch.device("cuda" if torch.cuda.is_available() else "cpu"))


def free(device: torch.device) -> None:
    """Gives back the memory of a GPU that nothing needs any more."""
    import torch

    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def is_unusable(device: torch.device) -> bool:
    """The process can do nothing more on its device: an illegal access ends a CUDA context."""
    import torch

    if device.type == "cuda":
        try:
            torch.cuda.synchronize()
        except Exception:
            return True
    return False


class Respondent(Protocol):
    """Who answers: its methods are the kinds of question."""

    def tidy_up(self) -> None:
        """After each answer."""

    def unusable(self) -> bool:
        """The process can do nothing more."""

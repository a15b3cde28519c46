"""One device for many processes: all may use it together, and one at a time has it alone to measure.

A file lock in the run's directory, shared or exclusive, so that a process that dies gives it back.
Who wants the device alone waits behind a gate for those that use it, while new ones wait behind the
gate for him; otherwise he might wait for ever.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Protocol


class Turns(Protocol):
    """Who may use the device when."""

    def share(self) -> None: ...

    def release(self) -> None: ...

    def alone(self) -> AbstractContextManager[None]: ...

    def shared(self) -> AbstractContextManager[None]: ...


class OwnDevice:
    """A device that nobody else uses: there is nothing to wait for."""

    def share(self) -> None: ...

    def release(self) -> None: ...

    def alone(self) -> AbstractContextManager[None]:
        return nullcontext()

    def shared(self) -> AbstractContextManager[None]:
        return nullcontext()


class DeviceLock:
    """The lock as one process sees it. Not for several threads."""

    def __init__(self, directory: Path, device: str = "") -> None:
        name = device.replace(":", "-")
        self._gate, self._device = (directory / f"{what}{name}.lock" for what in ("gate", "device"))
        self._held: int | None = None
        #: Seconds that this process has waited for others so far.
        self.waited = 0.0

    def share(self) -> None:
        """From now on this process may use the device; nothing is done if it may already."""
        if self._held is None:
            self._take(fcntl.LOCK_SH)

    def release(self) -> None:
        """From now on it may not."""
        if self._held is not None:
            os.close(self._held)
            self._held = None

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Nobody else uses the device meanwhile; afterwards this process does not either."""
        self.release()
        self._take(fcntl.LOCK_EX)
        try:
            yield
        finally:
            self.release()

    @contextmanager
    def shared(self) -> Iterator[None]:
        """This process uses the device meanwhile."""
        self.share()
        try:
            yield
        finally:
            self.release()

    def _take(self, kind: int) -> None:
        begin = time.perf_counter()
        gate = _open(self._gate)
        try:
            fcntl.flock(gate, fcntl.LOCK_EX)
            device = _open(self._device)
            try:
                fcntl.flock(device, kind)
            except BaseException:
                os.close(device)
                raise
            self._held = device
        finally:
            os.close(gate)
            self.waited += time.perf_counter() - begin


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)

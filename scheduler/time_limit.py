"""An end to what takes too long: an exception in the running thread after some seconds."""

from __future__ import annotations

import ctypes
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from passwright.passes.errors import TimeLimit


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raises TimeLimit in this thread after so many seconds, unless the block is done.

    In the main thread an alarm interrupts waiting, too; where somebody else has set one, and in other
    threads (autograd's), the exception comes between two instructions of Python.
    """
    main = threading.current_thread() is threading.main_thread()
    if main and signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0):
        with _by_alarm(seconds):
            yield
    else:
        with _by_exception(seconds):
            yield


@contextmanager
def _by_alarm(seconds: float) -> Iterator[None]:
    def ring(_signal: int, _frame: FrameType | None) -> None:
        raise TimeLimit(f"took longer than {seconds:g} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def _by_exception(seconds: float) -> Iterator[None]:
    thread = threading.get_ident()
    lock, done = threading.Lock(), False

    def ring() -> None:
        with lock:
            if not done:
                _raise_in(thread, TimeLimit)

    timer = threading.Timer(seconds, ring)
    timer.daemon = True
    timer.start()
    try:
        yield
    except TimeLimit as error:
        raise TimeLimit(f"took longer than {seconds:g} s") from error
    finally:
        with lock:
            done = True
            _raise_in(thread, None)  # one that is on its way does not arrive any more
        timer.cancel()


def _raise_in(thread: int, error: type[BaseException] | None) -> None:
    raised = None if error is None else ctypes.py_object(error)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), raised)

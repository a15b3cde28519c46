"""How many threads torch computes with while a graph is planned."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread

import torch


@contextmanager
def one_thread() -> Iterator[None]:
    """For many small ops of the calling thread. Shared among threads they are hardly faster, and where the
    compiler's own processes want the same cores, threads that wait for each other take many times as long.

    What other threads of the program compute is shared as before. Does nothing where torch was built with
    another parallel backend than OpenMP, whose threads cannot be as many as before again.
    """
    threads = torch.get_num_threads()
    if threads == 1 or not _has_openmp():
        yield
        return
    torch.set_num_threads(1)
    try:
        # Of OpenMP that was the number of this thread. It is also what threads take that begin to compute
        # from now on, for good: these are to take the usual one, which another thread can say.
        others = Thread(target=torch.set_num_threads, args=(threads,))
        others.start()
        others.join()
        yield
    finally:
        torch.set_num_threads(threads)


@functools.cache
def _has_openmp() -> bool:
    return "parallel backend: OpenMP" in torch.__config__.parallel_info()

"""How many threads torch computes with while a graph is planned."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def one_thread() -> Iterator[None]:
    """For many small ops. Shared among threads they are hardly faster, and where the compiler's own
    processes want the same cores, threads that wait for each other take many times as long."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)

"""Python's collector of cyclic garbage, and when it is better left off."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_collection() -> Iterator[None]:
    """Rehearsals make many short-lived objects. They would set off a collection of everything that torch
    holds, which takes a quarter of a second, and of which they are no part."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()

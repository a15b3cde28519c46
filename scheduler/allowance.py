"""How much time tuning has left, and whether that is enough for one variant more."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

#: Seconds that measuring variants takes at least.
ROUND = 1.0
#: Times as long as the slowest variant so far that the next may take.
_MARGIN = 1.5


@dataclass
class Allowance:
    """The time that tuning may take, and how long a variant took to plan and to compile, at most."""

    deadline: float = math.inf
    slowest: float = 0.0

    @contextmanager
    def spent(self) -> Iterator[None]:
        """While a variant is made."""
        start = time.monotonic()
        try:
            yield
        finally:
            self.slowest = max(self.slowest, time.monotonic() - start)

    @property
    def left(self) -> float:
        """Seconds."""
        return self.deadline - time.monotonic()

    def has_room(self, measuring: float = 0.0) -> bool:
        """Whether there is time to make another variant and then to measure all, which takes so many
        seconds."""
        return self.left > _MARGIN * self.slowest + ROUND + measuring

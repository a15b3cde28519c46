"""An estimate of a graph's time by what takes it, and the gain between two estimates with its
uncertainty.

Two kinds of error are told apart. What the device needs for a launch, an operation or a byte may be
off for all kernels alike: that changes the gain only as far as one form of the graph has more of it
than the other. And each kernel may be off by itself: that averages out over many kernels, and does
not concern those that both forms have.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

from passwright.scheduler.device_table import KNOWN_ERROR
from passwright.scheduler.gain import Interval

#: One standard error of a single kernel, beside that of the device's figures, as a part of its time. It is
#: what 900 products on an H200 showed (data/devices/h200.json: half of them within 15 %).
_KERNEL_ERROR = 0.2
#: Standard errors in half a 90 % interval of a normal distribution.
NINETY = 1.645


class Seconds(NamedTuple):
    """What one kernel takes: to start it, to compute, to move memory."""

    launch: float = 0.0
    arithmetic: float = 0.0
    traffic: float = 0.0

    @property
    def total(self) -> float:
        return self.launch + self.arithmetic + self.traffic

    def plus(self, other: Seconds) -> Seconds:
        return Seconds(*map(float.__add__, self, other))

    def times(self, factor: float) -> Seconds:
        return Seconds(*(factor * part for part in self))


@dataclass(frozen=True)
class Estimate:
    """One pass over the graph: forward, and backward in training.

    `parts` holds what every kernel takes under its first node, `call` the seconds of calling it all.
    `error`: one standard error of the device's figures, as a part of them.
    """

    parts: dict[Any, Seconds]
    kernels: int
    call: float = 2e-6
    error: float = KNOWN_ERROR

    @property
    def seconds(self) -> float:
        return self.call + sum(part.total for part in self.parts.values())


def gain_between(before: Estimate, after: Estimate) -> Interval:
    """log(before / after) of two forms of one graph, with a 90 % interval."""
    old, new = _columns(before), _columns(after)
    earlier, later = sum(old), sum(new)
    error = before.error
    mean = math.log(earlier / later)
    # The same gain with one of the device's figures a standard error higher.
    variance = sum(
        (math.log((earlier + error * was) / (later + error * is_now)) - mean) ** 2
        for was, is_now in zip(old, new, strict=True)
    )
    gone = added = 0.0
    for node in before.parts.keys() | after.parts.keys():
        nothing = Seconds()
        change = after.parts.get(node, nothing).total - before.parts.get(node, nothing).total
        if change < 0:
            gone += change**2
        else:
            added += change**2
    variance += _KERNEL_ERROR**2 * (gone / earlier**2 + added / later**2)
    half = NINETY * math.sqrt(variance)
    return Interval(round(mean, 6), round(mean - half, 6), round(mean + half, 6))


def _columns(estimate: Estimate) -> tuple[float, float, float]:
    """Seconds for launches, the call among them, for arithmetic and for traffic."""
    launch, arithmetic, traffic = estimate.call, 0.0, 0.0
    for part in estimate.parts.values():
        launch += part.launch
        arithmetic += part.arithmetic
        traffic += part.traffic
    return launch, arithmetic, traffic

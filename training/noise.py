"""How far two compiles of one graph may differ, though they compute the same.

The interval of a gain says how well two compiled functions were told apart in one process. Compiled anew,
the same graph is other code in other memory, and may differ by several times that.
No record can know by itself, since its plan was compiled once. Default compile is compiled twice for each
workload; all these pairs together say what is usual, and a gain below that is no gain.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from passwright.training.conformal import conformal_quantile
from passwright.training.records import Record, Status
from passwright.training.trust import is_pair

#: Of so many pairs, of graphs that take about as long, this share lies within the floor: somewhat more than
#: the 95 % that is promised, since pairs nearby are not quite alike.
_NEIGHBOURS, _COVERAGE = 99, 0.96


@dataclass(frozen=True)
class Pair:
    """Default compile against itself, compiled again."""

    workload: str
    #: Of one call, logarithm of seconds.
    time: float
    difference: float


class Noise:
    """What is usual on one device."""

    def __init__(self, pairs: Sequence[Pair]) -> None:
        self._pairs = sorted(pairs, key=lambda pair: pair.time)

    @classmethod
    def of(cls, records: Iterable[Record]) -> Noise:
        """From records of one device that have their raw times."""
        return cls([pair for record in records if (pair := pair_of(record)) is not None])

    def floor(self, workload: str, time: float) -> float:
        """The difference that two compiles of a graph that takes exp(time) seconds seldom exceed; 0 where
        there are no pairs of other workloads.

        The quantile is the one that a new pair, drawn as these are, exceeds in no more than 4 % of cases
        (`conformal_quantile`); of under 24 pairs it is the largest.
        """
        others = [pair for pair in self._pairs if pair.workload != workload]
        near = sorted(others, key=lambda pair: abs(pair.time - time))[:_NEIGHBOURS]
        if not near:
            return 0.0
        return conformal_quantile([abs(pair.difference) for pair in near], _COVERAGE)


def pair_of(record: Record) -> Pair | None:
    """The pair that a record of doing nothing is; None for any other."""
    if not is_pair(record) or record.gain is None:
        return None
    time = default_time(record)
    return None if time is None else Pair(record.workload, time, record.gain)


def default_time(record: Record) -> float | None:
    """Logarithm of the seconds that default compile took; None without raw times."""
    blocks = [*record.default_blocks, *record.again_blocks]
    return math.log(statistics.median(blocks)) if blocks and min(blocks) > 0 else None


def with_floors(records: Iterable[Record]) -> list[Record]:
    """The same records, each with the floor of its device where that is higher than its own."""
    records = list(records)
    by_device: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        by_device[record.device].append(record)
    noise = {device: Noise.of(found) for device, found in by_device.items()}
    known: dict[tuple[str, str, float], float] = {}
    found = []
    for record in records:
        time = default_time(record)
        if record.status != Status.MEASURED or record.floor is None or time is None:
            found.append(record)
            continue
        key = (record.device, record.workload, round(time, 2))
        if key not in known:
            known[key] = noise[record.device].floor(record.workload, key[2])
        found.append(replace(record, floor=max(record.floor, known[key])))
    return found

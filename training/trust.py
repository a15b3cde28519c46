"""How far records can be trusted: default compile against itself, and the same plan in two runs."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from passwright.training.model_plan import NOTHING
from passwright.training.records import Record, Status


@dataclass(frozen=True)
class Trust:
    """Counts, and how many of them are as they should be."""

    #: Default compile, compiled twice from the start and measured against itself.
    pairs: int
    #: Of those, within the noise floor of their run.
    inside: int
    #: The same plan in two runs, in both outside the floor.
    repeated: int
    #: Of those, on the same side.
    agree: int


def trust(records: Iterable[Record]) -> Trust:
    """Counts both."""
    measured = [r for r in records if r.status == Status.MEASURED and r.gain is not None]
    selves = [r for r in measured if is_pair(r)]
    repeats = list(_repeats(r for r in measured if not is_pair(r) and not _tie(r)))
    return Trust(
        pairs=len(selves),
        inside=sum(_tie(r) for r in selves),
        repeated=len(repeats),
        agree=sum(one * other > 0 for one, other in repeats),
    )


def is_pair(record: Record) -> bool:
    """Whether it tells default compile from itself, compiled anew."""
    return record.proposed_by == NOTHING and record.status == Status.MEASURED


def _tie(record: Record) -> bool:
    return record.floor is not None and abs(record.gain or 0.0) <= record.floor


def _repeats(records: Iterable[Record]) -> Iterator[tuple[float, float]]:
    """Gains of the same plan in two runs."""
    by_key: dict[str, dict[str, float]] = defaultdict(dict)
    for record in records:
        by_key[record.key].setdefault(record.run, record.gain or 0.0)
    for gains in by_key.values():
        yield from itertools.combinations(gains.values(), 2)

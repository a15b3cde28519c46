"""What a gain model learns from, computed from the raw records of one graph.

Raw records say how a whole plan did against doing nothing. Gains are logarithms, so they telescope: what
one step adds is the gain with it minus the gain without it. Everything here is pure: the same records
give the same labels, and a new kind of label needs no new measurement.

Prefix differences, ablations and gain-to-go (the best continuation, as in Halide's and Tiramisu's learned
searches over schedules) look at a step in different contexts: after what came before it, within a finished
plan, and with what it makes possible.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from passwright.scheduler.comparison import Gain
from passwright.training.plan_text import Placed, steps_of
from passwright.training.records import Record, Status

#: In the order in which they are applied; those of a model's first graph come first.
Steps = tuple[Placed, ...]


@dataclass(frozen=True)
class Label:
    """log(time before / time after), with its 95 % interval and the noise floor of its measurement."""

    gain: float
    lower: float
    upper: float
    floor: float = 0.0

    @property
    def is_tie(self) -> bool:
        """It cannot be told from no change: a pair of such is masked, not ranked."""
        return Gain(self.gain, self.lower, self.upper).is_tie(self.floor)

    def minus(self, other: Label) -> Label:
        """The difference of two measurements, their errors taken as independent.

        Where both come from one run they share a baseline, and the true interval is narrower.
        """
        return Label(
            self.gain - other.gain,
            self.gain - other.gain - math.hypot(self.gain - self.lower, other.upper - other.gain),
            self.gain - other.gain + math.hypot(self.upper - self.gain, other.gain - other.lower),
            math.hypot(self.floor, other.floor),
        )


#: Doing nothing, and code that is the same byte for byte.
ZERO = Label(0.0, 0.0, 0.0)


@dataclass(frozen=True)
class Difference:
    """What `steps` add in the context of the plan `without` them: `label` of `full` minus that."""

    without: Steps
    full: Steps
    steps: Steps
    label: Label


def label_of(record: Record) -> Label | None:
    """The whole plan's label; None for a censored record, which has no gain."""
    if record.status == Status.SAME_CODE:
        return ZERO
    if record.status != Status.MEASURED or record.gain is None:
        return None
    lower = -math.inf if record.lower is None else record.lower
    upper = math.inf if record.upper is None else record.upper
    return Label(record.gain, lower, upper, record.floor or 0.0)


def by_graph(records: Iterable[Record]) -> list[list[Record]]:
    """Records that may be compared, together: of one workload and its graph, at the same levels, on one
    kind of device. In the order in which the graphs first appear."""
    found: dict[tuple[str, ...], list[Record]] = defaultdict(list)
    for record in records:
        found[record.workload, record.graph, record.levels, record.device].append(record)
    return list(found.values())


def measured(records: Iterable[Record]) -> dict[Steps, Label]:
    """The label of every sequence of steps, shortest first; the empty one is always there, with zero.

    Repetitions are averaged, and so are their bounds: what one compile differs from the next is not in
    the interval of either, so several do not make it narrower.
    """
    found: dict[Steps, list[Label]] = defaultdict(list)
    for record in records:
        label = label_of(record)
        if label is not None:
            found[steps_of_plan(record.plan)].append(label)
    # By definition, and not by a measurement of default compile against itself.
    found[()] = [ZERO]
    return {steps: _mean(found[steps]) for steps in sorted(found, key=lambda s: (len(s), s))}


def prefix_differences(records: Iterable[Record]) -> list[Difference]:
    """For every sequence what its last steps add to the longest measured sequence that it begins with.

    That is one step where all prefixes were measured, and the whole plan where none was.
    """
    known = measured(records)
    found = []
    for full, label in known.items():
        for length in reversed(range(len(full))):
            if full[:length] in known:
                without = full[:length]
                found.append(Difference(without, full, full[length:], label.minus(known[without])))
                break
    return found


def ablations(records: Iterable[Record]) -> list[Difference]:
    """For every sequence and every step of it but the last, where the rest alone was measured as well:
    what the step adds to the rest. Without the last step it is a prefix difference."""
    known = measured(records)
    found = []
    for full, label in known.items():
        for number in range(len(full) - 1):
            without = full[:number] + full[number + 1 :]
            if without in known:
                step = full[number : number + 1]
                found.append(Difference(without, full, step, label.minus(known[without])))
    return found


def gains_to_go(records: Iterable[Record]) -> list[Difference]:
    """For every sequence the best measured continuation minus it. To stop is a continuation: no gain-to-go
    is surely negative.

    The best is that of the highest lower bound: the highest gain among many would mostly be the luckiest.
    """
    known = measured(records)
    best: dict[Steps, Steps] = {}
    for full, label in known.items():
        for without in _prefixes(full, known):
            if without not in best or label.lower > known[best[without]].lower:
                best[without] = full
    return [
        Difference(
            without,
            full,
            full[len(without) :],
            ZERO if full == without else known[full].minus(known[without]),
        )
        for without, full in sorted(best.items(), key=lambda item: (len(item[0]), item[0]))
    ]


@lru_cache(maxsize=100_000)
def steps_of_plan(plan: str) -> Steps:
    """The steps of a record's plan text. Raises PlanFormatError."""
    return steps_of(plan)


def _prefixes(full: Steps, known: Mapping[Steps, Label]) -> Iterator[Steps]:
    """The measured sequences that it begins with, itself included."""
    for length in range(len(full) + 1):
        if full[:length] in known:
            yield full[:length]


def _mean(labels: Sequence[Label]) -> Label:
    return Label(
        statistics.fmean(label.gain for label in labels),
        statistics.fmean(label.lower for label in labels),
        statistics.fmean(label.upper for label in labels),
        max(label.floor for label in labels),
    )

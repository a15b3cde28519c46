"""What a comparison of timings says: raw times, gains with intervals, and the noise around."""

from __future__ import annotations

import json
import math
import random
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

#: Below this many values, no resampling of their median covers 95 %: 1 - 2 ** (1 - 5) is 94 %.
BOOTSTRAP_FROM = 6
#: 97.5 % points of Student's t for 2 to 5 values (1 to 4 degrees of freedom).
_STUDENT = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776}
_RESAMPLES = 1000


@dataclass(frozen=True)
class Timing:
    """Raw times of one variant.

    `method`: "cuda-graph" (device time of graph replays), "cuda-event" (device time of eager
    launches) or "wall". `blocks`: seconds per call, one figure a block of `calls` calls.
    """

    name: str
    method: str
    blocks: tuple[float, ...]
    calls: int

    @property
    def median(self) -> float:
        """Seconds per call; NaN when nothing was measured."""
        return statistics.median(self.blocks) if self.blocks else math.nan


@dataclass(frozen=True)
class Gain:
    """log(baseline / variant): positive is faster. Infinite bounds mean that nothing is known."""

    median: float
    lower: float
    upper: float

    @property
    def speedup(self) -> float:
        """Baseline's time over the variant's."""
        return math.exp(self.median)

    @property
    def speedup_interval(self) -> tuple[float, float]:
        """95 % interval of `speedup`."""
        return math.exp(self.lower), math.exp(self.upper)

    def is_tie(self, floor: float = 0.0) -> bool:
        """Whether this cannot be told from no change: zero within the interval, or a gain within
        `floor`, the noise of the run.
        """
        return self.lower <= 0.0 <= self.upper or abs(self.median) <= floor

    def is_clear(self, floor: float = 0.0) -> bool:
        """Whether the whole interval lies on one side of the noise."""
        return self.lower > floor or self.upper < -floor


@dataclass(frozen=True)
class Comparison:
    """What one run of `compare` found.

    `timings` holds raw times by name, the baseline's included; `again` is the baseline's second
    appearance. `gains` holds the variants that were measured to the end, `censored` the others with
    the reason. `floor` is the largest |log ratio| that the baseline's interval against itself
    reaches. `notes` says what was measured otherwise than asked. On CUDA, `wall` is the same
    comparison by wall time with eager launches.
    """

    baseline: str
    timings: Mapping[str, Timing]
    gains: Mapping[str, Gain]
    floor: float
    stopped: str
    censored: Mapping[str, str] = field(default_factory=dict)
    again: Timing | None = None
    notes: tuple[str, ...] = ()
    wall: Comparison | None = None

    def to_json(self) -> str:
        """One JSON object; what is not finite is written as null."""
        return json.dumps(_finite(asdict(self)), sort_keys=True, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Comparison:
        """Reads what `to_json` wrote."""
        return cls._from_dict(json.loads(text))

    @classmethod
    def _from_dict(cls, data: Mapping[str, Any]) -> Comparison:
        again, wall = data["again"], data["wall"]
        return cls(
            baseline=data["baseline"],
            timings={name: _timing(value) for name, value in data["timings"].items()},
            gains={
                name: Gain(
                    value["median"],
                    -math.inf if value["lower"] is None else value["lower"],
                    math.inf if value["upper"] is None else value["upper"],
                )
                for name, value in data["gains"].items()
            },
            floor=math.inf if data["floor"] is None else data["floor"],
            stopped=data["stopped"],
            censored=dict(data["censored"]),
            again=again and _timing(again),
            notes=tuple(data["notes"]),
            wall=wall and cls._from_dict(wall),
        )


def _timing(data: Mapping[str, Any]) -> Timing:
    return Timing(data["name"], data["method"], tuple(data["blocks"]), data["calls"])


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def median_interval(values: Sequence[float], *, seed: str = "") -> Gain:
    """Median with its 95 % interval: percentile bootstrap, seeded, the same in any process.

    For fewer than six values, where a bootstrap of the median promises too much, Student's t;
    infinite for a single value.
    """
    middle, count = statistics.median(values), len(values)
    if count < BOOTSTRAP_FROM:
        spread = statistics.stdev(values) if count > 1 else math.inf
        half = _STUDENT[count] * spread / math.sqrt(count) if count > 1 else math.inf
        return Gain(middle, middle - half, middle + half)
    draw, half_way = random.Random(seed), count // 2
    medians = []
    for _ in range(_RESAMPLES):
        ordered = sorted(draw.choices(values, k=count))
        medians.append((ordered[half_way] + ordered[~half_way]) / 2)
    medians.sort()
    cut = int(0.025 * _RESAMPLES)
    return Gain(middle, medians[cut], medians[-1 - cut])

"""What settings of Inductor were measured to gain, a device a file."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from passwright.scheduler.gain import Interval

#: Fewest models behind an interval.
_LEAST = 3
#: Standard errors in half a 90 % interval by degrees of freedom, from 1 on (Student's t; "Student",
#: Biometrika 1908), and beyond.
_NINETY = (6.314, 2.92, 2.353, 2.132, 2.015, 1.943, 1.895, 1.86, 1.833)
_NINETY_OF_MANY = 1.812


@dataclass(frozen=True)
class Measured:
    """Of one choice in one mode: log gains over the same plan without it, a model each, and how
    many times the compile took, if that was measured."""

    gains: tuple[float, ...]
    compile_cost: float | None

    @property
    def interval(self) -> Interval:
        """Of one more model, 90 %."""
        mean = statistics.fmean(self.gains)
        freedom = len(self.gains) - 1
        errors = _NINETY[freedom - 1] if freedom <= len(_NINETY) else _NINETY_OF_MANY
        half = errors * statistics.stdev(self.gains) * math.sqrt(1 + 1 / len(self.gains))
        return Interval(round(mean, 6), round(mean - half, 6), round(mean + half, 6))


class ChoiceGains:
    """What was measured on one kind of device."""

    def __init__(self, rows: Iterable[Mapping[str, Any]] = ()) -> None:
        found: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
        for row in rows:
            if row["gain"] is not None:
                found.setdefault((row["choice"], row["mode"]), []).append(row)
        self._measured = {
            key: Measured(
                tuple(row["gain"] for row in rows),
                _geometric([row["compile_cost"] for row in rows if row["compile_cost"]]),
            )
            for key, rows in found.items()
        }

    def of(self, choice: str, *, training: bool) -> Measured | None:
        """None where too few models were measured."""
        found = self._measured.get((choice, "train" if training else "infer"))
        return found if found and len(found.gains) >= _LEAST else None


def _geometric(values: Sequence[float]) -> float | None:
    """The geometric mean, None of nothing."""
    return math.exp(statistics.fmean(map(math.log, values))) if values else None


@cache
def gains_on(device_name: str) -> ChoiceGains:
    """The measured gains on this device; none where it was never measured."""
    folder = resources.files("passwright.data") / "devices"
    files = folder.iterdir() if folder.is_dir() else ()
    for file in sorted(files, key=lambda file: file.name):
        if file.name.startswith("choices-"):
            data = json.loads(file.read_text(encoding="utf-8"))
            if data["device"] == device_name:
                return ChoiceGains(data["rows"])
    return ChoiceGains()

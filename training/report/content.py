"""What a report says, as frozen dataclasses: written to JSON and read back, whatever shows it.

The JSON is the whole report. A page and a table are made from it alone, so `--from FILE` shows again what
was measured once.
"""

from __future__ import annotations

import dataclasses
import json
import math
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from passwright.passes.errors import WorkloadError
from passwright.scheduler.gain import Interval

#: Counted up when a field is added, or means something else. Readers refuse what they do not know.
SCHEMA = 1
ReportT = TypeVar("ReportT")


@dataclass(frozen=True)
class About:
    """Where, when and from what a report was made."""

    #: The model by name, or the file of records.
    subject: str
    device: str
    #: cpu or cuda.
    kind: str
    date: str
    #: The command that makes it again.
    command: str
    seed: int = 0
    #: Of a CPU; 0 where nothing ran.
    threads: int = 1
    #: Name and version: torch, triton, python, passwright, ...
    versions: Mapping[str, str] = dataclasses.field(default_factory=dict)
    #: Settings that are not at their defaults.
    settings: Mapping[str, str] = dataclasses.field(default_factory=dict)
    #: Where the gain model lies, or "analytic".
    gain_model: str = ""


@dataclass(frozen=True)
class Found:
    """A measured log(time before / time after) with its 95 % interval; a bound is None where nothing is
    known. `floor`: what the run cannot tell from no change."""

    gain: float
    lower: float | None
    upper: float | None
    floor: float = 0.0
    #: Inductor's code is the same byte for byte: exactly zero, and nothing was timed.
    same_code: bool = False

    @property
    def is_tie(self) -> bool:
        """Cannot be told from no change."""
        low = -math.inf if self.lower is None else self.lower
        high = math.inf if self.upper is None else self.upper
        return low <= 0.0 <= high or abs(self.gain) <= self.floor


#: What became of a prediction.
AS_PREDICTED, UNCLEAR = "as predicted", "not clear"
FASTER, SLOWER, UNKNOWN = "faster than predicted", "slower than predicted", ""


def verdict(predicted: Interval | None, found: Found | None) -> str:
    """As predicted: the measured gain lies within the predicted interval. Missed, one way or the other: the
    two intervals lie apart, by more than the noise floor of the run. Else it is not clear."""
    if predicted is None or found is None:
        return UNKNOWN
    if predicted.lower <= found.gain <= predicted.upper:
        return AS_PREDICTED
    if found.lower is not None and found.lower > predicted.upper + found.floor:
        return FASTER
    if found.upper is not None and found.upper < predicted.lower - found.floor:
        return SLOWER
    return UNCLEAR


# ---- JSON


def to_json(report: Any) -> str:
    """One JSON document, keys sorted; what is not finite is null. The same report gives the same bytes."""
    return json.dumps(plain(report), indent=1, sort_keys=True, allow_nan=False) + "\n"


def plain(value: Any) -> Any:
    """Dataclasses as dicts, tuples as lists, and numbers that are not finite as None."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {item.name: plain(getattr(value, item.name)) for item in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def from_json(text: str, kinds: Mapping[str, type[ReportT]], where: str) -> ReportT:
    """Reads what `to_json` wrote, by its field `kind`. Raises WorkloadError for anything else."""
    try:
        data = json.loads(text)
        if data["schema"] != SCHEMA:
            raise WorkloadError(
                f"{where} is a report of schema {data['schema']}, and this version of Passwright reads"
                f" {SCHEMA}: make it anew with `passwright report`"
            )
        return typing.cast("ReportT", _read(kinds[data["kind"]], data))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise WorkloadError(
            f"{where} is no report ({type(error).__name__}: {error}); `passwright report ... --json FILE`"
            " writes one"
        ) from error


def _read(kind: Any, value: Any) -> Any:
    """A value of that type. Raises KeyError, TypeError or ValueError for another one."""
    origin, inside = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        [some] = [one for one in inside if one is not type(None)]
        return None if value is None else _read(some, value)
    if origin is tuple:
        if len(inside) == 2 and inside[1] is ...:
            return tuple(_read(inside[0], item) for item in value)
        return tuple(_read(one, item) for one, item in zip(inside, value, strict=True))
    if origin is not None:  # a mapping
        return {key: _read(inside[1], item) for key, item in value.items()}
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        given = {item.name for item in dataclasses.fields(kind)}
        read = {name: _read(hints[name], item) for name, item in value.items() if name in given}
        return typing.cast("Any", kind)(**read)
    if kind is float:
        kind = (int, float)
    if kind is Any:
        return value
    if not isinstance(value, kind):
        raise TypeError(f"{value!r} is not of {kind}")
    return value

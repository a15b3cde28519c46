"""What the benchmark found, as data: a row for each case and rival with raw times, to JSON and back."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from passwright.scheduler.comparison import Gain, median_interval
from passwright.training.bench.rivals import Rival
from passwright.training.demo_report import finite, read, write
from passwright.training.demo_table import verdict_text
from passwright.training.headroom.final import DEFAULT
from passwright.training.writable import unwritable

FORMAT = 1
#: Digits of a time that are kept.
_DIGITS = 5
NO_GPU = "CUDA graphs are not made on a CPU"


class State(StrEnum):
    """What became of one rival on one case."""

    OK = "ok"
    #: It did not compile, or not run.
    FAILED = "failed"
    #: Outputs or gradients are off where default compile's are not.
    WRONG = "wrong"
    #: Its compile took too long, or it is hopelessly slow.
    TIMEOUT = "timeout"
    #: It does not exist on this device.
    NOT_HERE = "not here"


@dataclass(frozen=True, order=True)
class Case:
    """A model as it is measured: all rivals of one case meet in one comparison."""

    suite: str
    model: str
    train: bool
    batch: int | None
    precision: str

    @property
    def phase(self) -> str:
        return "train" if self.train else "infer"

    @property
    def is_kernelbench(self) -> bool:
        return self.model.startswith("kernelbench:")

    @property
    def title(self) -> str:
        batch = f" x{self.batch}" if self.batch else ""
        precision = "" if self.precision == "fp32" else f" {self.precision}"
        return f"{self.model}{batch}{precision} {self.phase}"


@dataclass(frozen=True)
class Blocks:
    """Raw times of one rival: seconds a call, one figure a block; block n of all rivals of a case is of
    one round. `again`: of the baseline, its second appearance in each round.

    `method`: cuda-graph (replays of a captured graph), cuda-event (eager launches) or wall.
    """

    method: str
    seconds: tuple[float, ...]
    again: tuple[float, ...] = ()

    @property
    def median(self) -> float:
        """Seconds a call."""
        both = sorted((*self.seconds, *self.again))
        middle = len(both) // 2
        return both[middle] if len(both) % 2 else (both[middle - 1] + both[middle]) / 2

    @property
    def rounds(self) -> list[float]:
        """Log seconds of each round; of two appearances the mean, which cancels a steady drift."""
        pairs = zip(self.seconds, self.again or self.seconds, strict=False)
        return [(math.log(first) + math.log(second)) / 2 for first, second in pairs]


@dataclass(frozen=True)
class Row:
    """One rival on one case.

    `device`: time on the device, of the kernels alone (on a CPU, wall time). `wall`: with what the CPU
    does around them: eager launches, or Inductor's own CUDA graphs. `peak_bytes`: of one step, beyond
    parameters, inputs and gradients of the last. `kernels` are those in Inductor's code, `launches` those
    that a profiler saw in one step. `compile_seconds` hold the first step, backward included, with tuning
    and, of CUDA graphs, recording.
    """

    case: Case
    rival: str
    state: State
    why: str = ""
    device: Blocks | None = None
    wall: Blocks | None = None
    kernels: int | None = None
    launches: float | None = None
    peak_bytes: int | None = None
    compile_seconds: float | None = None
    #: Of ours: steps of all plans, and seconds of planning, which are part of the compile.
    steps: int | None = None
    planning_seconds: float | None = None
    agreement: Mapping[str, Any] | None = None
    #: Why there is no time on the device, or what of the compile is not as asked.
    note: str = ""
    #: The number of the GPU that the case fell to.
    gpu: int | None = None

    @property
    def is_ok(self) -> bool:
        return self.state is State.OK

    @property
    def seconds(self) -> float | None:
        """Of one call on the device."""
        return self.device.median if self.device else None


def gain(row: Row | None, over: Row | None, what: str = "device") -> Gain | None:
    """Log gain of `row` over another of its case, by time on the `device` or by `wall` time, with its 95 %
    interval over rounds; None unless both were measured, and alike."""
    if row is None or over is None or not (row.is_ok and over.is_ok):
        return None
    mine, theirs = getattr(row, what), getattr(over, what)
    if mine is None or theirs is None or mine.method != theirs.method:
        return None
    logs = [base - own for base, own in zip(theirs.rounds, mine.rounds, strict=False)]
    return median_interval(logs, seed=row.rival) if logs else None


def rows_of(case: Case, rivals: Sequence[Rival], answer: Mapping[str, Any]) -> list[Row]:
    """The rows of what a worker answered."""
    found = answer["rivals"]
    default = found.get(DEFAULT, {}).get("agreement")
    return [_row(case, rival, found.get(rival.name), default) for rival in rivals]


def failed(case: Case, rivals: Iterable[Rival], why: str, *, late: bool = False) -> list[Row]:
    """Rows of what was not answered."""
    state = State.TIMEOUT if late else State.FAILED
    return [Row(case, rival.name, state, why) for rival in rivals]


def _row(
    case: Case, rival: Rival, found: Mapping[str, Any] | None, default: Mapping[str, Any] | None
) -> Row:
    if found is None:
        return Row(case, rival.name, State.NOT_HERE, NO_GPU)
    known: dict[str, Any] = {name: found.get(name) for name in _FACTS}
    row = Row(
        case,
        rival.name,
        State.OK,
        device=blocks(found.get("device")),
        wall=blocks(found.get("wall")),
        note=found.get("note", ""),
        **known,
    )
    if "why" in found:
        late = found["why"].startswith(("TimeLimit", "time-out"))
        return replace(row, state=State.TIMEOUT if late else State.FAILED, why=found["why"])
    verdict = verdict_text(found.get("agreement"), dict(default) if default else None)
    if verdict.startswith("NO"):
        return replace(row, state=State.WRONG, why=verdict.removeprefix("NO: "))
    return row


_FACTS = (
    "kernels",
    "launches",
    "peak_bytes",
    "compile_seconds",
    "steps",
    "planning_seconds",
    "agreement",
)


def blocks(data: Mapping[str, Any] | None) -> Blocks | None:
    """From a mapping with the same keys."""
    if not data:
        return None
    return Blocks(data["method"], _rounded(data["seconds"]), _rounded(data.get("again", ())))


def _rounded(values: Iterable[float]) -> tuple[float, ...]:
    return tuple(float(f"{value:.{_DIGITS}g}") for value in values)


@dataclass(frozen=True)
class Report:
    """A whole benchmark."""

    date: str
    device: Mapping[str, Any]
    versions: Mapping[str, Any]
    #: Hash of what figures depend on: those of an equal context may stand in one report.
    context: str
    seed: int
    #: Of all runs together, in wall seconds.
    seconds: float
    rows: tuple[Row, ...] = ()
    #: Cases that were not begun, or not finished when the time was up.
    not_run: tuple[Case, ...] = ()
    #: What each rival is.
    rivals: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    format: int = FORMAT

    @property
    def cases(self) -> list[Case]:
        """Those with rows, in their order."""
        return list(dict.fromkeys(row.case for row in self.rows))

    def of(self, case: Case) -> dict[str, Row]:
        """The rows of a case by rival."""
        return {row.rival: row for row in self.rows if row.case == case}

    def is_done(self, case: Case, rivals: Iterable[str]) -> bool:
        """Whether these rivals met on the case, and one of them at least was measured."""
        rows = self.of(case)
        return rows.keys() >= set(rivals) and any(row.device or row.wall for row in rows.values())

    def with_rows(self, rows: Sequence[Row]) -> Report:
        """With the rows of one case in place of those that it has."""
        others = tuple(row for row in self.rows if row.case != rows[0].case)
        return replace(self, rows=others + tuple(rows))

    def to_json(self) -> str:
        """Everything, raw blocks included; a row a line, since there are many."""
        data = finite(asdict(self))
        rows = [json.dumps(_without_nothing(row), sort_keys=True) for row in data.pop("rows")]
        head = json.dumps(data, indent=1, sort_keys=True, allow_nan=False)
        body = ",\n  ".join(rows)
        return f'{head[:-2]},\n "rows": [\n  {body}\n ]\n}}\n' if rows else f"{head}\n"

    @classmethod
    def from_json(cls, text: str) -> Report:
        """Reads what `to_json` wrote; ValueError for anything else."""
        data = json.loads(text)
        if not isinstance(data, dict) or data.get("format") != FORMAT or "not_run" not in data:
            raise ValueError(f"no benchmark report of format {FORMAT}")
        try:
            rows = tuple(map(_read, data.pop("rows", ())))
            left = tuple(Case(**case) for case in data.pop("not_run"))
            return cls(rows=rows, not_run=left, **data)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"no benchmark report: {error!r}") from error


def _without_nothing(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if value not in (None, "")}


def _read(data: Mapping[str, Any]) -> Row:
    changed = {
        "case": Case(**data["case"]),
        "state": State(data["state"]),
        "device": blocks(data.get("device")),
        "wall": blocks(data.get("wall")),
    }
    return Row(**{**data, **changed})


def save(report: Report, path: Path) -> None:
    """Writes the report in one piece. Raises WorkloadError where that is impossible."""
    try:
        write(report.to_json(), path)
    except OSError as error:
        raise unwritable(path, error) from error


def load(path: Path) -> Report:
    """Reads what `save` wrote. Raises WorkloadError that names the file."""
    return read(path, Report.from_json, "passwright bench --json")

"""What the demo found, as data: rows with everything that was measured, to JSON and back."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

from passwright.passes.errors import WorkloadError
from passwright.scheduler.comparison import Comparison, Gain
from passwright.scheduler.gain import Interval
from passwright.training.demo_worker import DEFAULT, PASSWRIGHT

FORMAT = 1
ReportT = TypeVar("ReportT")


class State(StrEnum):
    """How far a row came."""

    MEASURED = "measured"
    #: No step was chosen, so default compile would make the same code, and was left out.
    EQUAL = "equal"
    FAILED = "failed"
    NOT_RUN = "not run"


@dataclass(frozen=True)
class Row:
    """One model in one mode. `compiled` and `measured` are what the worker sent, as it is."""

    model: str
    train: bool
    batch: int | None
    state: State
    #: Of a row that was not measured: why.
    why: str = ""
    compiled: dict[str, Any] | None = None
    measured: dict[str, Any] | None = None

    @property
    def phase(self) -> str:
        return "train" if self.train else "infer"

    @property
    def plans(self) -> list[dict[str, Any]]:
        """The plans that were applied, each with its path and whether it was stored before."""
        return self.compiled[PASSWRIGHT]["plans"] if self.compiled else []

    @property
    def _torch_plans(self) -> list[dict[str, Any]]:
        return [entry for entry in self.plans if entry["plan"]["level"] == "torch"]

    @property
    def ops(self) -> tuple[int, int] | None:
        """Torch-IR ops before and after, over all graphs."""
        plans = self._torch_plans
        if not plans:
            return None
        before, after = (
            sum(int(p["plan"][when]) for p in plans) for when in ("ops_before", "ops_after")
        )
        return before, after

    @property
    def steps(self) -> int:
        """Steps of all plans, those at ATen-IR included."""
        return sum(len(p["plan"]["steps"]) for p in self.plans)

    @property
    def predicted(self) -> Interval | None:
        """Predicted log gain of all levels: those of one level count by their ops, and what ATen-IR
        gains comes on top of what Torch-IR has gained."""
        levels = {p["plan"]["level"] for p in self.plans if int(p["plan"]["ops_before"])}
        if not levels:
            return None

        def total(bound: str) -> float:
            return sum(self._mean(level, bound) for level in sorted(levels))

        return Interval(total("mean"), total("lower"), total("upper"))

    def _mean(self, level: str, bound: str) -> float:
        plans = [p for p in self.plans if p["plan"]["level"] == level]
        weights = [int(p["plan"]["ops_before"]) for p in plans]
        gains = [float(p["predicted"][bound]) for p in plans]
        return sum(g * w for g, w in zip(gains, weights, strict=True)) / sum(weights)

    def kernels(self, kind: str) -> tuple[int, int] | None:
        """Kernels before and after, forward and backward: library calls and, on a CPU, the outermost
        loops of Inductor's C++ functions (one function holds many), on a GPU Triton kernels."""
        if self.compiled is None:
            return None
        own = "loops" if kind == "cpu" else "fused"
        ours = self.compiled[PASSWRIGHT]
        before, after = (
            sum(int(graph["extern"] + graph[own]) for graph in compiled["kernels"])
            for compiled in (self.compiled[DEFAULT] or ours, ours)
        )
        return before, after

    @property
    def compile_seconds(self) -> tuple[float | None, float] | None:
        """Wall seconds of the two cold compiles, default (None: left out) and ours."""
        if self.compiled is None:
            return None
        default = self.compiled[DEFAULT]
        ours: float = self.compiled[PASSWRIGHT]["seconds"]["wall"]
        return default and default["seconds"]["wall"], ours

    @property
    def planning_seconds(self) -> float | None:
        """Of all plans; part of our compile seconds."""
        return sum(float(p["seconds"]) for p in self.plans) if self.plans else None

    @property
    def comparison(self) -> Comparison | None:
        return Comparison.from_json(json.dumps(self.measured)) if self.measured else None

    @property
    def gain(self) -> Gain | None:
        """Measured log gain over default compile."""
        return self.comparison.gains.get(PASSWRIGHT) if self.comparison else None

    @property
    def warnings(self) -> list[str]:
        """What Passwright warned of while it compiled."""
        return self.compiled[PASSWRIGHT]["warnings"] if self.compiled else []

    @property
    def default_agreement(self) -> dict[str, Any] | None:
        """Whether default compile agrees with eager; None where it was not run."""
        default = self.compiled.get(DEFAULT) if self.compiled else None
        return default["agreement"] if default else None

    @property
    def agreement(self) -> dict[str, Any] | None:
        return self.compiled[PASSWRIGHT]["agreement"] if self.compiled else None


@dataclass(frozen=True)
class Report:
    """A whole demo."""

    date: str
    device: dict[str, Any]
    versions: dict[str, Any]
    threads: int
    seed: int
    plan_directory: str
    #: Of everything, in wall seconds.
    seconds: float
    rows: tuple[Row, ...]
    settings: dict[str, Any] = field(default_factory=dict)
    format: int = FORMAT

    def to_json(self) -> str:
        """Everything, raw blocks included."""
        return json.dumps(finite(asdict(self)), indent=1, sort_keys=True, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Report:
        """Reads what `to_json` wrote; ValueError for anything else."""
        data = json.loads(text)
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            raise ValueError(f"no demo report of format {FORMAT}")
        try:
            rows = tuple(Row(**{**row, "state": State(row["state"])}) for row in data.pop("rows"))
            return cls(rows=rows, **data)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"no demo report: {error!r}") from error


def save(report: Report, path: Path) -> None:
    """Writes the report in one piece."""
    write(report.to_json(), path)


def write(text: str, path: Path) -> None:
    """Writes a file in one piece or not at all."""
    part = path.with_name(path.name + ".part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)


def load(path: Path) -> Report:
    """Reads what `save` wrote. Raises WorkloadError that names the file."""
    return read(path, Report.from_json, "passwright demo --json")


def read(path: Path, parse: Callable[[str], ReportT], command: str) -> ReportT:
    """What `parse` makes of the file. Raises WorkloadError that names it, and what should write it."""
    try:
        return parse(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise WorkloadError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise WorkloadError(f"{path} was not written by `{command}`: {error}") from error


def finite(value: Any) -> Any:
    """A value for JSON, which has no infinity and no NaN: null stands for them."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value

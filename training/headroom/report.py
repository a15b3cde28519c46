"""What the benchmark found, as data: every trial and the last comparisons, to JSON and back."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from passwright.scheduler.comparison import Comparison, Gain, median_interval
from passwright.scheduler.plan import Plan
from passwright.training.demo_report import State as RowState
from passwright.training.demo_report import finite, read, write
from passwright.training.headroom.final import DEFAULT, DEFAULT_COMBO, OURS, OURS_COMBO
from passwright.training.headroom.greedy import Proposal, Trial
from passwright.training.macros import NOTHING, State

FORMAT = 1
_SIDES = ((DEFAULT, DEFAULT_COMBO), (OURS, OURS_COMBO))


@dataclass(frozen=True)
class Row:
    """One model in one mode. `final` is what the worker sent, as it is."""

    model: str
    train: bool
    batch: int | None
    state: RowState
    #: Of a row that was not measured: why.
    why: str = ""
    trials: tuple[Trial, ...] = ()
    #: The start points, each as (state, hash of its graphs, predicted seconds).
    starts: tuple[tuple[str, str, float], ...] = ()
    #: What the planner alone would do, as JSON.
    plans: tuple[dict[str, Any], ...] = ()
    final: dict[str, Any] | None = None
    #: No neighbour of the best state was left to try.
    complete: bool = False
    #: How often a faster state took the place of the best.
    rounds: int = 0
    #: Wall seconds from the first question to the last answer.
    seconds: float = 0.0

    @property
    def phase(self) -> str:
        return "train" if self.train else "infer"

    @property
    def title(self) -> str:
        return f"{self.model} {self.phase}"

    @property
    def proposals(self) -> list[Proposal]:
        return [Proposal(State.parse(label), key, seconds) for label, key, seconds in self.starts]

    def planned(self) -> list[Plan]:
        """The planner's plans."""
        return [Plan.from_json(json.dumps(plan)) for plan in self.plans]

    # ---- the last comparison

    @property
    def comparison(self) -> Comparison | None:
        return Comparison.from_json(json.dumps(self.final["measured"])) if self.final else None

    def variant(self, name: str) -> dict[str, Any]:
        """What is known of one of the four; ours is default where no state was better."""
        variants: dict[str, dict[str, Any]] = self.final["variants"] if self.final else {}
        return variants.get(self._source(name), {})

    def _source(self, name: str) -> str:
        variants = self.final["variants"] if self.final else {}
        same = {OURS: DEFAULT, OURS_COMBO: DEFAULT_COMBO}
        return same[name] if name in same and name not in variants else name

    def blocks(self, name: str) -> tuple[float, ...]:
        """Seconds a call, one figure a round; empty where it was not measured to the end."""
        comparison = self.comparison
        source = self._source(name)
        if comparison is None or source in comparison.censored:
            return ()
        timing = comparison.timings.get(source)
        return timing.blocks if timing else ()

    def seconds_of(self, name: str) -> float | None:
        """Median seconds a call."""
        comparison = self.comparison
        source = self._source(name)
        return comparison.timings[source].median if comparison and self.blocks(name) else None

    def best_of(self, side: Sequence[str]) -> str | None:
        """The faster one of a side, with or without combo kernels."""
        found = {name: self.seconds_of(name) for name in side}
        measured = {name: seconds for name, seconds in found.items() if seconds is not None}
        return min(measured, key=lambda name: measured[name]) if measured else None

    def ratio(self, before: str | None, after: str | None) -> Gain | None:
        """log(before / after) with its interval, by the rounds that both have."""
        if before is None or after is None:
            return None
        pairs = [*zip(self.blocks(before), self.blocks(after), strict=False)]
        logs = [math.log(max(a, 1e-12) / max(b, 1e-12)) for a, b in pairs]
        return median_interval(logs, seed=f"{before}:{after}") if logs else None

    @property
    def best_default(self) -> str | None:
        return self.best_of(_SIDES[0])

    @property
    def best_ours(self) -> str | None:
        return self.best_of(_SIDES[1])

    @property
    def gain(self) -> Gain | None:
        """The better of ours over the better of default."""
        return self.ratio(self.best_default, self.best_ours)

    @property
    def search_ratio(self) -> float | None:
        """The same by the search's own figures, which were not taken side by side."""
        seconds = [t.seconds for t in self.trials if t.seconds is not None]
        default = [t.seconds for t in self.trials if t.state == NOTHING.label and t.seconds]
        return min(default) / min(seconds) if default else None

    @property
    def tried(self) -> int:
        """States that were compiled and measured, or failed."""
        return len(self.trials)

    def compile_seconds(self, name: str) -> float | None:
        """Of the first compile in the search, with what other variants left in Inductor's cache."""
        label = self.variant(name).get("state", NOTHING.label)
        combo = name in (DEFAULT_COMBO, OURS_COMBO)
        found = (t for t in self.trials if (t.state, t.combo) == (label, combo))
        return next((t.compile_seconds for t in found), None)


@dataclass(frozen=True)
class Report:
    """A whole benchmark."""

    date: str
    device: dict[str, Any]
    versions: dict[str, Any]
    #: Hash of the code that a rewritten graph depends on, and of the options that a trial depends on.
    context: str
    seed: int
    #: Of everything, in wall seconds; of the last run, if several were needed.
    seconds: float
    rows: tuple[Row, ...]
    options: dict[str, Any] = field(default_factory=dict)
    format: int = FORMAT

    def to_json(self) -> str:
        """Everything, raw blocks included."""
        return json.dumps(finite(asdict(self)), indent=1, sort_keys=True, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Report:
        """Reads what `to_json` wrote; ValueError for anything else."""
        data = json.loads(text)
        if not isinstance(data, dict) or data.get("format") != FORMAT or "context" not in data:
            raise ValueError(f"no benchmark report of format {FORMAT}")
        try:
            rows = tuple(map(_row, data.pop("rows")))
            return cls(rows=rows, **data)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"no benchmark report: {error!r}") from error


def _row(data: dict[str, Any]) -> Row:
    trials = tuple(Trial(**{**t, "blocks": tuple(t["blocks"])}) for t in data["trials"])
    starts = tuple((label, key, float(seconds)) for label, key, seconds in data["starts"])
    state = RowState(data["state"])
    changed = {"trials": trials, "starts": starts, "state": state, "plans": tuple(data["plans"])}
    return Row(**{**data, **changed})


def geometric_mean(gains: Iterable[Gain | None]) -> float | None:
    """Of speed-ups; None if there are none."""
    found = [gain.median for gain in gains if gain is not None]
    return math.exp(sum(found) / len(found)) if found else None


def save(report: Report, path: Path) -> None:
    """Writes the report in one piece."""
    write(report.to_json(), path)


def load(path: Path) -> Report:
    """Reads what `save` wrote. Raises WorkloadError that names the file."""
    return read(path, Report.from_json, "passwright headroom --json")

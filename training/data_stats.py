"""What a data set of measured records holds, in numbers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from passwright.training.labels import by_graph, label_of, steps_of_plan
from passwright.training.noise import with_floors
from passwright.training.records import Record, Status
from passwright.training.store import StoreError, read_records
from passwright.training.trust import Trust, is_pair, trust

#: Where the committed data set lies in `passwright.data`.
FOLDER = "records"
#: Of the gains, in per cent.
QUANTILES = (0, 5, 25, 50, 75, 95, 100)
#: Longest reason that is shown.
_REASON = 60


@dataclass(frozen=True)
class Group:
    """How many records there are of something, and of how many graphs."""

    records: int
    graphs: int


#: Groups by value, the most frequent first.
Groups = Mapping[str, Group]


@dataclass(frozen=True)
class Stats:
    """All numbers about a data set. Gains are log(default / plan); shares lie between 0 and 1."""

    records: int
    #: Different questions; the other records are repetitions.
    keys: int
    graphs: int
    workloads: int
    #: Whole models, in whatever batch, mode and precision.
    models: int
    families: int
    runs: int
    #: First and last day.
    dates: tuple[str, str]
    status: Groups
    #: Of the censored ones: what went wrong.
    censored: Groups
    #: Of the measured ones: not to be told from the noise of their run; with the whole interval above
    #: it; below it. The rest reach into the noise.
    ties: float | None
    faster: float | None
    slower: float | None
    trust: Trust
    #: How far default compile is from itself, compiled anew: |log ratio| by per cent.
    apart: Mapping[int, float]
    #: Of the measured ones, by per cent.
    gains: Mapping[int, float]
    #: Of each graph's best record, by per cent; doing nothing is one.
    best_gains: Mapping[int, float]
    #: Steps of a plan, by per cent.
    steps: Mapping[int, float]
    #: By which patterns occur in the plan; and how many steps there are of each.
    patterns: Groups
    pattern_steps: Mapping[str, int]
    kinds: Groups
    by_family: Groups
    modes: Groups
    precisions: Groups
    batches: Groups
    levels: Groups
    proposed_by: Groups
    methods: Groups
    devices: Groups
    torch: Groups
    triton: Groups
    drivers: Groups
    passwright: Groups
    pattern_sets: Groups

    def to_json(self) -> dict[str, Any]:
        """For `--json`."""
        return asdict(self)


def committed() -> Path:
    """The data set that comes with the package. Raises StoreError if there is none."""
    folder = Path(str(resources.files("passwright.data"))) / FOLDER
    if not folder.is_dir() or not any(folder.glob("*.parquet")):
        raise StoreError(
            "no data set comes with this version; name a directory of records or a packed file"
        )
    return folder


def records_at(path: Path | None) -> list[Record]:
    """The records in a directory or a file, or the committed ones if none is named.

    Raises StoreError if there are none, or they cannot be read.
    """
    path = path or committed()
    records = read_records(path)
    if not records:
        raise StoreError(f"{path} holds no records yet")
    return records


def stats_at(path: Path | None) -> Stats:
    """Of what `records_at` reads, and with its errors."""
    return summarise(with_floors(records_at(path)))


def summarise(records: Sequence[Record]) -> Stats:
    """Counts everything. Raises PlanFormatError for a plan that is none, and ValueError for no records."""
    if not records:
        raise ValueError("no records")
    timed = (label_of(r) for r in records if r.status == Status.MEASURED)
    measured = [label for label in timed if label is not None]
    days = sorted(r.date[:10] for r in records)
    steps: Counter[str] = Counter()
    for record in records:
        steps.update(placed.pattern for placed in steps_of_plan(record.plan))
    return Stats(
        records=len(records),
        keys=len({r.key for r in records}),
        graphs=len({r.graph for r in records}),
        workloads=len({r.workload for r in records}),
        models=len({_model(r) for r in records if r.kind == "model"}),
        families=len({r.family for r in records}),
        runs=len({r.run for r in records}),
        dates=(days[0], days[-1]),
        status=_groups(records, lambda r: [r.status]),
        censored=_groups(records, lambda r: [_reason(r)] if r.status == Status.CENSORED else []),
        ties=_share([label.is_tie for label in measured]),
        faster=_share([label.lower > label.floor for label in measured]),
        slower=_share([label.upper < -label.floor for label in measured]),
        trust=trust(records),
        apart=_quantiles([abs(r.gain or 0.0) for r in records if is_pair(r)]),
        gains=_quantiles([label.gain for label in measured]),
        best_gains=_quantiles([_best(group) for group in by_graph(records)]),
        steps=_quantiles([float(r.steps) for r in records]),
        patterns=_groups(records, _patterns),
        pattern_steps=dict(steps.most_common()),
        kinds=_groups(records, lambda r: [r.kind]),
        by_family=_groups(records, lambda r: [r.family]),
        modes=_groups(records, lambda r: ["train" if r.train else "infer"]),
        precisions=_groups(records, lambda r: [r.precision]),
        batches=_groups(records, lambda r: [str(r.batch)]),
        levels=_groups(records, lambda r: [r.levels]),
        proposed_by=_groups(records, lambda r: [r.proposed_by]),
        methods=_groups(records, lambda r: [r.method] if r.method else []),
        devices=_groups(records, lambda r: [r.device]),
        torch=_groups(records, lambda r: [r.torch]),
        triton=_groups(records, lambda r: [r.triton] if r.triton else []),
        drivers=_groups(records, lambda r: [r.driver] if r.driver else []),
        passwright=_groups(records, lambda r: [r.passwright]),
        pattern_sets=_groups(records, lambda r: [r.patterns]),
    )


def _groups(records: Sequence[Record], values: Callable[[Record], Iterable[str]]) -> Groups:
    """By every value that a record has."""
    counts: Counter[str] = Counter()
    graphs: dict[str, set[str]] = {}
    for record in records:
        for value in values(record):
            counts[value] += 1
            graphs.setdefault(value, set()).add(record.graph)
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return {value: Group(count, len(graphs[value])) for value, count in ordered}


def _patterns(record: Record) -> list[str]:
    return sorted({placed.pattern for placed in steps_of_plan(record.plan)})


def _reason(record: Record) -> str:
    """The kind of an error without what it says about this case."""
    return record.why.partition(":")[0].strip()[:_REASON] or "no reason given"


def _model(record: Record) -> str:
    return record.workload.rpartition("@")[0]


def _best(group: Sequence[Record]) -> float:
    """By the lower bound, so that it is not the luckiest; 0 of doing nothing."""
    labels = [label for record in group if (label := label_of(record)) is not None]
    best = max(labels, key=lambda label: label.lower, default=None)
    return best.gain if best is not None and best.lower > 0 else 0.0


def _share(answers: Sequence[bool]) -> float | None:
    return sum(answers) / len(answers) if answers else None


def _quantiles(values: Sequence[float]) -> dict[int, float]:
    """By per cent; none of nothing."""
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        return {}
    return dict(zip(QUANTILES, map(float, np.percentile(finite, QUANTILES)), strict=True))

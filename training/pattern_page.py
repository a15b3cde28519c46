"""What was counted about patterns, as data and as the tables of `docs/patterns.md`."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from passwright.passes.errors import WorkloadError
from passwright.passes.table import PatternTable
from passwright.scheduler.commands.patterns import describe
from passwright.training.pattern_counts import ROUNDS, STEPS, Count

FORMAT = 1
_MARKED = re.compile(r"(<!-- (?P<what>patterns|models) -->\n).*?(<!-- end -->)", re.DOTALL)
#: Where nothing was counted.
_NOTHING = "?"


@dataclass(frozen=True)
class Row:
    """One model in one mode; `why` says why nothing could be counted."""

    model: str
    train: bool
    count: Count = Count()
    why: str = ""


@dataclass(frozen=True)
class Report:
    """A run. Its rows hold for the patterns with these names in this version, and for this torch."""

    date: str
    torch: str
    passwright: str
    python: str
    version: str
    patterns: tuple[str, ...]
    fields: int | None = None
    as_gpu: bool = False
    rows: tuple[Row, ...] = field(default=())

    def continues(self, other: Report) -> bool:
        """The rows of the other run would come out the same in this one."""
        mine, theirs = ((r.torch, r.version, r.fields, r.as_gpu) for r in (self, other))
        return mine == theirs


def save(report: Report, path: Path) -> None:
    """Writes the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"format": FORMAT, **asdict(report)}, indent=1, sort_keys=True)
    path.write_text(text + "\n", encoding="utf-8")


def load(path: Path) -> Report:
    """Reads a file of `save`. Raises WorkloadError for anything else."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data.pop("format") != FORMAT:
            raise ValueError("another format")
        rows = tuple(_row(row) for row in data.pop("rows"))
        return Report(**data | {"patterns": tuple(data["patterns"]), "rows": rows})
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise WorkloadError(
            f"{path}: {error}; not written by `python -m passwright.training.pattern_table`"
        ) from error


def _row(data: dict[str, Any]) -> Row:
    count = data.pop("count")
    return Row(**data, count=Count(**count | {"ops": tuple(count["ops"])}))


def with_tables(page: str, report: Report, table: PatternTable) -> str:
    """`page` with the tables between its markers made anew."""

    def made(found: re.Match[str]) -> str:
        text = pattern_rows(report, table) if found["what"] == "patterns" else model_rows(report)
        return f"{found[1]}{text.strip()}\n{found[3]}"

    return _MARKED.sub(made, page)


# ---- patterns


def pattern_rows(report: Report, table: PatternTable) -> str:
    """All patterns of the table with what they declare, and in how many models they match."""
    known = [describe(pattern) for pattern in table]
    lines = [
        _sentence(known),
        "",
        "| pattern | family | direction | level | exactness | models | on a GPU | what it does |",
        "| --- | --- | --- | --- | --- | ---: | ---: | --- |",
    ]
    here = _models_with(report, lambda count: count.candidates)
    there = _models_with(report, lambda count: count.gpu_candidates or {})
    for d in known:
        name = d["name"]
        counted = name in report.patterns and "torch" in d["levels"]
        cells = (
            f"`{name}`",
            f"`{_family(d)}`",
            d["direction"] + (", clean-up" if d["cleanup"] else ""),
            "+".join(d["levels"]),
            d["exactness"],
            str(here[name]) if counted else _NOTHING,
            str(there[name]) if counted and report.as_gpu else _NOTHING,
            d["summary"].replace("|", "\\|"),
        )
        lines.append(f"| {' | '.join(cells)} |")
    total = len({row.model for row in report.rows})
    lines += [
        "",
        (
            f"- models: in how many of the {total} public models the pattern has a candidate, in inference"
            " or in training, after clean-up (a clean-up pattern: before it)."
        ),
        (
            "- on a GPU: the same if the values lay on a GPU where Triton is installed. Looked for in"
            " graphs captured on a CPU."
        ),
        f"- {_NOTHING}: not counted: of ATen-IR alone, whose graphs come later, or new since the counts.",
    ]
    return "\n".join(lines)


def _sentence(known: Sequence[dict[str, Any]]) -> str:
    families = len({_family(d) for d in known})
    directions = Counter(d["direction"] for d in known)
    exactness = Counter(d["exactness"] for d in known)
    own = sum(d["cleanup"] for d in known)
    return (
        f"{len(known)} patterns in {families} families: {_counted(directions)};"
        f" {_counted(exactness)}; {own} run by themselves as clean-up."
    )


def _counted(counter: Counter[str]) -> str:
    return ", ".join(f"{number} {what}" for what, number in counter.most_common())


def _family(described: dict[str, Any]) -> str:
    """The file of a shipped pattern; the module of another."""
    module: str = described["module"]
    prefix = "passwright.passes.patterns."
    return f"{module.removeprefix(prefix)}.py" if module.startswith(prefix) else module


def _models_with(report: Report, candidates: Callable[[Count], dict[str, int]]) -> Counter[str]:
    found = {(name, row.model) for row in report.rows for name in candidates(row.count)}
    return Counter(name for name, _ in found)


# ---- models


def model_rows(report: Report) -> str:
    """All models with their ops and candidates, in inference and in training."""
    by_model: dict[str, dict[bool, Row]] = {}
    for row in report.rows:
        by_model.setdefault(row.model, {})[row.train] = row
    found = with_candidates(report)
    lines = [
        f"{len(found)} of {len(by_model)} models have candidates, clean-up not counted.",
        "",
        "| model | ops | after clean-up | after everything | steps | candidates | patterns |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    own = _cleanups(report)
    for model, rows in by_model.items():
        modes = [rows.get(train) for train in (False, True)]
        cells = [
            _pair(modes, lambda count, n=n: count.ops[n])  # type: ignore[misc]
            for n in range(3)
        ]
        cells.append(_pair(modes, lambda count: sum(count.steps.values())))
        cells.append(_pair(modes, lambda count: sum(_left(count, own).values())))
        cells.append(_pair(modes, lambda count: len(_left(count, own))))
        lines.append(f"| {model} | {' | '.join(cells)} |")
    failed = [f"{row.model} ({_mode(row)}): {row.why}" for row in report.rows if row.why]
    lines += [
        "",
        "- Numbers are those of inference / training. Ops are nodes of Dynamo's graphs.",
        (
            "- After everything: each pattern wherever it matches, the largest candidate first, whether it"
            " pays or not; relaxed patterns excepted. No step is taken twice, and no pattern takes more"
            f" than {STEPS} steps in a graph, in {ROUNDS} rounds. Clean-up is not among the steps: it runs"
            " by itself. This is no plan: the planner takes what it predicts to pay."
        ),
        "- Patterns: how many different ones have a candidate after clean-up.",
        (
            f"- torch {report.torch}, Passwright {report.passwright}, Python {report.python};"
            f" {_size(report)}; {report.date}."
        ),
        *(f"- Not counted: {line}." for line in failed),
    ]
    return "\n".join(lines)


def with_candidates(report: Report) -> set[str]:
    """Models in which something besides clean-up could be done."""
    own = _cleanups(report)
    return {row.model for row in report.rows if _left(row.count, own)}


def _left(count: Count, cleanups: Iterable[str]) -> dict[str, int]:
    return {name: number for name, number in count.candidates.items() if name not in cleanups}


def _cleanups(report: Report) -> frozenset[str]:
    from passwright.passes.table import default_table

    return frozenset(p.name() for p in default_table() if p.cleanup and p.name() in report.patterns)


def _pair(modes: Iterable[Row | None], number: Callable[[Count], int]) -> str:
    return " / ".join(
        _NOTHING if row is None or row.why else str(number(row.count)) for row in modes
    )


def _mode(row: Row) -> str:
    return "training" if row.train else "inference"


def _size(report: Report) -> str:
    size = f"at most {report.fields} fields" if report.fields else "all fields"
    named = any("?" in row.model for row in report.rows)
    return f"{size}, or as many as the model's name says" if named else size

"""The benchmark's one table, on a terminal or as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from passwright.scheduler.comparison import Gain
from passwright.training.demo_report import State
from passwright.training.demo_table import speedup, verdict_text
from passwright.training.headroom.bound import sentence
from passwright.training.headroom.final import DEFAULT, DEFAULT_COMBO, OURS, OURS_COMBO
from passwright.training.headroom.report import Report, Row, geometric_mean

COLUMNS = (
    "model",
    "mode",
    "default us (kernels)",
    "default + combo",
    "ours",
    "ours + combo",
    "over default, 95 %",
    "over default + combo",
    "best over best",
    "tried",
    "agrees",
)
#: Columns that hold text, flush left.
_TEXT = (0, 1, 10)
#: Rows below get a line that says what bounds them.
_MODEST = 1.5


def cells(row: Row) -> list[str]:
    """What a row shows in each column."""
    head = [row.model, row.phase]
    if row.state is not State.MEASURED:
        return [*head, *[""] * 4, _unmeasured(row), "", "", _tried(row), ""]
    ours = row.best_ours
    return [
        *head,
        *(_time(row, name) for name in (DEFAULT, DEFAULT_COMBO, OURS, OURS_COMBO)),
        _ratio(row.ratio(DEFAULT, ours)),
        _ratio(row.ratio(DEFAULT_COMBO, ours)),
        _ratio(row.gain),
        _tried(row),
        agrees(row),
    ]


def _unmeasured(row: Row) -> str:
    ratio = row.search_ratio
    return f"{row.state}: {row.why}" + (f" ({ratio:.2f}x in the search)" if ratio else "")


def _time(row: Row, name: str) -> str:
    seconds = row.seconds_of(name)
    if seconds is None:
        comparison = row.comparison
        why = row.variant(name).get("why") or (comparison and comparison.censored.get(name))
        return f"failed: {why}" if why else ""
    return f"{seconds * 1e6:.0f} ({row.variant(name)['kernels']})"


def _ratio(gain: Gain | None) -> str:
    return speedup(gain) if gain is not None else ""


def _tried(row: Row) -> str:
    return f"{row.tried}{'' if row.complete else ' of more'}"


def agrees(row: Row) -> str:
    """Whether both of ours agree with eager; it starts with NO where one does not."""
    default = row.variant(DEFAULT).get("agreement")
    verdicts = [row.variant(name).get("agreement") for name in (OURS, OURS_COMBO)]
    texts = [verdict_text(verdict, default) for verdict in verdicts if verdict]
    return next((text for text in texts if text != "yes"), texts[0] if texts else "")


def is_wrong(row: Row) -> bool:
    """One of the variants shown is further from a float64 run than rounding explains."""
    return row.state is State.MEASURED and agrees(row).startswith("NO")


def wrong_states(row: Row) -> list[str]:
    """States that were left out because their results were wrong, with the reason."""
    return [f"{row.title}: {t.state} is {t.why}" for t in row.trials if t.is_wrong]


def summary(row: Row) -> str:
    """One line for the progress."""
    if row.state is not State.MEASURED:
        return _unmeasured(row)
    gain = row.gain
    best = row.variant(row.best_ours or OURS).get("state", "")
    shown = speedup(gain) if gain else "could not be measured"
    return f"{shown}, {row.tried} states in {row.seconds:.0f} s, best: {best}"


def notes(report: Report) -> list[str]:
    """The means, and what has to be known to read the table."""
    good = [row for row in report.rows if row.state is State.MEASURED and not is_wrong(row)]
    lines = [*_means(good)]
    device, versions = report.device, report.versions
    parts = [f"{device['name']}; torch {versions['torch']}"]
    titles = {"triton": "Triton", "cuda": "CUDA", "passwright": "Passwright"}
    parts += [f"{title} {versions[key]}" for key, title in titles.items() if versions.get(key)]
    lines.append(f"{', '.join(parts)}; {report.date}, {report.seconds:.0f} s in the last run.")
    precision = report.options.get("precision", "highest")
    lines.append(
        f"Times are medians of interleaved blocks in one process ({_methods(good)}); float32 matmul"
        f" precision {precision}; dropout is at rate 0. Best over best: the faster of ours over the"
        " faster of default, each with or without combo kernels."
    )
    lines += [f"{row.title}: {text}" for row in good if (text := bound(row))]
    return lines + [line for row in report.rows for line in wrong_states(row)]


def _means(rows: Sequence[Row]) -> list[str]:
    lines = []
    for title, phase in (("inference", "infer"), ("training", "train"), ("all", "")):
        chosen = [row for row in rows if not phase or row.phase == phase]
        best = geometric_mean(row.gain for row in chosen)
        if best is None:
            continue
        plain = geometric_mean(row.ratio(DEFAULT, row.best_ours) for row in chosen)
        combo = geometric_mean(row.ratio(DEFAULT_COMBO, row.best_ours) for row in chosen)
        over_combo = f", {combo:.2f}x over default + combo" if combo else ""
        lines.append(
            f"Geometric mean of {len(chosen)}, {title}: {best:.2f}x best over best,"
            f" {plain or 1:.2f}x over default{over_combo}."
        )
    return lines


def _methods(rows: Sequence[Row]) -> str:
    comparisons = [row.comparison for row in rows]
    found = {t.method for c in comparisons if c for t in c.timings.values()}
    return ", ".join(sorted(found)) or "nothing measured"


def bound(row: Row) -> str:
    """What bounds a row that gained little, or "" for others."""
    gain, name = row.gain, row.best_ours
    seconds = row.seconds_of(name) if name else None
    if gain is None or seconds is None or row.final is None or gain.speedup >= _MODEST:
        return ""
    estimates = row.final["estimates"]
    expected = estimates.get(OURS) or estimates.get(DEFAULT)
    profiled = row.final["profile"]
    return sentence(seconds, profiled, expected)


def plans(report: Report) -> list[str]:
    """The best states, one line each."""
    lines = []
    for row in report.rows:
        for name in (OURS, OURS_COMBO) if row.final else ():
            found = row.variant(name)
            steps = len(found.get("steps", ()))
            lines.append(f"{row.title}, {name}: {found.get('state', 'failed')} ({steps} steps)")
    return lines


def markdown(report: Report) -> str:
    """The table and its notes."""

    def line(texts: Sequence[str]) -> str:
        return "| " + " | ".join(text.replace("|", "\\|") for text in texts) + " |"

    rule = ["---" if number in _TEXT else "---:" for number in range(len(COLUMNS))]
    table = [line(COLUMNS), line(rule), *(line(cells(row)) for row in report.rows)]
    rest = [f"- {note}" for note in (*notes(report), *plans(report))]
    return "\n".join([*table, "", *rest]) + "\n"


def show(report: Report) -> None:
    """Prints the table, its notes and the best states."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from passwright.scheduler.commands.console import console

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for number, column in enumerate(COLUMNS):
        justify: Literal["left", "right"] = "left" if number in _TEXT else "right"
        table.add_column(column, justify=justify, overflow="fold")
    for row in report.rows:
        table.add_row(*(Text(text) for text in cells(row)))
    out = console()
    out.print(table)
    for note in (*notes(report), *plans(report)):
        out.print(note, markup=False)

"""Reports as tables on a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from passwright.scheduler.commands.console import console
from passwright.scheduler.commands.show_plan import duration
from passwright.scheduler.plan import speedup
from passwright.training.report.content import Found
from passwright.training.report.data_content import DataReport
from passwright.training.report.html import CHOICES, SCORES
from passwright.training.report.model_content import ModelReport, Profile
from passwright.training.report.numbers import (
    change,
    considered,
    found_text,
    headline,
    interval_text,
    measured_words,
    median,
    method_text,
    percent,
    times,
)

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

#: Rows that are shown of what may be long; page and JSON have all.
_MOST, _KERNELS = 10, 8


def show(report: ModelReport | DataReport) -> None:
    """Prints the report on stdout."""
    out = console()
    if isinstance(report, ModelReport):
        _model(out, report)
    else:
        _data(out, report)
    for note in report.notes:
        out.print(f"note: {note}", markup=False)
    if report.ended:
        out.print(f"This report is not complete: {report.ended}.", markup=False)


# ---- a model


def _model(out: Console, report: ModelReport) -> None:
    batch = f", batch {report.batch}" if report.batch else ""
    out.print(f"{report.about.subject}, {report.phase}{batch}", style="bold", markup=False)
    if report.graphs and report.is_empty:
        out.print(f"{headline(report)}. {considered(report)}", markup=False)
        if not report.is_given:
            out.print("Leaving the graph alone is the answer: it is compiled as by default.")
    elif report.graphs:
        found = f", measured {measured_words(report)}" if report.found else ", not measured"
        verdict = f": {report.verdict}" if report.verdict else ""
        words = interval_text(report.predicted)
        predicted = words if report.predicted is None else f"predicted {words}"
        out.print(f"{predicted}{found}{verdict}", markup=False)
    if report.steps:
        out.print(_steps(report))
    if report.parts:
        out.print(_parts(report))
    if report.left:
        out.print(_left(report))
    if report.before or report.after:
        out.print(_compiled(report))
    for name, one in (
        ("default compile", report.kernels_before),
        ("Passwright", report.kernels_after),
    ):
        if one is not None:
            out.print(_kernels(name, one))


def _steps(report: ModelReport) -> Table:
    from rich.text import Text

    table = _table("#", "step", "predicted, alone", "with what follows", "why")
    for step in report.steps:
        _row(
            table,
            str(step.number),
            Text(step.label.partition(" @ ")[0], style="bold"),
            *(
                interval_text(None if report.predicted is None else gain)
                for gain in (step.gain, step.to_go)
            ),
            step.why,
        )
    return table


def _parts(report: ModelReport) -> Table:
    table = _table("measured", "predicted", "found, 95 %", "all so far", "kernels", "a call", "")
    for part in report.parts:
        _row(
            table,
            part.title,
            interval_text(part.predicted),
            _found(part.found),
            _found(part.total),
            "" if part.kernels is None else str(part.kernels),
            "" if part.seconds is None else duration(part.seconds),
            part.verdict or part.why,
        )
    after = median(report.after)
    _row(
        table,
        "the whole",
        interval_text(report.predicted),
        _found(report.found),
        "",
        str(report.after.kernels) if report.after else "",
        "" if after is None else duration(after),
        report.verdict,
    )
    if report.floor is not None:
        table.caption = f"noise floor {percent(report.floor)}"
    return table


def _left(report: ModelReport) -> Table:
    table = _table("left out", "predicted", "why")
    for item in report.left[:_MOST]:
        _row(table, item.label, speedup(item.gain), item.reason)
    if len(report.left) > _MOST:
        table.caption = f"and {len(report.left) - _MOST} more"
    return table


def _compiled(report: ModelReport) -> Table:
    before, after = report.before, report.after
    table = _table("", "default → Passwright")
    _row(table, "ops", change(*report.ops))
    _row(table, "kernels", change(before and before.kernels, after and after.kernels))
    method = before.method if before else ""
    time = f"a call, {method_text(method)}" if method else "a call"
    _row(table, time, change(median(before), median(after), "seconds"))
    seconds = (before and before.compile_seconds, after and after.compile_seconds)
    _row(table, "compile time, without planning", change(*seconds, "seconds"))
    memory = change(before and before.peak_bytes, after and after.peak_bytes, "bytes")
    _row(table, "peak memory", memory)
    if after is not None:
        _row(table, "results", "agree with a float64 run" if after.agrees else after.agreement)
    return table


def _kernels(name: str, profile: Profile) -> Table:
    table = _table(f"kernels, {name}", "kind", "launches", "a call")
    for row in profile.rows[:_KERNELS]:
        launches = f"{row.launches:g}" if row.launches else ""
        _row(table, row.name, row.kind, launches, duration(row.seconds))
    table.caption = f"{profile.launches:.0f} launches, {duration(profile.seconds)} in all"
    return table


def _found(found: Found | None) -> str:
    if found is None:
        return "not measured"
    if found.same_code:
        return "same code"
    return found_text(found) + (" tie" if found.is_tie else "")


# ---- a data set


def _data(out: Console, report: DataReport) -> None:
    from rich.text import Text

    stats = report.stats
    out.print(report.about.subject, style="bold", markup=False)
    out.print(
        f"{stats['records']:,} records of {stats['graphs']:,} graphs, {stats['families']} families;"
        f" {report.about.device}; gain model {report.about.gain_model or 'none'}",
        markup=False,
    )
    if report.groups:
        table = _table("", *(group.name for group in report.groups))
        for name, title, form in SCORES:
            cells = [form(g.scores[name]) if name in g.scores else "" for g in report.groups]
            _row(table, title, *cells)
        for name, title, form in CHOICES:
            cells = [form(g.choices[name]) if name in g.choices else "" for g in report.groups]
            _row(table, title, *cells)
        out.print(table)
    if report.searches:
        table = _table("searched graph", "plans", "best", "chosen", "regret")
        for row in report.searches:
            regret = percent(row.best - row.chosen)
            gains = (times(row.best), times(row.chosen), regret)
            _row(table, row.workload, str(row.trials), *gains)
        out.print(table)
    if report.misses:
        table = _table("worst misses", "predicted", "measured", "steps")
        for miss in report.misses[:_MOST]:
            point = miss.point
            _row(
                table,
                point.workload.partition("@")[0],
                times(point.predicted),
                times(point.gain),
                Text(", ".join(point.patterns), overflow="ellipsis", no_wrap=True),
            )
        out.print(table)


def _row(table: Table, *cells: str | Text) -> None:
    """Cells as they are: what stands in brackets is no markup."""
    from rich.text import Text

    table.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in cells))


def _table(*columns: str) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column)
    return table

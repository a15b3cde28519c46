"""The demo's one table, on a terminal or as Markdown."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

from passwright.scheduler.comparison import Gain
from passwright.scheduler.gain import Interval
from passwright.training.demo_report import Report, Row, State

COLUMNS = (
    "model",
    "mode",
    "batch",
    "ops",
    "kernels",
    "predicted gain",
    "measured gain, 95 %",
    "compile s",
    "planning s",
    "agrees",
)
#: Columns that hold text, flush left.
_TEXT = (0, 1, 9)


def cells(row: Row, kind: str) -> list[str]:
    """What a row shows in each column; `kind` is that of the device."""
    head = [row.model, row.phase, str(row.batch or "")]
    if row.state is State.NOT_RUN:
        return [*head, "", "", "", f"not run: {row.why}", "", "", ""]
    return [
        *head,
        _change(row.ops),
        _change(row.kernels(kind)),
        _predicted(row.predicted),
        _measured(row),
        _seconds(row.compile_seconds),
        "" if row.planning_seconds is None else f"{row.planning_seconds:.1f}",
        _agrees(row),
    ]


def _change(pair: tuple[int, int] | None) -> str:
    return f"{pair[0]} -> {pair[1]}" if pair else ""


def _seconds(pair: tuple[float | None, float] | None) -> str:
    if pair is None:
        return ""
    before, after = pair
    return f"{after:.1f}" if before is None else f"{before:.1f} -> {after:.1f}"


def _predicted(gain: Interval | None) -> str:
    if gain is None:
        return ""
    low, high = math.exp(gain.lower), math.exp(gain.upper)
    return f"{math.exp(gain.mean):.2f}x [{low:.2f}, {high:.2f}]"


def _measured(row: Row) -> str:
    if row.state is State.FAILED:
        return f"failed: {row.why}"
    if row.state is State.EQUAL:
        return "no step, same code"
    comparison, gain = row.comparison, row.gain
    if gain is None or comparison is None:
        reasons = "; ".join((comparison.censored if comparison else {}).values())
        return f"not measured: {reasons or 'no reason given'}"
    return speedup(gain) + (" tie" if gain.is_tie(comparison.floor) else "")


def speedup(gain: Gain) -> str:
    """`1.52x [1.36, 1.74]`."""
    low, high = gain.speedup_interval
    return f"{gain.speedup:.2f}x [{low:.2f}, {high:.2f}]"


def _agrees(row: Row) -> str:
    return verdict_text(row.agreement, row.default_agreement)


def verdict_text(verdict: dict[str, Any] | None, default: dict[str, Any] | None) -> str:
    """Whether a variant agrees with eager, beside what default compile does; it starts with NO where
    the variant is wrong."""
    if verdict is None:
        return ""
    if verdict["ok"]:
        return "yes"
    if default is not None and not default["ok"]:
        # Not of our making where plain Inductor is as far from eager: a ReLU at its kink, say.
        errors = [max(v["output_error"], v["gradient_error"]) for v in (verdict, default)]
        if errors[0] <= 2 * errors[1]:
            return f"as default compile does: {verdict['sentence']}"
    return f"NO: {verdict['sentence']}"


def notes(report: Report) -> list[str]:
    """What has to be known to read the table, a sentence or two each."""
    on_cpu = report.device["kind"] == "cpu"
    own = "outermost loops in Inductor's C++ code" if on_cpu else "Triton kernels"
    lines = [
        _where(report),
        (
            "Gains are over torch.compile with Inductor's defaults; 1.10x is 10 % faster. A tie"
            " cannot be told from the noise of its own run."
        ),
        (
            f"Ops are nodes of Dynamo's graph; kernels are library calls and {own}, backward"
            " included in training. Planning is part of the compile seconds."
        ),
        (
            f"Compiles start with empty caches{', on one core each' if on_cpu else ''}; dropout is"
            " at rate 0. Agrees: outputs and gradients are about as far from a float64 run as eager is"
            f"{_without_oracle(report.rows)}."
        ),
    ]
    if any(row.state is State.EQUAL for row in report.rows):
        lines.append(
            "Where no step was chosen, both ways compile the same graph, and one compile was made."
            " --full makes and measures both."
        )
    plans = [plan for row in report.rows for plan in row.plans]
    stored = sum(plan["stored"] for plan in plans)
    if stored:
        lines.append(
            f"{stored} of {len(plans)} plans came from the plan store: planning was done before."
        )
    warnings = [
        f"{row.model} {row.phase}: {warning}" for row in report.rows for warning in row.warnings
    ]
    return lines + warnings


def _where(report: Report) -> str:
    device, versions = report.device, report.versions
    threads = f", {report.threads} threads" if device["kind"] == "cpu" else ""
    parts = [f"{device['name']}{threads}; torch {versions['torch']}"]
    parts += [f"{title} {versions[key]}" for key, title in _PARTS.items() if versions.get(key)]
    return f"{', '.join(parts)}; {report.date}, {report.seconds:.0f} s in all."


_PARTS = {"triton": "Triton", "cuda": "CUDA", "passwright": "Passwright", "python": "Python"}


def _without_oracle(rows: Sequence[Row]) -> str:
    """Names the models that could not be run in float64."""
    names = dict.fromkeys(
        row.model
        for row in rows
        if row.agreement and row.agreement["ok"] and not row.agreement["oracle"]
    )
    return (
        f" (compared with eager itself, for want of such a run: {', '.join(names)})"
        if names
        else ""
    )


def markdown(report: Report) -> str:
    """The table and its notes for a README."""

    def line(texts: Sequence[str]) -> str:
        return "| " + " | ".join(text.replace("|", "\\|") for text in texts) + " |"

    rule = ["---" if number in _TEXT else "---:" for number in range(len(COLUMNS))]
    rows = [cells(row, report.device["kind"]) for row in report.rows]
    table = [line(COLUMNS), line(rule), *map(line, rows)]
    return "\n".join([*table, "", *(f"- {note}" for note in notes(report))]) + "\n"


def show(report: Report) -> None:
    """Prints the table, its notes and where the plans lie."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from passwright.scheduler.commands.console import console

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for number, column in enumerate(COLUMNS):
        justify: Literal["left", "right"] = "left" if number in _TEXT else "right"
        table.add_column(column, justify=justify, overflow="fold")
    for row in report.rows:
        table.add_row(*(Text(text) for text in cells(row, report.device["kind"])))
    out = console()
    out.print(table)
    for note in notes(report):
        out.print(note, markup=False)
    out.print(f"Plans: {report.plan_directory}", markup=False, soft_wrap=True)
    for row in report.rows:
        for plan in row.plans:
            name = f"{row.model} {row.phase} {plan['plan']['level']}-IR"
            steps = len(plan["plan"]["steps"])
            if steps:
                path = plan["path"].removeprefix(report.plan_directory).lstrip("/")
                out.print(f"  {path}  {name}, {steps} steps", markup=False, soft_wrap=True)

"""The benchmark's tables, on a terminal or as Markdown: a model a row, what they come to, and the aims."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from passwright.training.bench.rivals import COMBO, graphs, has_graphs, place, plain
from passwright.training.bench.rows import Case, Report, Row, State, gain
from passwright.training.bench.summary import MODES, Aim, Figures, Group, aims, figures, groups
from passwright.training.headroom.final import DEFAULT

_LONGEST = 110


@dataclass(frozen=True)
class Grid:
    """A table: its columns, of which the first so many hold text, and its cells."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    text: int = 2

    def filled(self) -> Grid:
        """Without columns in which nothing stands."""
        kept = [n for n in range(len(self.columns)) if any(row[n] for row in self.rows)]
        columns = tuple(self.columns[n] for n in kept)
        return replace(
            self, columns=columns, rows=tuple(tuple(row[n] for n in kept) for row in self.rows)
        )


# ---- what there is to show


def models(report: Report, group: Group) -> Grid:
    """A model and mode a row: default's time, and every rival's gain over it."""
    rows = {case: report.of(case) for case in group.cases}
    names = [n for n in _names(report, group) if n != DEFAULT and not has_graphs(n)]
    time = "default, us (kernels)"
    lines = []
    for case in group.cases:
        title = group.named(case)
        default = rows[case].get(DEFAULT)
        cells = [_gain_cell(rows[case].get(name), default) for name in names]
        lines.append((title, case.phase, _time_cell(default), *cells))
    return Grid(
        f"{group.title}: gains over default compile, time on the device",
        ("model", "mode", time, *names),
        tuple(lines),
    )


def launched(report: Report, group: Group) -> Grid | None:
    """The same by wall time, each rival beside itself with CUDA graphs; None where there is none."""
    rows = {case: report.of(case) for case in group.cases}
    names = list(dict.fromkeys(plain(n) for n in _names(report, group)))
    if not any(row.wall for found in rows.values() for row in found.values()):
        return None
    lines = []
    for case in group.cases:
        default = rows[case].get(DEFAULT)
        cells = []
        for name in names:
            pair = [rows[case].get(name), rows[case].get(graphs(name))]
            cells.append(" / ".join(_wall_cell(row, default) for row in pair if row is not None))
        lines.append((group.named(case), case.phase, *cells))
    title = f"{group.title}: wall time, us, with eager launches / with CUDA graphs"
    return Grid(title, ("model", "mode", *names), tuple(lines))


def totals(report: Report, group: Group) -> list[Grid]:
    """Geometric means: of rivals without CUDA graphs, and of those with them."""
    lines = figures(report, group)
    first = [one for one in lines if not has_graphs(one.rival) and one.cases]
    second = [one for one in lines if has_graphs(one.rival) and one.cases]
    grids = [
        Grid(
            f"{group.title}: over default compile, geometric means",
            (
                "rival",
                "mode",
                "device time",
                "worst",
                "over combo kernels",
                "wall time, eager launches",
                "peak memory",
                "kernels",
                "compile time",
                "right",
            ),
            tuple(_plain_line(one) for one in first),
        )
    ]
    if second:
        columns = (
            "rival",
            "mode",
            f"wall time over {graphs(DEFAULT)}",
            "worst",
            f"over {graphs(COMBO)}",
            "over default, eager launches",
            "compile time",
            "right",
        )
        title = f"{group.title}: under CUDA graphs, geometric means"
        grids.append(Grid(title, columns, tuple(_graph_line(one) for one in second)))
    return [grid.filled() for grid in grids]


def _plain_line(one: Figures) -> tuple[str, ...]:
    return (
        one.rival,
        MODES[one.mode],
        _times(one.device),
        _times(one.worst and one.worst[0]),
        _times(one.over_combo),
        _times(one.wall),
        _share(one.memory),
        _share(one.kernels),
        _share(one.compile),
        _right(one),
    )


def _graph_line(one: Figures) -> tuple[str, ...]:
    return (
        one.rival,
        MODES[one.mode],
        _times(one.wall),
        _times(one.worst and one.worst[0]),
        _times(one.over_combo),
        _times(one.over_launches),
        _share(one.compile),
        _right(one),
    )


def _names(report: Report, group: Group) -> list[str]:
    """Rivals that are here, in the order of the report."""
    found = {
        row.rival
        for row in report.rows
        if row.case in group.cases and row.state is not State.NOT_HERE
    }
    return sorted(found, key=place)


def _times(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}x"


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _right(one: Figures) -> str:
    bad = ", ".join(f"{count} {state}" for state, count in one.bad)
    return f"{one.right} of {one.cases}{f' ({bad})' if bad else ''}"


def _time_cell(default: Row | None) -> str:
    if default is None or default.seconds is None:
        return default.state.value if default else ""
    kernels = f" ({default.kernels})" if default.kernels is not None else ""
    return f"{default.seconds * 1e6:.0f}{kernels}"


def _gain_cell(row: Row | None, default: Row | None) -> str:
    if row is None:
        return ""
    if not row.is_ok:
        return row.state.value
    found = gain(row, default)
    if found is not None:
        return f"{found.speedup:.2f}x"
    return f"{row.seconds * 1e6:.0f} us" if row.seconds is not None else "no time"


def _wall_cell(row: Row, default: Row | None) -> str:
    if not row.is_ok or row.wall is None:
        return row.state.value if not row.is_ok else ""
    found = gain(row, default, "wall")
    return f"{row.wall.median * 1e6:.0f}" + (f" ({found.speedup:.2f}x)" if found else "")


# ---- what has to be known


def notes(report: Report) -> Iterator[str]:
    """What has to be known to read the tables, a sentence or two each."""
    device, versions, options = report.device, report.versions, report.options
    parts = [f"torch {versions['torch']}"]
    parts += [f"{title} {versions[key]}" for key, title in _PARTS.items() if versions.get(key)]
    several = options.get("devices", 1) > 1
    name = f"{options['devices']} x {device['name']}" if several else device["name"]
    yield f"{name}; {', '.join(parts)}; {report.date}, {report.seconds:.0f} s in all."
    on_cpu = device["kind"] == "cpu"
    if on_cpu:
        yield (
            "On a CPU, time on the device is wall time, peak memory is not known, and there are no CUDA"
            " graphs."
        )
    else:
        yield (
            "Time on the device: replays of a captured CUDA graph, all rivals in interleaved blocks of one"
            " process, alone on the device. Wall time: what a caller waits for."
            + (" All rivals of a model in one mode stand on one GPU." if several else "")
        )
    own = "outermost loops in Inductor's C++ code" if on_cpu else "Triton kernels"
    yield (
        f"1.10x is 10 % faster. Kernels are library calls and {own}, backward included in training;"
        " kernels, peak memory and compile time as a share of default compile's."
    )
    yield (
        "Compiles start with empty caches and hold the first step, backward, tuning and decisions;"
        f" {options.get('jobs')} at a time on {options.get('cores')} cores. Right: outputs and gradients"
        " about as far from a float64 run as eager's, or as default compile's. Only what is right counts"
        " in means. Dropout is at rate 0."
    )
    for name in sorted(report.rivals, key=place):
        if not has_graphs(name):
            yield f"{name}: {report.rivals[name]}"
    for model, why in options.get("left_out", {}).items():
        yield f"{model} is left out, since it runs on a CPU alone: {why}."
    if report.not_run:
        yield f"{len(report.not_run)} cases were not run: {_listed(report.not_run)}."


_PARTS = {"triton": "Triton", "cuda": "CUDA", "passwright": "Passwright", "python": "Python"}


def _listed(cases: Sequence[Case], most: int = 4) -> str:
    shown = ", ".join(case.title for case in cases[:most])
    return f"{shown}, ..." if len(cases) > most else shown


def reasons(report: Report) -> Iterator[str]:
    """What is not right, and why; of one reason for several rivals of a case, once."""
    for case in report.cases:
        by_reason: dict[tuple[State, str], list[str]] = {}
        for row in report.of(case).values():
            if row.state not in (State.OK, State.NOT_HERE):
                by_reason.setdefault((row.state, row.why), []).append(row.rival)
        for (state, why), names in by_reason.items():
            yield f"{case.title}, {', '.join(names)}: {state}: {_short(why)}"
        for row in report.of(case).values():
            if row.is_ok and row.note:
                yield f"{case.title}, {row.rival}: {_short(row.note)}"


def _short(text: str) -> str:
    line = text.partition("\n")[0]
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}..."


def aim_line(aim: Aim) -> str:
    """`met: inference: device time over default compile: 1.74x of 36 (at least 1.00x)`."""
    return f"{'met' if aim.met else 'NOT MET'}: {aim.text}: {aim.figure} (wanted: {aim.wanted})"


# ---- output


def markdown(report: Report) -> str:
    """All tables and notes."""
    return "\n".join([rows_markdown(report), summary_markdown(report)])


def rows_markdown(report: Report) -> str:
    """A model a row, for a page."""
    return _joined([models(report, group) for group in groups(report)])


def summary_markdown(report: Report) -> str:
    """Geometric means, aims, notes, and what is not right."""
    text = _joined([grid for group in groups(report) for grid in totals(report, group)])
    lines = [f"- {aim_line(aim)}" for aim in aims(report)]
    lines += [f"- {note}" for note in notes(report)]
    lines += [f"- {reason}" for reason in reasons(report)]
    return text + "\n".join(lines) + "\n"


def _joined(grids: Sequence[Grid]) -> str:
    return "".join(f"**{grid.title}**\n\n{grid_markdown(grid)}\n" for grid in grids)


def grid_markdown(grid: Grid) -> str:
    """One table."""

    def line(texts: Sequence[str]) -> str:
        return "| " + " | ".join(text.replace("|", "\\|") for text in texts) + " |\n"

    rule = ["---" if n < grid.text else "---:" for n in range(len(grid.columns))]
    return line(grid.columns) + line(rule) + "".join(map(line, grid.rows))


def show(report: Report) -> None:
    """Prints everything."""
    from passwright.scheduler.commands.console import console

    out = console()
    for group in groups(report):
        by_wall = launched(report, group)
        grids = [models(report, group), *([by_wall] if by_wall else []), *totals(report, group)]
        for grid in grids:
            out.print(grid.title, markup=False, style="bold")
            out.print(_rich(grid))
    for lines in (map(aim_line, aims(report)), notes(report), reasons(report)):
        for line in lines:
            out.print(line, markup=False)
        out.print()


def _rich(grid: Grid) -> object:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for number, column in enumerate(grid.columns):
        justify: Literal["left", "right"] = "left" if number < grid.text else "right"
        table.add_column(column, justify=justify, overflow="fold")
    for row in grid.rows:
        table.add_row(*map(Text, row))
    return table

"""What `passwright evaluate` found, as tables on a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from passwright.scheduler.commands.console import console

if TYPE_CHECKING:
    from rich.table import Table

#: Figures of models, of points of learning curves, and of plans of so many steps.
_MODELS = {
    "tau": "tau",
    "pairs": "pairs",
    "top1": "top-1 slow-down",
    "top3": "top-3",
    "sign": "sign",
    "captured": "captured",
    "error": "error",
}
_CURVE = {
    "tau": "tau",
    "sign": "sign",
    "top1": "top-1 slow-down",
    "error": "error",
    "coverage": "within 90 %",
    "width": "width",
}
_STEPS = {"coverage": "within 90 %", "below": "below", "above": "above", "width": "width"}


def show_evaluation(found: Mapping[str, Any]) -> None:
    """Models against each other with their intervals, or a learning curve."""
    out = console()
    out.print(
        f"{found['device']}: {found['plans']} plans of {found['workloads']} workloads from"
        f" {found['families']} families; each family predicted by what learned from others",
        markup=False,
    )
    for table in [_curve(found)] if "points" in found else [_models(found), _steps(found)]:
        out.print(table)


def _models(found: Mapping[str, Any]) -> Table:
    table = _table(["model"], [*_MODELS.values(), "p (tau)"])
    for row in found["models"]:
        against = row.get("tau_difference")
        last = f"{against['p']:.2g}" if against else ""
        table.add_row(row["model"], *_cells(row, _MODELS), last)
    return table


def _steps(found: Mapping[str, Any]) -> Table:
    """Of every model that says how sure it is."""
    table = _table(["model", "steps of a plan"], ["plans", *_STEPS.values()])
    for row in found["models"]:
        for group in row["coverage by steps"]:
            cells = [f"{group[name]:.3f}" for name in _STEPS]
            table.add_row(row["model"], group["steps"], str(group["plans"]), *cells)
    return table


def _curve(found: Mapping[str, Any]) -> Table:
    table = _table(["model", "of the graphs"], ["graphs", "plans", *_CURVE.values()])
    for point in found["points"]:
        size = [f"{point['graphs']:.0f}", f"{point['plans']:.0f}"]
        share = f"{100 * point['share']:g} %"
        table.add_row(point["model"], share, *size, *_cells(point, _CURVE))
    return table


def _table(names: Sequence[str], figures: Sequence[str]) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in names:
        table.add_column(name)
    for title in figures:
        table.add_column(title, justify="right")
    return table


def _cells(row: Mapping[str, Any], names: Mapping[str, str]) -> list[str]:
    return [_cell(row, name) for name in names]


def _cell(row: Mapping[str, Any], name: str) -> str:
    if name not in row["mean"]:
        return "-"
    half = row["interval"].get(name)
    shown = f"{row['mean'][name]:.3f}"
    return shown if half is None else f"{shown} ± {half:.3f}"

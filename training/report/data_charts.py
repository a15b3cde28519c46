"""Charts of a report about a data set."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from passwright.training.report.charts import Chart, chart, floor_shapes, speed_axis
from passwright.training.report.data_content import DataReport, Group, Point

#: Rows of a chart of bars.
_MOST = 40
#: Colours and symbols of groups, those never seen first.
_LOOKS = (
    ("@measured", "circle", "solid"),
    ("@predicted", "diamond", "dot"),
    ("@k3", "square", "dash"),
)


def scatter_chart(report: DataReport) -> Chart | None:
    """Predicted over measured gains, with the noise floor and the line of equal gains."""
    if not report.points:
        return None
    data, links = [], []
    missed = {id_of(miss.point): f"miss-{miss.number}" for miss in report.misses}
    for unseen, (colour, symbol, _) in zip((False, True), (_LOOKS[1], _LOOKS[0]), strict=True):
        points = [p for p in report.points if p.unseen == unseen]
        if not points:
            continue
        links.append([missed.get(id_of(p), "") for p in points])
        name = "families it never saw" if unseen else "families it learned from"
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": f"{name} ({len(points):,})",
                "x": [round(math.exp(p.predicted), 4) for p in points],
                "y": [round(math.exp(p.gain), 4) for p in points],
                "customdata": [_told(p) for p in points],
                "hovertemplate": "%{customdata}<br>predicted %{x:.3f}x, measured %{y:.3f}x<extra></extra>",
                "marker": {
                    "color": colour,
                    "symbol": symbol,
                    "size": 7 if unseen else 5,
                    "opacity": 0.85 if unseen else 0.35,
                    "line": {"width": 0.6 if unseen else 0, "color": "@paper"},
                },
            }
        )
    gains = [value for p in report.points for value in (p.gain, p.predicted)]
    axis = speed_axis(gains, "")
    low, high = (10**value for value in axis["range"])
    diagonal = {
        "type": "line", "x0": low, "x1": high, "y0": low, "y1": high,
        "line": {"color": "@mute", "width": 1, "dash": "dash"},
    }  # fmt: skip
    layout = {
        "xaxis": {**axis, "title": "predicted, times as fast"},
        "yaxis": {**axis, "title": "measured, times as fast"},
        "shapes": [*floor_shapes(report.floor, along="y"), diagonal],
        "hovermode": "closest",
    }
    return {**chart(data, layout, 520), "links": links}


def id_of(point: Point) -> tuple[str, float, float]:
    """Tells a plan from all others."""
    return point.workload, point.gain, point.predicted


def calibration_chart(groups: Sequence[Group]) -> Chart | None:
    """How many plans lie within intervals that promise so many."""
    known = [group for group in groups if group.calibration]
    if not known:
        return None
    data = [
        {
            "type": "scatter",
            "mode": "lines+markers",
            "name": group.name,
            "x": [100 * promised for promised, _ in group.calibration],
            "y": [100 * kept for _, kept in group.calibration],
            "line": {"color": colour, "dash": dash, "width": 2.5},
            "marker": {"symbol": symbol, "color": colour, "size": 7},
            "hovertemplate": "promised %{x:.0f} %, kept %{y:.1f} %<extra></extra>",
        }
        for group, (colour, symbol, dash) in zip(known, _LOOKS, strict=False)
    ]
    line = {"color": "@mute", "width": 1, "dash": "dash"}
    layout = {
        "xaxis": {"title": "promised coverage, %", "range": [0, 102]},
        "yaxis": {"title": "plans inside, %", "range": [0, 102]},
        "shapes": [{"type": "line", "x0": 0, "y0": 0, "x1": 100, "y1": 100, "line": line}],
    }
    return chart(data, layout, 360)


def risk_chart(groups: Sequence[Group]) -> Chart | None:
    """What acting on more and more graphs gains, and how many come out slower."""
    known = [group for group in groups if group.risk]
    if not known:
        return None
    data: list[dict[str, Any]] = []
    for group, (colour, symbol, _) in zip(known, _LOOKS, strict=False):
        share = [100 * row["share"] for row in group.risk]
        marker = {"symbol": symbol, "color": colour, "size": 8}
        shared = {"type": "scatter", "mode": "lines+markers", "x": share, "legendgroup": group.name}
        data.append(
            {
                **shared,
                "name": group.name,
                "y": [row["speedup"] for row in group.risk],
                "line": {"color": colour, "width": 2.5},
                "marker": marker,
                "hovertemplate": "surest %{x:.0f} % of graphs: %{y:.3f}x<extra></extra>",
            }
        )
        data.append(
            {
                **shared,
                "name": f"{group.name}: slower",
                "yaxis": "y2",
                "showlegend": False,
                "y": [100 * row["slower"] for row in group.risk],
                "line": {"color": colour, "width": 1.5, "dash": "dot"},
                "marker": {**marker, "size": 6, "symbol": f"{symbol}-open"},
                "hovertemplate": "surest %{x:.0f} % of graphs: %{y:.1f} % come out slower<extra></extra>",
            }
        )
    layout = {
        "xaxis": {"title": "share of graphs acted on, the surest first, %", "anchor": "y2"},
        "yaxis": {"title": "speed-up", "domain": [0.44, 1.0]},
        "yaxis2": {"title": "slower than 0.98x, %", "domain": [0.0, 0.34], "rangemode": "tozero"},
    }
    return chart(data, layout, 430)


def families_chart(report: DataReport) -> Chart | None:
    """Kendall's tau by family."""
    rows = [row for row in report.families if row.tau is not None][:_MOST]
    if not rows:
        return None
    rows.sort(key=lambda row: row.tau or 0.0)
    names = [f"{row.family} ({row.graphs})" for row in rows]
    colours = ["@measured" if row.unseen else "@predicted" for row in rows]
    values = [row.tau or 0.0 for row in rows]
    return _bars(names, values, colours, "Kendall's tau within a graph", "%{y}: tau %{x:.3f}")


def patterns_chart(report: DataReport) -> Chart | None:
    """Of pairs with and without a pattern, how many are in the right order."""
    rows = sorted(
        (row for row in report.patterns if row.pairs is not None), key=lambda r: r.pairs or 0
    )
    if not rows:
        return None
    names = [f"{row.pattern} ({row.told})" for row in rows[:_MOST]]
    values = [100 * (row.pairs or 0.0) for row in rows[:_MOST]]
    found = _bars(
        names, values, ["@k3"] * len(names), "pairs in the right order, %", "%{y}: %{x:.1f} %"
    )
    half = {"type": "line", "x0": 50, "x1": 50, "yref": "paper", "y0": 0, "y1": 1}
    found["layout"]["shapes"] = [{**half, "line": {"color": "@mute", "width": 1, "dash": "dash"}}]
    return found


def search_chart(report: DataReport) -> Chart | None:
    """Gains of what was chosen beside the best that searching found."""
    rows = sorted(report.searches, key=lambda row: row.best)
    if not rows:
        return None
    short = [row.workload.partition("@")[0] for row in rows]
    # One model may have been searched at several batches.
    names = [
        name if short.count(name) == 1 else row.workload
        for name, row in zip(short, rows, strict=True)
    ]
    planner = [
        (name, r.planner) for name, r in zip(names, rows, strict=True) if r.planner is not None
    ]
    data = [
        _marks("best found by search", "@measured", "circle", names, [r.best for r in rows]),
        _marks("chosen by the model", "@predicted", "diamond", names, [r.chosen for r in rows]),
        _marks(
            "planner of that time", "@k3", "square-open",
            [name for name, _ in planner], [gain for _, gain in planner],
        ),
    ]  # fmt: skip
    gains = [value for row in rows for value in (row.best, row.chosen, row.planner or 0.0)]
    layout = {"xaxis": speed_axis(gains, "times as fast as default compile"), "yaxis": {}}
    return chart(data, layout, 130 + 34 * len(rows))


def _marks(
    name: str, colour: str, symbol: str, rows: Sequence[str], gains: Sequence[float]
) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "x": [math.exp(gain) for gain in gains],
        "y": list(rows),
        "marker": {
            "color": colour,
            "symbol": symbol,
            "size": 11,
            "line": {"width": 2, "color": colour},
        },
        "hovertemplate": f"%{{y}}, {name}: %{{x:.3f}}x<extra></extra>",
    }


def _bars(
    names: Sequence[str], values: Sequence[float], colours: Sequence[str], title: str, hover: str
) -> Chart:
    data = [
        {
            "type": "bar",
            "orientation": "h",
            "y": list(names),
            "x": list(values),
            "marker": {"color": list(colours)},
            "hovertemplate": f"{hover}<extra></extra>",
        }
    ]
    layout = {"xaxis": {"title": title}, "yaxis": {"showgrid": False, "tickfont": {"size": 11}}}
    return chart(data, layout, 90 + 20 * len(names))


def _told(point: Point) -> str:
    """What a point says when it is pointed at."""
    steps = ", ".join(point.patterns) or "no step"
    if len(steps) > 90:
        steps = f"{steps[:88]}…"
    return f"{point.workload.replace('@', '<br>')}<br>{steps}"

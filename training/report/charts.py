"""Charts as plain data for Plotly. Colours are names of the page's own (`@measured`), which its script
replaces by those of the light or the dark theme."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from passwright.scheduler.gain import Interval
from passwright.training.report.content import Found
from passwright.training.report.model_content import ModelReport, Profile

#: Data, layout, and the height in pixels.
Chart = dict[str, Any]
#: Ticks of speed-ups, from fine to coarse: the finest that do not crowd the axis are taken.
_TICKS: tuple[tuple[float, ...], ...] = (
    (0.9, 0.92, 0.94, 0.96, 0.98, 1, 1.02, 1.04, 1.06, 1.08, 1.1),
    (0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1, 1.05, 1.1, 1.15, 1.2, 1.25, 1.3),
    (0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.8, 2),
    (0.4, 0.6, 0.8, 1, 1.25, 1.5, 2, 2.5, 3),
    (0.1, 0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3, 4, 6, 8),
    (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100),
    (0.001, 0.01, 0.1, 1, 10, 100, 1000),
)
_MOST_TICKS = 9


def chart(data: list[dict[str, Any]], layout: dict[str, Any], height: int) -> Chart:
    """With what all charts share. Nothing of it depends on a theme but the names of colours."""
    axis: dict[str, Any] = {
        "gridcolor": "@line", "linecolor": "@line", "zerolinecolor": "@line", "automargin": True,
        "tickfont": {"color": "@mute"}, "title": {"font": {"color": "@mute", "size": 13}, "standoff": 8},
    }  # fmt: skip
    shared: dict[str, Any] = {
        "paper_bgcolor": "@none",
        "plot_bgcolor": "@none",
        "font": {"family": "@font", "size": 13, "color": "@ink"},
        "margin": {"l": 8, "r": 14, "t": 8, "b": 8},
        "hoverlabel": {"bgcolor": "@raised", "bordercolor": "@line", "font": {"color": "@ink"}},
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "bgcolor": "@none"},
        "height": height,
    }
    for name, value in layout.items():
        if name.startswith(("xaxis", "yaxis")):
            title = value.get("title", "")
            value = {**axis, **value, "title": {**axis["title"], "text": title}}
        shared[name] = value
    shared.setdefault("xaxis", axis)
    shared.setdefault("yaxis", axis)
    return {"data": data, "layout": shared, "height": height}


def speed_axis(gains: Iterable[float], title: str) -> dict[str, Any]:
    """A logarithmic axis of speed-ups that holds these log gains."""
    values = [gain for gain in gains if math.isfinite(gain)] or [0.0]
    low, high = min(*values, 0.0), max(*values, 0.0)
    slack = max(0.06 * (high - low), 0.02)
    low, high = low - slack, high + slack
    inside: list[float] = []
    edge = 0.15 * (high - low)
    for ticks in _TICKS:
        inside = [tick for tick in ticks if low <= math.log(tick) <= high]
        covers = math.log(ticks[0]) <= low + edge and math.log(ticks[-1]) >= high - edge
        if covers and len(inside) <= _MOST_TICKS:
            break
    return {
        "type": "log",
        "range": [low / math.log(10), high / math.log(10)],
        "tickvals": inside,
        "ticktext": [f"{tick:g}x" for tick in inside],
        "title": title,
    }


def ranges(
    name: str,
    colour: str,
    symbol: str,
    places: Mapping[int, tuple[str, float, float, float]],
    *,
    shift: float,
) -> dict[str, Any]:
    """One mark with a bar a row, by its place: (label, mean, lower, upper), in log gains."""
    rows = [*places.values()]
    middle = [math.exp(row[1]) for row in rows]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "x": middle,
        "y": [at + shift for at in places],
        "text": _texts(rows),
        "hovertemplate": "%{text}<extra></extra>",
        "marker": {"color": colour, "symbol": symbol, "size": 10},
        "error_x": {
            "type": "data",
            "symmetric": False,
            "array": [math.exp(row[3]) - x for row, x in zip(rows, middle, strict=True)],
            "arrayminus": [x - math.exp(row[2]) for row, x in zip(rows, middle, strict=True)],
            "color": colour,
            "thickness": 2.5,
            "width": 5,
        },
    }


def steps_chart(report: ModelReport) -> Chart | None:
    """Predicted beside measured, for every part that was measured and for the whole."""
    rows: list[tuple[str, Interval | None, Found | None]] = [
        (part.title, part.predicted, part.found) for part in report.parts
    ]
    if rows or report.predicted is not None:
        rows.append(("the whole", report.predicted, report.found))
    if not rows:
        return None
    rows.reverse()
    predicted = {
        at: (label, p.mean, p.lower, p.upper)
        for at, (label, p, _) in enumerate(rows)
        if p is not None
    }
    found = {}
    for at, (label, _, one) in enumerate(rows):
        if one is not None:
            low = one.gain if one.lower is None else one.lower
            high = one.gain if one.upper is None else one.upper
            found[at] = (label, one.gain, low, high)
    looks = (
        ("predicted, 90 %", "@predicted", "diamond", predicted, 0.16),
        ("measured, 95 %", "@measured", "circle", found, -0.16),
    )
    data = [
        ranges(name, colour, symbol, known, shift=shift)
        for name, colour, symbol, known, shift in looks
        if known
    ]
    gains = [value for row in (*predicted.values(), *found.values()) for value in row[1:]]
    layout = {
        "xaxis": speed_axis(gains, "times as fast as before the step"),
        "yaxis": {
            "tickvals": list(range(len(rows))),
            "ticktext": [_short(row[0]) for row in rows],
            "range": [-0.6, len(rows) - 0.4],
            "showgrid": False,
            "zeroline": False,
        },
        "shapes": floor_shapes(report.floor or 0.0, along="x"),
    }
    return chart(data, layout, 120 + 46 * len(rows))


def floor_shapes(floor: float, *, along: str) -> list[dict[str, Any]]:
    """No change, and around it what cannot be told from it."""
    across = "y" if along == "x" else "x"
    low, high = math.exp(-floor), math.exp(floor)
    line = {"color": "@mute", "width": 1}
    return [
        {
            "type": "rect", f"{along}0": low, f"{along}1": high, f"{across}ref": "paper",
            f"{across}0": 0, f"{across}1": 1, "fillcolor": "@floor", "line": {"width": 0},
            "layer": "below",
        },
        {
            "type": "line", f"{along}0": 1, f"{along}1": 1, f"{across}ref": "paper",
            f"{across}0": 0, f"{across}1": 1, "line": line, "layer": "below",
        },
    ]  # fmt: skip


def times_chart(report: ModelReport) -> Chart | None:
    """Raw times of every block, round by round."""
    variants = [v for v in (report.before, report.after) if v is not None and v.blocks]
    if not variants:
        return None
    most = max(max(variant.blocks) for variant in variants)
    scale, unit = (1e3, "ms") if most >= 1e-3 else (1e6, "us")
    data = [
        {
            "type": "scatter",
            "mode": "lines+markers",
            "name": variant.name,
            "x": list(range(1, len(variant.blocks) + 1)),
            "y": [round(block * scale, 4) for block in variant.blocks],
            "line": {"color": colour, "width": 2, "dash": dash},
            "marker": {"symbol": symbol, "size": 7, "color": colour},
            "hovertemplate": f"round %{{x}}: %{{y:.4g}} {unit}<extra>{variant.name}</extra>",
        }
        for variant, colour, dash, symbol in zip(
            variants, ("@before", "@after"), ("dot", "solid"), ("square", "circle"), strict=False
        )
    ]
    layout = {
        "xaxis": {"title": "round of interleaved blocks"},
        "yaxis": {"title": f"{unit} per call", "rangemode": "tozero"},
    }
    return chart(data, layout, 300)


def kinds_chart(before: Profile | None, after: Profile | None) -> Chart | None:
    """Time by kind of kernel, before and after."""
    sides = [(name, one) for name, one in (("after", after), ("before", before)) if one is not None]
    if not sides:
        return None
    kinds = ("GEMM", "reduction", "pointwise", "other")
    colours = ("@k1", "@k2", "@k3", "@k4")
    data = [
        {
            "type": "bar",
            "orientation": "h",
            "name": kind,
            "y": [name for name, _ in sides],
            "x": [1e6 * sum(r.seconds for r in one.rows if r.kind == kind) for _, one in sides],
            "marker": {"color": colour, "line": {"color": "@paper", "width": 1.5}},
            "hovertemplate": f"{kind}, %{{y}}: %{{x:.4g}} us<extra></extra>",
        }
        for kind, colour in zip(kinds, colours, strict=True)
    ]
    layout = {"barmode": "stack", "xaxis": {"title": "us per call"}, "yaxis": {"showgrid": False}}
    return chart(data, layout, 210)


def _texts(rows: Sequence[tuple[str, float, float, float]]) -> list[str]:
    return [
        f"{label}: {math.exp(mean):.3f}x [{math.exp(low):.3f}, {math.exp(high):.3f}]"
        for label, mean, low, high in rows
    ]


def _short(label: str) -> str:
    return "levels below" if label.startswith("ATen") else label

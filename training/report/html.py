"""One self-contained HTML file of a report: no network, light and dark, for screens, phones and paper."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from passwright.passes.errors import WorkloadError
from passwright.scheduler.commands.plan import Diff
from passwright.scheduler.commands.show_plan import duration, shortened
from passwright.scheduler.gain import Interval
from passwright.scheduler.plan import speedup
from passwright.training.report.data_content import DataReport, Point
from passwright.training.report.model_content import ModelReport, Part
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

_FOLDER = Path(__file__).parent / "templates"
#: Rows of long tables; the JSON has all.
_KERNELS, _LEFT, _VALUES = 25, 200, 20
_LEVELS = {"torch": "Torch-IR", "aten": "ATen-IR", "inductor": "Inductor-IR"}


def require() -> None:
    """Raises WorkloadError, with what to install, where a package for pages is missing."""
    try:
        import jinja2  # noqa: F401
        import networkx as nx  # noqa: F401
        import plotly  # noqa: F401
    except ImportError as error:
        raise WorkloadError(
            f"a report needs {error.name}, which is not installed: pip install 'passwright[report]'"
        ) from error


def render(report: ModelReport | DataReport) -> str:
    """The page."""
    if isinstance(report, ModelReport):
        return _model_page(report)
    return _data_page(report)


def _page(template: str, report: Any, charts: Mapping[str, Any], **more: Any) -> str:
    import jinja2
    from markupsafe import Markup
    from plotly.offline import get_plotlyjs

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_FOLDER),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= _FILTERS
    # Nothing in it may end the script element that it stands in.
    text = json.dumps(charts, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    script = (_FOLDER / "page.js").read_text(encoding="utf-8")
    return environment.get_template(template).render(
        report=report,
        charts=Markup(text),
        chart_names=list(charts),
        plotly=Markup(get_plotlyjs().replace("</script", "<\\/script"))
        if charts
        else Markup(_NO_PLOTLY),
        script=Markup(script),
        change=change,
        **more,
    )


_NO_PLOTLY = "const Plotly = { react() {} };"


# ---- a model


def _model_page(report: ModelReport) -> str:
    from passwright.training.report.charts import kinds_chart, steps_chart, times_chart
    from passwright.training.report.script import script_of

    found = {
        "steps": None if report.is_empty else steps_chart(report),
        "times": times_chart(report),
        "kinds": kinds_chart(report.kernels_before, report.kernels_after),
    }
    pictures, steps = _pictures(report)
    kernels = [one for one in (report.kernels_before, report.kernels_after) if one is not None]
    rows = [row.seconds for one in kernels for row in one.rows]
    return _page(
        "model.html.j2",
        report,
        {name: one for name, one in found.items() if one is not None},
        tabs=[
            ("overview", "Overview"),
            ("steps", f"Steps ({len(report.steps)})"),
            ("pictures", "Graph"),
            ("kernels", "Kernels"),
            ("left", f"Left out ({len(report.left)})"),
            ("reproduce", "Reproduce"),
        ],
        considered=considered(report),
        headline=headline(report),
        planning=sum(graph.planning_seconds for graph in (*report.graphs, *report.below)),
        single=_single(report),
        levels=_LEVELS,
        pictures=pictures,
        drawn_steps=steps,
        reasons=Counter(item.reason for item in report.left).most_common(),
        most_left=_LEFT,
        most_kernels=_KERNELS,
        longest_kernel=max(rows, default=0.0) or 1.0,
        reproduce="" if report.is_plan_alone else script_of(report, measured_words(report)),
    )


def _single(report: ModelReport) -> dict[int, Part | None]:
    """The part that measures each step alone, if one does."""
    alone = {part.first: part for part in report.parts if part.first == part.last}
    return {step.number: alone.get(step.number) for step in report.steps}


def _pictures(report: ModelReport) -> tuple[list[Any], list[int]]:
    from passwright.training.report.picture import grouped, in_full

    pictures, steps = [], set()
    for graph in (*report.graphs, *report.below):
        if graph.before is None or graph.after is None:
            continue
        sides = [("before", graph.ops_before, graph.before)]
        if graph.before.nodes != graph.after.nodes:
            sides.append(("after", graph.ops_after, graph.after))
        drawn = []
        for name, ops, drawing in sides:
            title = f"{report.about.subject}, {_LEVELS[graph.level]}, {name}"
            drawn.append((name, ops, grouped(drawing, title), in_full(drawing, title)))
            steps |= {node.step for node in drawing.nodes if node.step}
        pictures.append((graph, drawn))
    return pictures, sorted(steps)


# ---- a data set


def _data_page(report: DataReport) -> str:
    from passwright.training.report import data_charts

    found = {
        "scatter": data_charts.scatter_chart(report),
        "calibration": data_charts.calibration_chart(report.groups),
        "risk": data_charts.risk_chart(report.groups),
        "search": data_charts.search_chart(report),
        "families": data_charts.families_chart(report),
        "patterns": data_charts.patterns_chart(report),
    }
    stats = report.stats
    tables = [
        (title, list(stats[name].items())[:_VALUES])
        for name, title in _STATS.items()
        if stats[name]
    ]
    return _page(
        "data.html.j2",
        report,
        {name: one for name, one in found.items() if one is not None},
        tabs=[
            ("overview", "Overview"),
            ("trust", "Trust"),
            ("ranks", "Order"),
            ("misses", f"Misses ({len(report.misses)})"),
            ("data", "Data"),
        ],
        headline=next((g for g in report.groups if g.scores.get("tau") is not None), None),
        any_unseen=any(point.unseen for point in report.points),
        censored=stats["status"].get("censored", {"records": 0})["records"],
        score_rows=SCORES,
        choice_rows=CHOICES,
        stat_tables=tables,
    )


_STATS = {
    "status": "How records ended",
    "censored": "Censored, by reason",
    "kinds": "Kinds of graphs",
    "by_family": "Families",
    "proposed_by": "Who proposed the plans",
    "patterns": "Patterns in the plans",
    "precisions": "Precision",
    "batches": "Batch",
    "devices": "Devices",
    "torch": "torch",
}
SCORES = (
    ("workloads", "graphs", "{:.0f}".format),
    ("plans", "plans", "{:,.0f}".format),
    ("tau", "Kendall's tau", "{:.3f}".format),
    ("top1", "first choice slower by", "{:.1%}".format),
    ("top3", "best of three slower by", "{:.1%}".format),
    ("sign", "sign right", "{:.1%}".format),
    ("error", "error of log gain", "{:.3f}".format),
    ("coverage", "inside the 90 % interval", "{:.1%}".format),
)
CHOICES = (
    ("speedup", "gain of its choices", "{:.3f}x".format),
    ("best", "gain of the best plans", "{:.3f}x".format),
    ("slower", "come out slower than 0.98x", "{:.0f}".format),
    ("worst", "the worst", "{:.2f}x".format),
    ("abstained", "left alone", "{:.0%}".format),
)


# ---- what templates ask for


def _seconds(value: float | None) -> str:
    return "" if value is None else duration(value)


def _predicted(point: Point) -> str:
    low = point.predicted if point.lower is None else point.lower
    high = point.predicted if point.upper is None else point.upper
    return speedup(Interval(point.predicted, low, high))


def _readable(lines: Sequence[str]) -> list[str]:
    return shortened(lines, Diff.FULL)


def _share(value: float | None) -> str:
    return "none measured" if value is None else f"{value:.0%}"


def _svg(text: str) -> Any:
    """SVG of ours, in which everything foreign is escaped already (`picture`)."""
    from markupsafe import Markup

    return Markup(text)


def _svg_hidden(text: str) -> Any:
    return _svg(text.replace("<svg ", "<svg hidden data-every ", 1))


_FILTERS: Mapping[str, Any] = {
    "times": times,
    "interval": interval_text,
    "found": found_text,
    "percent": percent,
    "seconds": _seconds,
    "median": median,
    "method": method_text,
    "share": _share,
    "predicted": _predicted,
    "readable": _readable,
    "sentence": lambda text: text[:1].lower() + text[1:],
    "svg": _svg,
    "svg_hidden": _svg_hidden,
}

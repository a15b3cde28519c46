"""What `passwright evaluate --curve --json FILE` found, as Markdown for the docs and a line for cards."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: Of each point: what is shown, and how.
_SHOWN = {
    "tau": ("tau", "{:.3f}"),
    "sign": ("sign", "{:.3f}"),
    "top1": ("first choice slower by", "{:.1%}"),
    "error": ("error", "{:.3f}"),
    "coverage": ("within 90 %", "{:.1%}"),
    "width": ("width", "{:.3f}"),
}


def markdown(found: Mapping[str, Any]) -> str:
    """A row for each model and share of the graphs."""
    titles = [title for title, _ in _SHOWN.values()]
    lines = [
        "| model | of the graphs | graphs | plans | " + " | ".join(titles) + " |",
        "| --- |" + " ---: |" * (len(titles) + 3),
    ]
    for point in found["points"]:
        cells = [shown(point, name, form) for name, (_, form) in _SHOWN.items()]
        lines.append(
            f"| {point['model']} | {_percent(point['share'])} | {point['graphs']:.0f}"
            f" | {point['plans']:,.0f} | {' | '.join(cells)} |"
        )
    seeds = max(len(point["seeds"]) for point in found["points"])
    note = (
        f"- {found['device']}: {found['workloads']} graphs of {found['families']} families, held out in"
        f" {found['folds']} parts, the same in each row; graphs and plans are those learned from, on"
        f" average. Ensembles of {found['members']}. {seeds} seeds, each with graphs of its own; ± is half"
        " a 95 % interval over them. Width: from the mean of log(time before / time after) to the lower"
        " bound of its interval, as scaled by other families."
    )
    return "\n".join([*lines, "", note])


def shown(row: Mapping[str, Any], name: str, form: str) -> str:
    """A mean with half its interval, where there is one."""
    if name not in row["mean"]:
        return "-"
    half = row["interval"].get(name)
    return form.format(row["mean"][name]) + (f" ± {form.format(half)}" if half else "")


def line(found: Mapping[str, Any]) -> str:
    """The curve of the first model in one sentence, and what the last step of it brings."""
    points = [one for one in found["points"] if one["model"] == found["points"][0]["model"]]
    taus = ", ".join(
        f"{shown(one, 'tau', '{:.3f}')} from {_percent(one['share'])}" for one in points
    )
    text = (
        f"Kendall's tau {taus} of the graphs (ensembles of {found['members']},"
        f" {len(points[0]['seeds'])} seeds)"
    )
    if len(points) < 2:
        return text
    before, last = points[-2:]
    apart = last["mean"]["tau"] - before["mean"]["tau"]
    slower = last["mean"]["top1"] - before["mean"]["top1"]
    return (
        f"{text}; from {_percent(before['share'])} to {_percent(last['share'])} tau changes by"
        f" {apart:+.3f}, and the slow-down of the first choice by {slower:+.1%}"
    )


def _percent(share: float) -> str:
    return f"{100 * share:g} %"

"""What `passwright evaluate --json FILE` found, as Markdown for the docs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from passwright.training.curve_table import shown

#: Of each model: what is shown, and how.
_SHOWN = {
    "tau": ("tau", "{:.3f}"),
    "top1": ("first choice slower by", "{:.1%}"),
    "top3": ("best of three", "{:.1%}"),
    "sign": ("sign", "{:.3f}"),
    "error": ("error", "{:.3f}"),
}
_WORST = 5


def markdown(found: Mapping[str, Any]) -> str:
    """Models against each other, choices without a learned model, and where it costs most."""
    blocks = [
        _models(found),
        _choices(found),
        _intervals(found),
        "\n".join(filter(None, [_risk(found), _failures(found)])),
    ]
    return "\n\n".join(block for block in blocks if block)


def _models(found: Mapping[str, Any]) -> str:
    titles = [title for title, _ in _SHOWN.values()]
    lines = [
        "| model | " + " | ".join(titles) + " | p (tau) | p (first choice) | p of its mean |",
        "| --- |" + " ---: |" * (len(titles) + 3),
    ]
    for row in found["models"]:
        cells = [shown(row, name, form) for name, (_, form) in _SHOWN.items()]
        tests = [_p(row, f"{name}_difference") for name in ("tau", "regret")]
        tests.append(_p(row, "regret_difference", "p_mean"))
        lines.append(f"| {row['model']} | {' | '.join([*cells, *tests])} |")
    most = max(len(row["seeds"]) for row in found["models"])
    note = (
        f"- {found['device']}: {found['plans']:,} plans of {found['workloads']} workloads from"
        f" {found['families']} families, held out in {found['folds']} parts; ensembles of"
        f" {found['members']}; {most} seeds where the model has any, ± is half a 95 % interval over"
        " them. p: Wilcoxon's signed-rank test against the network, paired by workload; of the mean, a"
        " test that flips the signs of whole families."
    )
    return "\n".join([*lines, "", note])


def _p(row: Mapping[str, Any], name: str, p: str = "p") -> str:
    return f"{row[name][p]:.2g}" if p in row.get(name, {}) else ""


def _choices(found: Mapping[str, Any]) -> str:
    """Who chooses how well among the measured plans."""
    rows: dict[str, Sequence[Mapping[str, Any]]] = {}
    for row in found["models"]:
        if row.get("choices"):
            rows[row["model"]] = row["choices"]
        if row.get("whole models"):
            rows[f"{row['model']}, whole models alone"] = row["whole models"]
    rows |= {name: [one] for name, one in found.get("controls", {}).items()}
    if not rows:
        return ""
    lines = [
        "| who chooses | graphs | gain | of the best | slower than 0.98x | the worst | left alone |",
        "| --- |" + " ---: |" * 6,
    ]
    for name, seeds in rows.items():
        mean = {key: sum(one[key] for one in seeds) / len(seeds) for key in seeds[0]}
        lines.append(
            f"| {name} | {mean['graphs']:.0f} | {mean['speedup']:.3f}x | {mean['captured']:.0%}"
            f" | {mean['slower']:.1f} | {min(one['worst'] for one in seeds):.2f}x"
            f" | {mean['abstained']:.0%} |"
        )
    return "\n".join(lines)


def _intervals(found: Mapping[str, Any]) -> str:
    """How many plans lie within the intervals of the first model, by their number of steps."""
    first = found["models"][0]
    rows = first.get("coverage by steps")
    title = (
        f"Intervals of 90 %, {first['model']}, scaled by other families; width (from the mean to the lower"
        " bound) and mean absolute error of log(time before / time after):"
    )
    return f"{title}\n\n{by_steps(rows)}" if rows else ""


def by_steps(rows: Sequence[Mapping[str, Any]]) -> str:
    """A table of what `interval_coverage.by_steps` found."""
    lines = [
        "| steps | plans | families | inside | below | above | without the worst family | width | error |",
        "| --- |" + " ---: |" * 8,
    ]
    for row in rows:
        others = "-" if row["others"] is None else f"{row['others']:.1%} (without {row['worst']})"
        lines.append(
            f"| {row['steps']} | {row['plans']} | {row['families']} | {row['coverage']:.1%}"
            f" | {row['below']:.1%} | {row['above']:.1%} | {others}"
            f" | {row['width']:.2f} | {row['error']:.2f} |"
        )
    return "\n".join(lines)


def _risk(found: Mapping[str, Any]) -> str:
    rows = found.get("risk over coverage")
    if not rows:
        return ""
    shown = ", ".join(
        f"{row['share']:.0%}: {row['speedup']:.2f}x ({row['slower']:.0%} slower)" for row in rows
    )
    return f"- Acting on the surest graphs alone, by the share of graphs: {shown}."


def _failures(found: Mapping[str, Any]) -> str:
    failures = found.get("failures")
    if not failures:
        return ""
    families = ", ".join(
        f"{row['family']} ({row['graphs']} graphs, {row['top1']:.0%})"
        for row in failures["families"][:_WORST]
    )
    patterns = ", ".join(
        f"{row['pattern']} ({row['error']:.2f})"
        for row in [one for one in failures["patterns"] if one["plans"] >= 10][:_WORST]
    )
    new = failures.get("novelty", {}).get("new pattern")
    known = failures.get("novelty", {}).get("known patterns")
    novelty = (
        f"\n- Plans with a pattern of which nothing was learned are off by {new['error']:.2f}"
        f" ({new['plans']}), others by {known['error']:.2f}."
        if new and known
        else ""
    )
    return (
        f"- Families whose first choices cost most in all: {families}.\n"
        f"- Patterns whose plans are predicted worst (mean error of the log): {patterns}."
        f"{novelty}"
    )

"""The table of what each level adds, from the file that holds the measured blocks."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping
from typing import Any

_DEFAULT = "default"


def markdown(report: Mapping[str, Any]) -> str:
    """Gains over default compile, a model and mode a row, and their geometric means."""
    rows = [row for row in report["rows"] if row.get("measured")]
    if not rows:
        return "".join(f"- {line}\n" for line in _checked(report))
    rows.sort(key=lambda row: (row["mode"], row["model"]))
    baseline = rows[0]["measured"]["baseline"]
    names = [name for name in rows[0]["variants"] if name != baseline]
    lines = [
        f"| model | mode | {baseline}, us | " + " | ".join(names) + " |",
        "| --- | --- | ---: |" + " ---: |" * len(names),
    ]
    for row in rows:
        seconds = _seconds(row, baseline)
        cells = [_cell(row, name) for name in names]
        lines.append(
            f"| {row['model']} | {row['mode']} | {seconds * 1e6:.0f} | " + " | ".join(cells) + " |"
        )
    for mode in dict.fromkeys(row["mode"] for row in rows):
        cells = []
        for name in names:
            gains = [g for row in rows if row["mode"] == mode and (g := _gain(row, name))]
            found = [gain["median"] for gain in gains]
            cells.append(f"**{math.exp(statistics.fmean(found)):.2f}x**" if found else "")
        lines.append(f"| geometric mean | {mode} |  | " + " | ".join(cells) + " |")
    versions = report["versions"]
    lines += [
        "",
        (
            f"- {report['device']['name']}; torch {versions['torch']}, Passwright"
            f" {versions['passwright']}; batch {rows[0]['batch']}; {report['date']},"
            f" {report['seconds']:.0f} s in all. Gains are over {baseline}, device time, with 95 %"
            " intervals from interleaved blocks."
        ),
    ]
    lines += [f"- {line}" for line in _checked(report)]
    return "\n".join(lines) + "\n"


def _seconds(row: Mapping[str, Any], name: str) -> float:
    return float(statistics.median(row["measured"]["timings"][name]["blocks"]))


def _gain(row: Mapping[str, Any], name: str) -> Mapping[str, float] | None:
    found: Mapping[str, float] | None = row["measured"]["gains"].get(name)
    return found


def _cell(row: Mapping[str, Any], name: str) -> str:
    gain = _gain(row, name)
    if gain is None:
        return str(row["variants"][name].get("why", "not measured"))[:60]
    middle, low, high = (math.exp(gain[key]) for key in ("median", "lower", "upper"))
    return f"{middle:.2f}x [{low:.2f}, {high:.2f}]"


def _checked(report: Mapping[str, Any]) -> Iterator[str]:
    """How many variants agree with a float64 run, and which do not."""
    right = 0
    for row in report["rows"]:
        if "why" in row:
            yield f"{row['model']} {row['mode']}: {row['why']}"
            continue
        for name, variant in row["variants"].items():
            if "why" in variant:
                yield f"{row['model']} {row['mode']}, {name}: {variant['why'][:120]}"
            elif variant["agreement"]["ok"]:
                right += 1
            elif not row["variants"].get(_DEFAULT, variant)["agreement"]["ok"] and name != _DEFAULT:
                yield f"{row['model']} {row['mode']}, {name}: as far off as default compile"
            else:
                yield f"{row['model']} {row['mode']}, {name}: {variant['agreement']['sentence']}"
    yield f"{right} variants agree with a float64 run as well as eager does."

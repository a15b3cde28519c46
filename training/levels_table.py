"""Tables of what each level adds, and of what each setting does, from files with the measured blocks."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from passwright.scheduler.choice_gains import Measured
from passwright.training.headroom.final import DEFAULT

Report = Mapping[str, Any]
Row = Mapping[str, Any]


def markdown(report: Report) -> str:
    """A model and mode a row, or, of a comparison of settings, a setting a row; with the run's notes."""
    rows = [row for row in report["rows"] if row.get("measured")]
    if not rows:
        lines = []
    elif report.get("what") == "choices":
        lines = [*_settings(rows), ""]
    else:
        lines = [*_models(rows), ""]
    return "\n".join([*lines, *_notes(report, rows)]) + "\n"


def summary(report: Report) -> str:
    """Geometric means over the models, a variant a row, and the smallest gain."""
    rows = [row for row in report["rows"] if row.get("measured")]
    modes = list(dict.fromkeys(row["mode"] for row in rows))
    lines = [
        "| over default compile | " + " | ".join(_MODES[mode] for mode in modes) + " |",
        "| --- |" + " --- |" * len(modes),
    ]
    for name in _variants(rows):
        cells = []
        for mode in modes:
            gains = _medians(rows, name, mode)
            cells.append(
                f"{_times(statistics.fmean(gains))} ({_times(min(gains))} to {_times(max(gains))})"
            )
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    models = len({row["model"] for row in rows})
    lines += [
        "",
        f"- Geometric mean over {models} public models, in brackets the smallest and the largest.",
        f"- {_where(report, rows)}",
    ]
    return "\n".join(lines) + "\n"


_MODES = {"infer": "inference", "train": "training"}


# ---- a model a row


def _models(rows: Sequence[Row]) -> list[str]:
    rows = sorted(rows, key=lambda row: (row["mode"], row["model"]))
    baseline, names = _baseline(rows), _variants(rows)
    lines = [
        f"| model | mode | {baseline}, us | " + " | ".join(names) + " |",
        "| --- | --- | ---: |" + " ---: |" * len(names),
    ]
    for row in rows:
        seconds = statistics.median(row["measured"]["timings"][baseline]["blocks"])
        cells = [_cell(row, name) for name in names]
        lines.append(
            f"| {row['model']} | {row['mode']} | {seconds * 1e6:.0f} | " + " | ".join(cells) + " |"
        )
    for mode in dict.fromkeys(row["mode"] for row in rows):
        found = [_medians(rows, name, mode) for name in names]
        cells = [f"**{_times(statistics.fmean(gains))}**" if gains else "" for gains in found]
        lines.append(f"| geometric mean | {mode} |  | " + " | ".join(cells) + " |")
    return lines


def _cell(row: Row, name: str) -> str:
    gain = row["measured"]["gains"].get(name)
    if gain is None:
        return str(row["variants"][name].get("why", "not measured"))[:60]
    return (
        f"{_times(gain['median'])} [{math.exp(gain['lower']):.2f}, {math.exp(gain['upper']):.2f}]"
    )


# ---- a setting a row


def _settings(rows: Sequence[Row]) -> list[str]:
    modes = list(dict.fromkeys(row["mode"] for row in rows))
    cells = "".join(f" {_MODES[mode]} | one more model |" for mode in modes)
    lines = [f"| setting | {cells[1:]}", "| --- |" + " ---: |" * 2 * len(modes)]
    for name in sorted(_variants(rows)):
        cells = ""
        for mode in modes:
            gains = _medians(rows, name, mode)
            known = len(gains) > 1
            next_one = Measured(tuple(gains), None).interval if known else None
            cells += f" {', '.join(map(_times, sorted(gains)))} |" if gains else "  |"
            cells += (
                f" {_times(next_one.lower)} to {_times(next_one.upper)} |" if next_one else "  |"
            )
        lines.append(f"| `{name}` |{cells}")
    return lines


# ---- what rows hold


def _baseline(rows: Sequence[Row]) -> str:
    return str(rows[0]["measured"]["baseline"])


def _variants(rows: Sequence[Row]) -> list[str]:
    """Whatever was compared with the baseline."""
    found = dict.fromkeys(name for row in rows for name in row["variants"])
    return [name for name in found if name != _baseline(rows)]


def _medians(rows: Sequence[Row], name: str, mode: str) -> list[float]:
    """Log gains of a variant, a model each."""
    return [
        row["measured"]["gains"][name]["median"]
        for row in rows
        if row["mode"] == mode and name in row["measured"]["gains"]
    ]


def _times(gain: float) -> str:
    return f"{math.exp(gain):.2f}x"


# ---- notes


def _where(report: Report, rows: Sequence[Row]) -> str:
    versions = report["versions"]
    batch = f" batch {rows[0]['batch']};" if rows else ""
    return (
        f"{report['device']['name']}; torch {versions['torch']}, Passwright"
        f" {versions['passwright']};{batch} {report['date']}, {report['seconds']:.0f} s in all."
    )


def _notes(report: Report, rows: Sequence[Row]) -> Iterator[str]:
    if not rows:
        yield f"- {_where(report, report['rows'])}"
    else:
        yield (
            f"- {_where(report, rows)} Gains are over {_baseline(rows)}, device time, with 95 %"
            " intervals from interleaved blocks."
        )
    if report.get("what") == "choices":
        models = ", ".join(dict.fromkeys(row["model"] for row in rows))
        yield f"- One gain a model, the smallest first: {models}. For one more model, 90 %."
    for row in rows:
        if row["measured"]["timings"][_baseline(rows)].get("method") == "cuda-event":
            yield (
                f"- {row['model']} {row['mode']}: default compile cannot be captured in a CUDA graph, so"
                " times are those of eager launches."
            )
    yield from (f"- {line}" for line in _checked(report))


def _checked(report: Report) -> Iterator[str]:
    """How many variants agree with a float64 run, and which do not."""
    right = 0
    for row in report["rows"]:
        if "why" in row:
            yield f"{row['model']} {row['mode']}: {row['why'][:120]}"
            continue
        default = row["variants"].get(DEFAULT)
        for name, variant in row["variants"].items():
            if "why" in variant:
                yield f"{row['model']} {row['mode']}, {name}: {variant['why'][:120]}"
            elif variant["agreement"]["ok"]:
                right += 1
            elif default is not None and not default["agreement"]["ok"] and name != DEFAULT:
                yield f"{row['model']} {row['mode']}, {name}: as far off as default compile"
            else:
                yield f"{row['model']} {row['mode']}, {name}: {variant['agreement']['sentence']}"
    yield f"{right} variants agree with a float64 run as well as eager does."

"""Writes the tables of Markdown files from committed runs: `python -m passwright.training.readme FILE...`.

A table stands between `<!-- KIND FILE -->` and `<!-- end -->`, where FILE, beside the Markdown file, is
what a command wrote. So no number in it is typed by hand.

    table FILE       of `passwright demo --json FILE`
    headroom FILE    of `passwright headroom --json FILE`, with its notes
    levels FILE      of `python -m passwright.training.levels --json FILE`
    summary FILE     its geometric means alone
    bench FILE       of `passwright bench --json FILE`: what it comes to, and its notes
    benchmodels FILE  its models, one a row
    groups FILE      of `python -m passwright.training.grouping_sweep FILE`
    samplers FILE    of `python -m passwright.training.search.compare --json FILE`
    searches FILE    of `python -m passwright.training.search.curves --json FILE`, and longer runs beside it
    evaluation FILE  of `passwright evaluate --json FILE`
    curve FILE       of `passwright evaluate --curve --json FILE`
    records FOLDER   of `passwright collect`, packed: what each file holds and how far it can be trusted
    settings         the settings with their defaults
    choices          the settings of Inductor that can be steps of a plan
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

_MARKED = re.compile(
    r"(?P<begin><!-- (?P<kind>[a-z]+)(?: (?P<file>\S+))? -->\n).*?(?P<end><!-- end -->)", re.DOTALL
)


def with_tables(text: str, folder: Path) -> str:
    """`text` with every marked table made anew, those of runs from their files in `folder`."""

    def table(found: re.Match[str]) -> str:
        write = _WRITERS.get(found["kind"])
        if write is None:  # marked for somebody else
            return found[0]
        return f"{found['begin']}{write(folder / (found['file'] or ''))}\n{found['end']}"

    return _MARKED.sub(table, text)


def _demo(file: Path) -> str:
    from passwright.training.demo_report import load
    from passwright.training.demo_table import markdown

    return markdown(load(file)).strip()


def _headroom(file: Path) -> str:
    from passwright.training.headroom import report, table

    return f"\n{table.markdown(report.load(file)).strip()}\n"


def _levels(file: Path) -> str:
    from passwright.training.levels_table import markdown

    return markdown(json.loads(file.read_text(encoding="utf-8"))).strip()


def _summary(file: Path) -> str:
    from passwright.training.levels_table import summary

    return summary(json.loads(file.read_text(encoding="utf-8"))).strip()


def _bench(file: Path) -> str:
    from passwright.training.bench import rows, table

    return f"\n{table.summary_markdown(rows.load(file)).strip()}"


def _benchmodels(file: Path) -> str:
    from passwright.training.bench import rows, table

    return f"\n{table.rows_markdown(rows.load(file)).strip()}"


def _groups(file: Path) -> str:
    from passwright.training import grouping_sweep, sweep_file

    return grouping_sweep.markdown(sweep_file.load(file)).strip()


def _samplers(file: Path) -> str:
    found = json.loads(file.read_text(encoding="utf-8"))
    points = found["points"]
    lines = [
        "| sampler | " + " | ".join(f"{point} trials" for point in points) + " |",
        "| --- |" + " ---: |" * len(points),
    ]
    for row in found["rows"]:
        pairs = zip(row["share"], row["standard_error"], strict=True)
        cells = " | ".join(f"{share:.3f} ± {error:.3f}" for share, error in pairs)
        lines.append(f"| {row['sampler']} | {cells} |")
    notes = (
        f"- {found['instances']} problems of {found['passes']} passes; mean and its standard error."
    )
    return "\n".join([*lines, "", notes])


def _searches(file: Path) -> str:
    from passwright.training.search.curves_table import markdown

    long = file.with_name(file.name.replace("curves", "long"))
    texts = (one.read_text(encoding="utf-8") for one in (file, long))
    return markdown(*map(json.loads, texts))


def _evaluation(file: Path) -> str:
    from passwright.training.evaluation_table import markdown

    return markdown(json.loads(file.read_text(encoding="utf-8")))


def _curve(file: Path) -> str:
    from passwright.training.curve_table import markdown

    return markdown(json.loads(file.read_text(encoding="utf-8")))


def _records(folder: Path) -> str:
    from passwright.training.data_stats import stats_at

    found = {file.name: stats_at(file) for file in sorted(folder.glob("*.parquet"))}
    lines: dict[str, Callable[[Any], str]] = {
        "records": lambda s: f"{s.records:,}",
        "measured plans": lambda s: f"{s.status['measured'].records:,}",
        "different plans on a workload": lambda s: f"{s.keys:,}",
        "graphs": lambda s: f"{s.graphs:,}",
        "graphs of whole models": lambda s: (
            f"{s.kinds['model'].graphs if 'model' in s.kinds else 0:,}"
        ),
        "families": lambda s: f"{s.families}",
        "surely faster, surely slower": lambda s: f"{s.faster:.0%}, {s.slower:.0%}",
        "default compile against itself, within the floor": lambda s: (
            f"{s.trust.inside} of {s.trust.pairs}"
        ),
        "how far it differs, compiled anew: half, 95 %": lambda s: (
            f"{math.expm1(s.apart[50]):.1%}, {math.expm1(s.apart[95]):.1%}"
        ),
        "same plan in two runs, beyond the floor: on the same side": lambda s: (
            f"{s.trust.agree} of {s.trust.repeated}" if s.trust.repeated else "none twice"
        ),
    }
    rows = [
        f"| {name} | {' | '.join(show(stats) for stats in found.values())} |"
        for name, show in lines.items()
    ]
    return "\n".join([f"| | {' | '.join(found)} |", "| --- |" + " ---: |" * len(found), *rows])


def _settings(_: Path) -> str:
    from passwright.scheduler.settings import Settings

    rows = (f"| `{name}` | `{default}` | {what} |" for name, default, what in Settings.describe())
    return "\n".join(["| setting | default | meaning |", "|---|---|---|", *rows])


def _choices(_: Path) -> str:
    from passwright.scheduler.choices import all_choices

    lines = ["| choice | sets | what it does | on |", "|---|---|---|---|"]
    for choice in all_choices():
        sets = ", ".join(f"`{name}={value}`" for name, value in choice.patch.items())
        where = " and ".join(sorted(choice.devices))
        where += ", inference" if choice.inference_only else ""
        where += "; to be allowed" if choice.allow else ""
        lines.append(f"| `{choice.name}` | {sets} | {choice.meaning} | {where} |")
    return "\n".join(lines)


_WRITERS: Mapping[str, Callable[[Path], str]] = {
    "table": _demo,
    "headroom": _headroom,
    "levels": _levels,
    "summary": _summary,
    "bench": _bench,
    "benchmodels": _benchmodels,
    "groups": _groups,
    "samplers": _samplers,
    "searches": _searches,
    "evaluation": _evaluation,
    "curve": _curve,
    "records": _records,
    "settings": _settings,
    "choices": _choices,
}


def main(*paths: Path) -> int:
    """Rewrites the files; 1 if that changed anything, as a check in CI wants it."""
    changed = False
    for path in paths or (Path("README.md"),):
        before = path.read_text(encoding="utf-8")
        after = with_tables(before, path.parent)
        path.write_text(after, encoding="utf-8")
        changed |= before != after
    return int(changed)


if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:])))

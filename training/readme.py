"""Writes the tables of a Markdown file from committed runs: `python -m passwright.training.readme`.

A table stands between `<!-- table FILE -->` and `<!-- end -->`, where FILE, beside the Markdown file,
is what `passwright demo --json FILE` wrote; after `<!-- bench FILE -->` it is what `passwright bench
--json FILE` did, with its notes. So no number in it is typed by hand. Between `<!-- settings -->` and
`<!-- end -->` stand the settings with their defaults.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

_SETTINGS = re.compile(r"(<!-- settings -->\n).*?(<!-- end -->)", re.DOTALL)
_BENCH = re.compile(r"(<!-- bench (?P<file>\S+) -->\n).*?(<!-- end -->)", re.DOTALL)
_MARKED = re.compile(r"(<!-- table (?P<file>\S+) -->\n).*?(<!-- end -->)", re.DOTALL)


def with_tables(text: str, folder: Path) -> str:
    """`text` with every marked table made anew, those of runs from their files in `folder`."""
    from passwright.training.demo_report import load
    from passwright.training.demo_table import markdown

    def table(found: re.Match[str]) -> str:
        return f"{found[1]}{markdown(load(folder / found['file'])).strip()}\n{found[3]}"

    def bench(found: re.Match[str]) -> str:
        from passwright.training import bench_report, bench_table

        report = bench_report.load(folder / found["file"])
        return f"{found[1]}\n{bench_table.markdown(report).strip()}\n\n{found[3]}"

    text = _BENCH.sub(bench, text)
    text = _SETTINGS.sub(lambda found: f"{found[1]}{_settings()}\n{found[2]}", text)
    return _MARKED.sub(table, text)


def _settings() -> str:
    from passwright.scheduler.settings import Settings

    rows = (f"| `{name}` | `{default}` | {what} |" for name, default, what in Settings.describe())
    return "\n".join(["| setting | default | meaning |", "|---|---|---|", *rows])


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

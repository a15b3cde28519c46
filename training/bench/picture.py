"""A picture of a benchmark for a page: gains over default compile, a model a line, ours against rivals.

    python -m passwright.training.bench.picture data/reports/bench-h200.json docs/bench-h200.svg

One SVG, drawn without a library so that the same file always gives the same picture. Its colours follow the
reader's light or dark theme.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

from passwright.training.bench.rivals import COMBO, MAX_AUTOTUNE, OPTIMUS, PREDICT, TUNE
from passwright.training.bench.rows import Report, State, gain, load
from passwright.training.bench.summary import MODES, Group, groups
from passwright.training.headroom.final import DEFAULT

#: Rivals that are drawn, ours last so that their marks lie on top.
DRAWN = (MAX_AUTOTUNE, OPTIMUS, COMBO, TUNE, PREDICT)
_LINE, _TOP, _LABELS, _PANEL, _GAP, _MARGIN = 18, 64, 190, 300, 26, 14
#: Width of a letter.
_CHAR = 6.4
#: Ticks of the scale, of which those within the gains are drawn.
_TICKS = (0.25, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0, 100.0)
_STYLE = """
text { font: 11px system-ui, sans-serif; fill: #1f2328; }
.quiet { fill: #59636e; }
.head { font-weight: 600; font-size: 12px; }
.grid { stroke: #d1d9e0; } .one { stroke: #59636e; }
.max-autotune { fill: #9a6700; } .optimus { fill: #8250df; } .combo-kernels { fill: #0969da; }
.tune { fill: none; stroke: #1a7f37; stroke-width: 1.6; } .predict { fill: #1a7f37; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3; }
  .quiet { fill: #9198a1; }
  .grid { stroke: #3d444d; } .one { stroke: #9198a1; }
  .max-autotune { fill: #d29922; } .optimus { fill: #ab7df8; } .combo-kernels { fill: #4493f8; }
  .tune { stroke: #3fb950; } .predict { fill: #3fb950; }
}
"""

#: Log gains of a model by mode and rival.
Gains = dict[str, dict[str, float]]


def svg(report: Report, suite: str = "") -> str:
    """The picture of a suite, of the report's first if none is named; ValueError where nothing was
    measured."""
    found = [group for group in groups(report) if group.suite == suite or not suite]
    if not found:
        raise ValueError(f"no case of suite {suite!r} was measured")
    group = found[0]
    models = _sorted(_gains(report, group))
    if not models:
        raise ValueError(f"no rival of suite {group.suite} has a gain over default compile")
    values = [v for gains in models.values() for by in gains.values() for v in by.values()]
    low, high = min(0.0, *values) - 0.05, max(0.0, *values) + 0.05
    names = [n for n in DRAWN if any(n in by for gains in models.values() for by in gains.values())]
    modes = [mode for mode in MODES if any(mode in gains for gains in models.values())]
    height = _TOP + _LINE * len(models) + 24
    names_of = {model: model.removeprefix("zoo:") for model in models}
    labels = max(_LABELS, 20 + math.ceil(_CHAR * max(map(len, names_of.values()))))
    width = labels + len(modes) * (_PANEL + _GAP) + _MARGIN
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
        f"<title>{escape(_title(report, group))}</title>",
        f"<style>{_STYLE}</style>",
        _text(_MARGIN, 18, _title(report, group), "head"),
        *_legend(names),
    ]
    for number, model in enumerate(models):
        y = _TOP + _LINE * number + _LINE / 2
        parts.append(_text(labels - 10, y + 4, names_of[model], "", "end"))
    for number, mode in enumerate(modes):
        left = labels + number * (_PANEL + _GAP)
        parts += _panel(mode, left, models, names, low, high)
    return "\n".join([*parts, "</svg>", ""])


def _title(report: Report, group: Group) -> str:
    device, torch = report.device["name"], report.versions["torch"]
    return f"Speed-up over default torch.compile: {group.title}; {device}, torch {torch}"


def _gains(report: Report, group: Group) -> dict[str, Gains]:
    found: dict[str, Gains] = {}
    for case in group.cases:
        rows = report.of(case)
        for name in DRAWN:
            one = gain(rows.get(name), rows.get(DEFAULT))
            if one is not None and rows[name].state is State.OK:
                found.setdefault(group.named(case), {}).setdefault(case.phase, {})[name] = (
                    one.median
                )
    return found


def _sorted(models: dict[str, Gains]) -> dict[str, Gains]:
    """Where predict gains most, first."""

    def key(model: str) -> tuple[float, str]:
        ours = [by[PREDICT] for by in models[model].values() if PREDICT in by]
        return -sum(ours) / len(ours) if ours else math.inf, model

    return {model: models[model] for model in sorted(models, key=key)}


def _legend(names: Sequence[str]) -> Iterator[str]:
    x = float(_MARGIN)
    for name in names:
        yield _mark(name, x + 5, 36)
        yield _text(x + 14, 40, name)
        x += 30 + 6.2 * len(name)


def _panel(
    mode: str,
    left: int,
    models: dict[str, Gains],
    names: Sequence[str],
    low: float,
    high: float,
) -> Iterator[str]:
    def x(value: float) -> float:
        return left + (value - low) / (high - low) * _PANEL

    bottom = _TOP + _LINE * len(models)
    yield _text(left + _PANEL / 2, _TOP - 8, MODES[mode], "quiet", "middle")
    for tick in _TICKS:
        at = math.log(tick)
        if low <= at <= high:
            kind = "one" if tick == 1.0 else "grid"
            yield f'<line class="{kind}" x1="{x(at):.1f}" x2="{x(at):.1f}" y1="{_TOP}" y2="{bottom}"/>'
            yield _text(x(at), bottom + 14, f"{tick:g}x", "quiet", "middle")
    for number, gains in enumerate(models.values()):
        y = _TOP + _LINE * number + _LINE / 2
        for name in names:
            value = gains.get(mode, {}).get(name)
            if value is not None:
                yield _mark(name, x(value), y)


def _mark(name: str, x: float, y: float) -> str:
    size = 4.5 if name in (PREDICT, TUNE) else 3.5
    return (
        f'<circle class="{name.lower().replace(" ", "-")}" cx="{x:.1f}" cy="{y:.1f}" r="{size}"/>'
    )


def _text(x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> str:
    style = f' class="{kind}"' if kind else ""
    return f'<text{style} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def main(source: str, target: str, suite: str = "") -> None:
    """Writes the picture of a report."""
    Path(target).write_text(svg(load(Path(source)), suite), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])

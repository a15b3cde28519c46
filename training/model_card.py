"""The card of a gain model: what it was trained on, how well it predicts what it never saw, its limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from passwright.training import interval_coverage
from passwright.training.aims import missed
from passwright.training.conformal import calibrated, held_out_coverage
from passwright.training.curve_table import line
from passwright.training.evaluation_table import by_steps
from passwright.training.failures import by_family, by_pattern
from passwright.training.gain_metrics import Plans, scores
from passwright.training.policy import choices, of_whole_models

_SHOWN = {
    "tau": "Kendall's tau within a graph",
    "pairs": "pairs in the right order",
    "top1": "slow-down of the plan it would choose, against the best measured one",
    "top3": "the same of the best of its first three",
    "sign": "surely faster or slower, predicted so",
    "captured": "share of the best measured gain that its choice has",
    "error": "mean absolute error of log(time before / time after)",
}
#: Of choices among measured plans.
_CHOSEN = {
    "graphs": "graphs",
    "speedup": "gain, geometric mean",
    "captured": "share of what the best plans gain",
    "slower": "come out slower than 0.98x",
    "worst": "the worst",
    "abstained": "share left alone",
}
#: So many families and patterns that cost most are named, of patterns those of so many plans.
_NAMED, _PLANS = 6, 10
_CARD = """\
# Gain model for {{ about.device }}

Predicts log(time before / time after) of rewrites, with 90 % intervals, for
`torch.compile(model, backend="passwright")`.

- **Trained on:** {{ about.plans }} measured plans of {{ about.workloads }} graphs from
  {{ about.families | length }} families, by Passwright {{ about.passwright }}, seed {{ about.seed }}.
- **Families:** {{ about.families | join(", ") }}.
- **Of families it never saw**, each predicted by networks that learned from others:

| | |
| --- | ---: |
{% for what, value in rows -%}
| {{ what }} | {{ "%.3f" | format(value) }} |
{% endfor %}
- **Choices among their measured plans**, by the surest gain, or none. Intervals are scaled by other
  families:

| | all | whole models |{% if suite %} frozen suite | there, by the analytic model |{% endif %}
| --- | ---: | ---: |{% if suite %} ---: | ---: |{% endif %}
{% for what, cells in chosen -%}
| {{ what }} |{% for cell in cells %} {{ cell }} |{% endfor %}
{% endfor %}
{% if intervals -%}
- **Intervals of 90 %**, scaled by other families: {{ intervals }}.
{% endif -%}
{% if steps -%}
- **By the number of steps of a plan**, scaled in the same way; width (from the mean to the lower bound) and
  mean absolute error of log(time before / time after):

{{ steps }}

{% endif -%}
- **Aims missed:** {{ missed | join("; ") or "none" }}.
{% if curve -%}
- **Learning curve**, families it never saw, by the share of the other families' graphs: {{ curve }}.
{% endif -%}
- **Costs most:** families {{ families | join(", ") }}; patterns {{ patterns | join(", ") }}.
- **Limits:** one kind of device; what was never measured alike has wider intervals, and what lies too far
  off is refused. `model.safetensors` holds
  numbers alone, and `config.json` says how they are used.
- **Licence:** Apache-2.0, as the repository.
"""


def card(
    about: Mapping[str, Any],
    found: Sequence[Plans],
    suite: Mapping[str, Any] | None = None,
    curve: Mapping[str, Any] | None = None,
) -> str:
    """Markdown. `found`: predictions of families that were held out. `suite`: `Verdict.to_json` against the
    analytic model, on families that nobody learns from. `curve`: of `learning_curve.learning_curve`."""
    from jinja2 import StrictUndefined, Template

    widened = calibrated(found)
    figures = scores(found).to_json()
    columns = [_chosen(widened), _chosen(of_whole_models(widened))]
    columns += [suite["new"], suite["old"]] if suite else []
    steps, inside = interval_coverage.by_steps([widened]), scores(widened).coverage
    text: str = Template(_CARD, undefined=StrictUndefined, keep_trailing_newline=True).render(
        about=about,
        rows=[(what, figures[name]) for name, what in _SHOWN.items() if name in figures],
        chosen=[(what, [_cell(one, name) for one in columns]) for name, what in _CHOSEN.items()],
        suite=suite,
        intervals=_intervals(held_out_coverage(found), inside),
        steps=by_steps(steps) if steps else "",
        missed=missed(figures, inside, steps),
        curve=line(curve) if curve else "",
        families=[
            f"{row['family']} ({row['top1']:.0%} over {row['graphs']} graphs)"
            for row in by_family(found)[:_NAMED]
        ],
        patterns=[
            f"{row['pattern']} (mean error {row['error']:.2f})"
            for row in [row for row in by_pattern(found) if row["plans"] >= _PLANS][:_NAMED]
        ],
    )
    return text


def _intervals(coverage: Mapping[str, float], plans: float) -> str:
    """How many lie inside: of all plans, and by family."""
    if not coverage:
        return ""
    mean = sum(coverage.values()) / len(coverage)
    worst = min(coverage, key=lambda family: (coverage[family], family))
    return (
        f"{plans:.1%} of plans inside; over families {mean:.1%} on average, and {coverage[worst]:.1%} in"
        f" the worst, {worst}"
    )


def _chosen(found: Sequence[Plans]) -> Mapping[str, Any]:
    return choices(found).to_json() if any(len(one.gains) > 1 for one in found) else {}


def _cell(figures: Mapping[str, Any], name: str) -> str:
    if name not in figures:
        return "-"
    value = figures[name]
    if name in ("graphs", "slower"):
        return str(value)
    return f"{value:.0%}" if name in ("captured", "abstained") else f"{value:.2f}x"

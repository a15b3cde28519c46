"""The card of a gain model: what it was trained on, how well it predicts what it never saw, its limits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from passwright.training.gain_metrics import Scores

_SHOWN = {
    "tau": "Kendall's tau within a graph",
    "pairs": "pairs in the right order",
    "top1": "slow-down of the plan it would choose, against the best measured one",
    "top3": "the same of the best of its first three",
    "sign": "surely faster or slower, predicted so",
    "captured": "share of the best measured gain that its choice has",
    "error": "mean absolute error of log(time before / time after)",
}
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
{% if coverage -%}
- **Intervals of 90 %**, scaled by other families: {{ "%.1f" | format(100 * mean) }} % inside on average
  over families, {{ "%.1f" | format(100 * coverage[worst]) }} % in the worst ({{ worst }}).
{% endif -%}
- **Limits:** one kind of device; what was never measured alike is refused. `model.safetensors` holds
  numbers alone, and `config.json` says how they are used.
- **Licence:** Apache-2.0, as the repository.
"""


def card(about: Mapping[str, Any], scores: Scores, coverage: Mapping[str, float]) -> str:
    """Markdown. `coverage`: share inside the intervals by family, empty if it is not known."""
    from jinja2 import StrictUndefined, Template

    found = scores.to_json()
    text: str = Template(_CARD, undefined=StrictUndefined, keep_trailing_newline=True).render(
        about=about,
        rows=[(what, found[name]) for name, what in _SHOWN.items() if name in found],
        coverage=coverage,
        mean=sum(coverage.values()) / max(1, len(coverage)),
        worst=min(coverage, key=lambda family: (coverage[family], family), default=""),
    )
    return text

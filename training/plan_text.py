"""The plans of a record: the texts of its graphs' plans, one after the other.

A text of no step at all is "", whatever the graphs are, so that doing nothing has one spelling.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from passwright.passes.address import digest
from passwright.scheduler.plan import Plan

_HEAD = re.compile(r"^(?=# passwright plan )", re.MULTILINE)


class Placed(NamedTuple):
    """A step, and the graph that it is for."""

    #: Fingerprint of the graph.
    graph: str
    #: As in a plan file: `batch_linears{members=4} @ b007c9d13b09:9a4eecccecf3`.
    label: str

    @property
    def pattern(self) -> str:
        """Its pattern, or the setting of Inductor."""
        return re.split(r"[{ ]", self.label, maxsplit=1)[0]


def text_of(plans: Sequence[Plan]) -> str:
    """The plans of a model's graphs, in the order of the graphs, as a record keeps them."""
    return "".join(plan.to_text() for plan in plans) if any(p.steps for p in plans) else ""


def plans_of(text: str) -> list[Plan]:
    """The plans again, without gains and diffs. Raises PlanFormatError for anything else."""
    return [Plan.from_text(part) for part in _HEAD.split(text) if part.strip()]


def steps_of(text: str) -> tuple[Placed, ...]:
    """All steps in order, those of the first graph first. Raises PlanFormatError."""
    plans = plans_of(text)
    return tuple(Placed(plan.fingerprint, step.label) for plan in plans for step in plan.steps)


def plan_key(plans: Sequence[Plan]) -> str:
    """Hash of the steps in the order in which they stand, by graph; what has none plays no part.

    Plans that make the same graphs in another order have other keys, and the same `Record.result`.
    """
    parts = [
        digest(plan.level, plan.fingerprint, *(step.label for step in plan.steps))
        for plan in plans
        if plan.steps
    ]
    return digest("plan", *parts)


def graphs_key(fingerprints: Sequence[str]) -> str:
    """One fingerprint of all graphs of a model: that of the graph, where there is one."""
    return fingerprints[0] if len(fingerprints) == 1 else digest("graphs", *fingerprints)

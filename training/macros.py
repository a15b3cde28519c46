"""Macro actions: one pattern everywhere. The benchmark's search puts these in a row, not single steps.

    batch_linears{form=own}   ==>   every candidate of batch_linears with that form, until none is left

A whole model has hundreds of candidates but few patterns, and like places mostly gain or lose alike.
So a search over macros comes far with the few dozen compiles that it can afford.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from torch import fx

from passwright.passes.errors import IllegalRewrite
from passwright.passes.graph import GraphView
from passwright.passes.matching import CleanUp, Rewriter
from passwright.passes.pattern import Candidate, Exactness
from passwright.passes.table import PatternTable
from passwright.scheduler.plan import Plan
from passwright.scheduler.planner import replay

#: Bounds of one macro, for patterns that could go on for ever.
_PASSES, _STEPS = 16, 600
_LABEL = re.compile(r"^(?P<pattern>\w+)(\{(?P<choice>[^{}]*)\})?$")
_FEWEST = "fewest members"


@dataclass(frozen=True, order=True)
class Macro:
    """A pattern, and which of the candidates at one anchor where it offers several.

    `form` is the candidate's parameter of that name, if it has one. Of groups that differ in the
    number of members, the largest is taken, or the smallest with `fewest`.
    """

    pattern: str
    form: str = ""
    fewest: bool = False

    @property
    def label(self) -> str:
        """`batch_linears{form=own, fewest members}`."""
        parts = [f"form={self.form}"] * bool(self.form) + [_FEWEST] * self.fewest
        return f"{self.pattern}{{{', '.join(parts)}}}" if parts else self.pattern

    @classmethod
    def parse(cls, label: str) -> Macro:
        """Reads a label; ValueError for anything else."""
        found = _LABEL.match(label)
        if not found:
            raise ValueError(f"{label!r} is no macro")
        parts = (found["choice"] or "").split(", ")
        form = next((part.removeprefix("form=") for part in parts if part.startswith("form=")), "")
        return cls(found["pattern"], form, _FEWEST in parts)

    def takes(self, candidate: Candidate) -> bool:
        """Whether the candidate is one of this macro's."""
        return candidate.pattern.name() == self.pattern and _form(candidate) == self.form


CLEAN_UP = Macro(CleanUp.name())


@dataclass(frozen=True)
class State:
    """A way to rewrite a model's graphs: the macros in order, after the planner's plan if `planned`."""

    macros: tuple[Macro, ...] = ()
    planned: bool = False

    @property
    def label(self) -> str:
        """`plan + batch_linears + ...`, or `nothing`."""
        parts = ["plan"] * self.planned + [macro.label for macro in self.macros]
        return " + ".join(parts) or "nothing"

    @classmethod
    def parse(cls, label: str) -> State:
        """Reads a label; ValueError for anything else."""
        parts = [] if label == "nothing" else label.split(" + ")
        planned = parts[:1] == ["plan"]
        return cls(tuple(Macro.parse(part) for part in parts[planned:]), planned)

    def then(self, macro: Macro) -> State:
        return replace(self, macros=(*self.macros, macro))

    def shorter(self) -> list[State]:
        """All states with one macro less."""
        counts = range(len(self.macros))
        return [replace(self, macros=self.macros[:n] + self.macros[n + 1 :]) for n in counts]


NOTHING, PLANNED = State(), State(planned=True)


def open_macros(graph: fx.Graph, table: PatternTable, *, relaxed: bool = False) -> list[Macro]:
    """Macros that have a candidate in the graph, in a fixed order."""
    return _opened(Rewriter(GraphView(graph), table), relaxed=relaxed)


def _opened(rewriter: Rewriter, *, relaxed: bool) -> list[Macro]:
    found: dict[Macro, None] = {}
    sizes: dict[tuple[str, str, str], set[object]] = {}
    for candidate in rewriter.candidates(cleanup=False):
        if candidate.pattern.exactness is Exactness.RELAXED and not relaxed:
            continue
        macro = Macro(candidate.pattern.name(), _form(candidate))
        found[macro] = None
        offered = sizes.setdefault((macro.pattern, macro.form, candidate.anchor), set())
        offered.add(dict(candidate.match.parameters).get("members"))
        if len(offered) > 1:
            found[replace(macro, fewest=True)] = None
    return sorted(found)


def apply_macro(graph: fx.Graph, macro: Macro, table: PatternTable) -> list[str]:
    """Performs the macro; the labels of its steps. Refused candidates are skipped; where the steps
    together are refused, nothing changes and there are none."""
    rewriter = Rewriter(GraphView(graph), table)
    try:
        if macro == CLEAN_UP:
            record = rewriter.apply(rewriter.sweep())
            labels = [record.label] if record.inserted or record.replaced else []
        else:
            labels = _all_of(rewriter, macro)
        rewriter.editor.finish()
    except IllegalRewrite:
        rewriter.editor.rollback()
        return []
    graph.lint()
    return labels


class Macros:
    """Macros in a row on one graph, whose steps then replay from their labels as one plan.

    A graph that is read anew after each macro gives nodes new addresses, and the steps of a sequence would
    not find their places again.
    """

    def __init__(self, graph: fx.Graph, table: PatternTable) -> None:
        self._rewriter = Rewriter(GraphView(graph), table)

    def open(self) -> list[Macro]:
        """Macros that have a candidate now, but for those that lower precision."""
        return _opened(self._rewriter, relaxed=False)

    def perform(self, macro: Macro) -> list[str]:
        """The labels of the steps. Refused candidates are skipped."""
        if macro == CLEAN_UP:
            record = self._rewriter.apply(self._rewriter.sweep())
            return [record.label] if record.inserted or record.replaced else []
        return _all_of(self._rewriter, macro)

    def replay(self, plan: Plan) -> list[str]:
        """The labels of the plan's steps that find their places in the graph as it is."""
        return [step.label for step in replay(plan, self._rewriter).steps]


def apply_state(
    graph: fx.Graph, state: State, table: PatternTable, plans: Sequence[Plan] = ()
) -> list[str]:
    """Performs the state on one of the model's graphs; the labels of all its steps.

    `plans` are those of the model's graphs; the one with the graph's fingerprint is replayed if the
    state is planned. Otherwise clean-up comes first, as it does in a plan.
    """
    labels: list[str] = []
    if state.planned:
        labels += _replay(graph, plans, table)
    elif state.macros:
        labels += apply_macro(graph, CLEAN_UP, table)
    for macro in state.macros:
        labels += apply_macro(graph, macro, table)
    return labels


def _replay(graph: fx.Graph, plans: Sequence[Plan], table: PatternTable) -> list[str]:
    rewriter = Rewriter(GraphView(graph), table)
    plan = next((p for p in plans if p.fingerprint == rewriter.view.fingerprint), None)
    if plan is None or not plan.steps:
        return []
    try:
        replayed = replay(plan, rewriter)
        rewriter.editor.finish()
    except IllegalRewrite:
        rewriter.editor.rollback()
        return []
    graph.lint()
    return [step.label for step in replayed.steps]


def _all_of(rewriter: Rewriter, macro: Macro) -> list[str]:
    """Passes over the graph, each of candidates that do not conflict, until one changes nothing."""
    labels: list[str] = []
    refused: set[tuple[str, str, str]] = set()
    with rewriter.only(macro.pattern):
        for _ in range(_PASSES):
            taken: list[Candidate] = []
            for candidate in _wanted(rewriter, macro):
                if len(labels) + len(taken) >= _STEPS:
                    break
                if candidate.order in refused or any(candidate.conflicts(o) for o in taken):
                    continue
                # The steps before may have changed what this one matched.
                current = rewriter.find(candidate.anchor, candidate.key)
                if current is None:
                    continue
                try:
                    rewriter.apply(current)
                except IllegalRewrite:
                    refused.add(candidate.order)
                    continue
                taken.append(candidate)
            labels += [candidate.label for candidate in taken]
            if not taken:
                break
    return labels


def _wanted(rewriter: Rewriter, macro: Macro) -> Iterator[Candidate]:
    """The macro's candidates, those of most members first, or of fewest."""
    found = [c for c in rewriter.candidates(cleanup=False) if macro.takes(c)]
    sign = 1 if macro.fewest else -1
    yield from sorted(found, key=lambda c: (sign * _members(c), c.order))


def _members(candidate: Candidate) -> int:
    given = dict(candidate.match.parameters).get("members")
    return given if isinstance(given, int) else len(candidate.match.nodes)


def _form(candidate: Candidate) -> str:
    return str(dict(candidate.match.parameters).get("form", ""))

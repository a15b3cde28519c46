"""Graphs that macros lead to: what a sequence comes to, and what is predicted of it, without its plan.

    nothing --batch_linears--> A --widen_linears--> B        and so does   nothing --widen_linears--> B

Where the first macro leaves the second nothing to do, both sequences come to the same graphs. A search
sees thousands of sequences of a few hundred states, so each macro is performed once in each state.
Steps of a plan have to be found in the graph that the planner started from, which they are not here: a
sequence that is to be measured is planned from the start (`models.Sequences`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace

from torch import fx

from passwright.passes.address import digest
from passwright.passes.errors import IllegalRewrite
from passwright.passes.graph import GraphView
from passwright.passes.table import default_table
from passwright.scheduler.gain import Interval
from passwright.scheduler.inductor import clone_for_compile
from passwright.training.macros import CLEAN_UP, Macro, apply_macro, open_macros
from passwright.training.model_plan import ModelPlan, applied, fingerprints
from passwright.training.proposals import Graphs, foretold
from passwright.training.search.space import Labels

PLANNED = "plan"
#: So many states have their graphs kept; those of others are made again.
_KEPT = 256


class States:
    """The states of one model. `planned` is asked once, for what the label `PLANNED` stands for."""

    def __init__(self, graphs: Graphs, planned: Callable[[], ModelPlan]) -> None:
        self._graphs, self._planned = graphs, planned
        self._table = default_table()
        self._start = _content(graphs.captured)
        self._next: dict[tuple[str, str], str] = {}
        #: Macros that have a candidate in a state; others leave it as it is.
        self._open: dict[str, frozenset[Macro]] = {}
        #: From which state, and by what, each was reached first.
        self._from: dict[str, tuple[str, str]] = {}
        self._kept: OrderedDict[str, Sequence[fx.GraphModule]] = OrderedDict()
        self._predicted: dict[str, Interval] = {}

    def reach(self, sequence: Labels) -> str:
        """The state that the sequence leads to: the same for sequences that make the same graphs.

        Clean-up comes before all else, unless the plan does, which begins with it; elsewhere the plan
        has no place.
        """
        state = self._start
        for label in leading(sequence):
            state = self._after(state, label)
        return state

    def effective(self, sequence: Labels) -> Labels:
        """The sequence without what does nothing where it stands; it leads to the same state."""
        state, kept = self._start, []
        for label in leading(sequence):
            after = self._after(state, label)
            # Without the plan, clean-up would come first.
            if after != state or label == PLANNED:
                kept.append(label)
            state = after
        # Before others it need not be named.
        return tuple(kept[1:] if len(kept) > 1 and kept[0] == CLEAN_UP.label else kept)

    def predicted(self, sequence: Labels) -> Interval:
        """What the analytic model says the graphs that the sequence leads to gain, 90 %."""
        state = self.reach(sequence)
        if state not in self._predicted:
            self._predicted[state] = foretold(self._graphs, self._made(state))
        return self._predicted[state]

    def _after(self, state: str, label: str) -> str:
        found = self._next.get((state, label))
        if found is None:
            if not self._does_something(state, label):
                self._next[state, label] = state
                return state
            after = self._perform(self._made(state), label)
            found = _content(after)
            self._next[state, label] = found
            if found != self._start:
                self._from.setdefault(found, (state, label))
                self._keep(found, after)
        return found

    def _does_something(self, state: str, label: str) -> bool:
        """Whether it may: finding candidates once costs less than trying each macro."""
        if label in (PLANNED, CLEAN_UP.label):
            return True
        if state not in self._open:
            graphs = self._made(state)
            self._open[state] = frozenset(
                macro for graph in graphs for macro in open_macros(graph.graph, self._table)
            )
        return replace(Macro.parse(label), fewest=False) in self._open[state]

    def _made(self, state: str) -> Sequence[fx.GraphModule]:
        """The graphs of the state, made again if they were forgotten."""
        if state == self._start:
            return self._graphs.captured
        if state not in self._kept:
            before, label = self._from[state]
            self._keep(state, self._perform(self._made(before), label))
        self._kept.move_to_end(state)
        return self._kept[state]

    def _keep(self, state: str, graphs: Sequence[fx.GraphModule]) -> None:
        self._kept[state] = graphs
        if len(self._kept) > _KEPT:
            self._kept.popitem(last=False)

    def _perform(self, graphs: Sequence[fx.GraphModule], label: str) -> list[fx.GraphModule]:
        return [self._performed(graph, label) for graph in graphs]

    def _performed(self, graph: fx.GraphModule, label: str) -> fx.GraphModule:
        if label == PLANNED:
            plan = self._planned().of(fingerprints([graph])[0])
            try:
                return applied(graph, plan, self._table)[0]
            except IllegalRewrite:
                return graph
        there = clone_for_compile(graph)
        return there if apply_macro(there.graph, Macro.parse(label), self._table) else graph


def _content(graphs: Sequence[fx.GraphModule]) -> str:
    """The same for graphs with the same nodes, in whatever order those stand: which of two rewrites was
    done first often shows in nothing else."""
    views = [GraphView(graph.graph) for graph in graphs]
    return digest(*(digest(*sorted(map(view.address, view.graph.nodes))) for view in views))


def leading(sequence: Labels) -> Labels:
    """The sequence with clean-up before all else, and the plan nowhere but there."""
    if sequence[:1] == (PLANNED,):
        return (PLANNED, *(label for label in sequence if label != PLANNED))
    rest = tuple(label for label in sequence if label != PLANNED)
    return (CLEAN_UP.label, *rest) if rest else ()

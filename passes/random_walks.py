"""Random sequences of rewrites on random graphs: whatever a planner might do must keep the meaning.

A failure is a wrong value, gradient, stride or alias, a crash, a graph that does not lint, or a new
guard on a symbolic size. A refused step is none. The same seed does the same everywhere. How a graph
is compared with what it was is a `Trial`: by default it runs as it is; others may compile it.
"""

from __future__ import annotations

import copy
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from torch import fx

from passwright.passes.conformance_copy import Copy
from passwright.passes.conformance_spelling import quiet
from passwright.passes.conformance_values import Unfit, disagreement
from passwright.passes.errors import FaultyRewrite, IllegalRewrite
from passwright.passes.graph import GraphView
from passwright.passes.matching import Rewriter
from passwright.passes.pattern import Direction
from passwright.passes.random_graphs import RandomGraph, random_graph
from passwright.passes.sketch import snapshot
from passwright.passes.table import PatternTable, default_table

#: Longest sequence; patterns that undo each other would go on for ever.
LIMIT = 120
#: Random graphs are conditioned worse than models; a wrong rewrite is off by far more.
LENIENCY = 4.0


#: Says what is wrong with the rewritten graph, in words, or nothing; raises TorchFails.
Check = Callable[[RandomGraph, fx.GraphModule], str]


class TorchFails(Exception):
    """The untouched graph does not pass the check either, so that it says nothing about the steps."""


def as_it_is(graph: RandomGraph, module: fx.GraphModule) -> str:
    """Runs the rewritten graph op by op on all inputs of the original."""
    for inputs in graph.inputs:
        try:
            found = disagreement(graph.module, module, inputs, leniency=LENIENCY, seed=graph.seed)
        except Unfit:
            continue
        if found:
            return found
    return ""


@dataclass(frozen=True)
class Trial:
    """How graphs grow, which steps are taken, and how what comes out is compared with the original."""

    grow: Callable[[int], RandomGraph] = random_graph
    check: Check = as_it_is
    #: Numbers of steps of which one is drawn; candidates may run out earlier.
    lengths: tuple[int, ...] = (1, 3, 8, LIMIT)
    #: The chance that a horizontal step is taken where there is one.
    horizontal: float = 0.0
    #: Most replays while a failure is made small.
    replays: int = 1000


EAGER = Trial()


@dataclass(frozen=True)
class Step:
    """One step of a walk, findable again."""

    label: str
    anchor: str
    key: str


@dataclass
class Walk:
    """What was done to one graph."""

    seed: int
    steps: list[Step] = field(default_factory=list)
    #: How often patterns had candidates, were applied, and were refused.
    seen: Counter[str] = field(default_factory=Counter)
    applied: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    #: What is wrong, in words; empty where all is well.
    failure: str = ""
    #: What is wrong with the untouched graph too, where the check found something.
    excused: str = ""


class _Failed(Exception):
    pass


def walk(seed: int, table: PatternTable | None = None, trial: Trial = EAGER) -> Walk:
    """Grows the graph of this seed, applies candidates at random, and compares."""
    graph = trial.grow(seed)
    draw, done = random.Random(seed), Walk(seed)
    length = draw.choice(trial.lengths)

    def steps(rewriter: Rewriter) -> None:
        refused: set[tuple[str, str, str]] = set()
        while len(done.steps) < length:
            candidates = rewriter.candidates()
            _check_reports(rewriter)
            done.seen.update({c.pattern.name() for c in candidates})
            left = [c for c in candidates if c.order not in refused]
            if not left and draw.random() < 0.5:
                return
            if trial.horizontal and draw.random() < trial.horizontal:
                left = [c for c in left if c.pattern.direction is Direction.HORIZONTAL] or left
            chosen = draw.choice(left) if left else rewriter.sweep()
            step = Step(chosen.label, chosen.anchor, chosen.key)
            before = None
            if draw.random() < 0.1:
                before = _look(rewriter)
            try:
                done.steps.append(step)
                rewriter.apply(chosen)
                done.applied[chosen.pattern.name()] += 1
            except FaultyRewrite as error:
                raise _Failed(f"{step.label}: {error}") from error
            except IllegalRewrite:
                done.steps.pop()
                refused.add(chosen.order)
                done.refused[chosen.pattern.name()] += 1
                if before is not None and _look(rewriter) != before:
                    raise _Failed(f"{step.label} was refused and left a trace") from None
            if not left:
                return

    try:
        done.failure = _attempt(graph, table or default_table(), steps, trial.check)
    except TorchFails as excuse:
        done.excused = str(excuse)
    return done


def replay(
    graph: RandomGraph,
    steps: Sequence[Step],
    table: PatternTable | None = None,
    trial: Trial = EAGER,
) -> str:
    """Applies these steps, as far as they are still found, and compares; what is wrong."""

    def apply(rewriter: Rewriter) -> None:
        for step in steps:
            found = rewriter.find(step.anchor, step.key)
            if found is not None:
                try:
                    rewriter.apply(found)
                except FaultyRewrite as error:
                    raise _Failed(f"{step.label}: {error}") from error
                except IllegalRewrite:
                    continue
            _check_reports(rewriter)

    try:
        return _attempt(graph, table or default_table(), apply, trial.check)
    except TorchFails:
        return ""


def shrink(
    failed: Walk, table: PatternTable | None = None, trial: Trial = EAGER
) -> tuple[RandomGraph, list[Step], str]:
    """A smaller graph and fewer steps that still fail, and how."""
    graph = trial.grow(failed.seed)
    steps, failure = list(failed.steps), failed.failure
    left = trial.replays

    def fails(graph: RandomGraph, steps: Sequence[Step]) -> str:
        nonlocal left
        left -= 1
        return replay(graph, steps, table, trial) if left >= 0 else ""

    if not fails(graph, steps):
        return graph, steps, failure
    size = len(steps)
    while size and left > 0:  # halves, then quarters, and in the end each step alone
        size = (size + 1) // 2
        for start in reversed(range(0, len(steps), size)):
            fewer = steps[:start] + steps[start + size :]
            found = fails(graph, fewer)
            if found:
                steps, failure = fewer, found
        if size == 1:
            break
    for smaller in _smaller(graph):
        found = fails(smaller, steps)
        if found:
            return smaller, steps, found
    return graph, steps, failure


def _attempt(
    graph: RandomGraph, table: PatternTable, apply: Callable[[Rewriter], None], check: Check
) -> str:
    """Applies steps to the graph and compares with what it was; what is wrong, or nothing."""
    module = copy.deepcopy(graph.module)
    guards = _guards(graph)
    try:
        with quiet():
            rewriter = Rewriter(GraphView(module.graph), table)
            apply(rewriter)
            rewriter.editor.finish()
            module.graph.lint()
            module.recompile()
    except _Failed as failed:
        return str(failed)
    except IllegalRewrite as error:
        return f"finish refused what steps had done: {error}"
    except Exception as error:
        return f"crash: {error!r}"
    if _guards(graph) != guards:
        return f"guards were added: {_guards(graph)[len(guards) :]}"
    return check(graph, module)


def _check_reports(rewriter: Rewriter) -> None:
    """A pattern whose code raised was asked no more; here that is a failure."""
    for pattern in rewriter._reported:
        raise _Failed(f"pattern {pattern.name()} raised an error (see the log)")


def _guards(graph: RandomGraph) -> list[str]:
    return [] if graph.shapes is None else [str(guard.expr) for guard in graph.shapes.guards]


def _look(rewriter: Rewriter) -> list[object]:
    living = [row for row in snapshot(rewriter.view.graph) if not rewriter.view.is_buried(row[0])]  # type: ignore[arg-type]
    return [row[:6] for row in living]


def _smaller(graph: RandomGraph) -> list[RandomGraph]:
    """The graph with one of its outputs, and what that needs; smallest first."""
    if graph.shapes is not None:
        return []
    found = []
    count = len(graph.module.graph.output_node().all_input_nodes)
    for number in range(count):
        try:
            module = _OneOutput(graph.module.graph, number).module()
        except Exception:  # not every graph can be sketched again
            continue
        module.graph.eliminate_dead_code()
        module.recompile()
        found.append(RandomGraph(graph.seed, graph.traits, module, graph.inputs, None))
    return sorted(found, key=lambda g: len(g.module.graph.nodes))


class _OneOutput(Copy):
    def __init__(self, graph: fx.Graph, number: int) -> None:
        super().__init__(graph)
        self.number = number

    def results(self, results: list[object]) -> list[object]:
        return [results[self.number]]

"""Random sequences of rewrites on random graphs: whatever a planner might do must keep the meaning.

A failure is a wrong value, gradient, stride or alias, a crash, a graph that does not lint, or a new
guard on a symbolic size. A refused step is none. The same seed does the same everywhere.
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
from passwright.passes.random_graphs import RandomGraph, random_graph
from passwright.passes.sketch import snapshot
from passwright.passes.table import PatternTable, default_table

#: Longest sequence; patterns that undo each other would go on for ever.
_LIMIT = 120
#: Random graphs are conditioned worse than models; a wrong rewrite is off by far more.
_LENIENCY = 4.0


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


class _Failed(Exception):
    pass


def walk(seed: int, table: PatternTable | None = None, *, longest: int = _LIMIT) -> Walk:
    """Grows the graph of this seed, applies candidates at random, and compares."""
    graph = random_graph(seed)
    draw, done = random.Random(seed), Walk(seed)
    length = draw.choice([1, 3, 8, longest])

    def steps(rewriter: Rewriter) -> None:
        refused: set[tuple[str, str, str]] = set()
        while len(done.steps) < length:
            candidates = rewriter.candidates()
            _check_reports(rewriter)
            done.seen.update({c.pattern.name() for c in candidates})
            left = [c for c in candidates if c.order not in refused]
            if not left and draw.random() < 0.5:
                return
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

    done.failure = _attempt(graph, table or default_table(), steps)
    return done


def replay(graph: RandomGraph, steps: Sequence[Step], table: PatternTable | None = None) -> str:
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

    return _attempt(graph, table or default_table(), apply)


def shrink(failed: Walk, table: PatternTable | None = None) -> tuple[RandomGraph, list[Step], str]:
    """A smaller graph and fewer steps that still fail, and how."""
    graph, steps, failure = random_graph(failed.seed), list(failed.steps), failed.failure
    if not replay(graph, steps, table):
        return graph, steps, failure
    position = len(steps) - 1
    while position >= 0:
        fewer = steps[:position] + steps[position + 1 :]
        found = replay(graph, fewer, table)
        if found:
            steps, failure = fewer, found
        position -= 1
    for smaller in _smaller(graph):
        found = replay(smaller, steps, table)
        if found:
            return smaller, steps, found
    return graph, steps, failure


def _attempt(graph: RandomGraph, table: PatternTable, apply: Callable[[Rewriter], None]) -> str:
    """Applies steps to the graph and compares with what it was; what is wrong, or nothing."""
    original, module = graph.module, copy.deepcopy(graph.module)
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
    for inputs in graph.inputs:
        try:
            found = disagreement(original, module, inputs, leniency=_LENIENCY, seed=graph.seed)
        except Unfit:
            continue
        if found:
            return found
    return ""


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

"""The properties that a pattern must have, one function each; an AssertionError says what is wrong.

Most try the pattern on copies of an example's graph with one change each (see `conformance_copy`). A
copy on which the pattern finds nothing is fine there: what counts is that it does nothing wrong.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import fx

from passwright.passes.address import digest, target_name
from passwright.passes.conformance_copy import (
    Copy,
    Impossible,
    MixedTypes,
    OtherType,
    Region,
    Respelled,
    Seen,
    Spellings,
    Strided,
    Written,
)
from passwright.passes.conformance_spelling import quiet
from passwright.passes.conformance_subject import Outcome, Subject, counts, rewritten, shown
from passwright.passes.conformance_values import Unfit, disagreement
from passwright.passes.dialect import Dialect
from passwright.passes.errors import IllegalRewrite
from passwright.passes.graph import GraphView
from passwright.passes.interrupted import InterruptedEditor, Interruption
from passwright.passes.matching import Rewriter
from passwright.passes.ops import Op
from passwright.passes.pattern import Exactness
from passwright.passes.sample import sample_inputs
from passwright.passes.sketch import snapshot
from passwright.passes.table import PatternTable
from passwright.passes.testing import text


def events(subject: Subject) -> None:
    """The example has as many ops before, after, inserted and removed as it says."""
    example = subject.example
    assert subject.dialects, "the example is of none of the pattern's levels"
    for dialect in subject.dialects:
        found = subject.outcome(dialect)
        assert not found.refused, f"in {dialect.name}: {found.refused}"
        assert found.steps, f"nothing found in {dialect.name}:\n{shown(subject.graph(dialect))}"
    if Dialect.TORCH not in subject.dialects:
        return
    found = subject.outcome(Dialect.TORCH)
    before, after = counts(found.original.graph), counts(found.module.graph)
    seen = {
        "steps": len(found.steps),
        "changes": (found.inserted, found.removed),
        "before": {kind.__name__: before[kind] for kind in example.before},
        "after": {kind.__name__: after[kind] for kind in example.after},
    }
    wanted = {
        "steps": example.steps,
        "changes": example.changes,
        "before": {kind.__name__: count for kind, count in example.before.items()},
        "after": {kind.__name__: count for kind, count in example.after.items()},
    }
    assert seen == wanted, f"{seen}, wanted {wanted}:\n{shown(found.module.graph)}"


def matching(subject: Subject) -> None:
    """Looking for candidates changes nothing, and finds the same each time."""
    for dialect in subject.dialects:
        module = Copy(subject.graph(dialect)).module()
        before = snapshot(module.graph)
        found = []
        for _ in range(2):
            rewriter = Rewriter(GraphView(module.graph), PatternTable([subject.pattern]))
            found += [[c.label for c in rewriter.candidates()] for _ in range(2)]
        assert snapshot(module.graph) == before, "matches() changes the graph"
        assert all(labels == found[0] for labels in found), f"matches() is fickle: {found}"


def spellings(subject: Subject) -> None:
    """However the ops are spelled, the rewritten graph is the same op for op."""
    for dialect in subject.dialects:
        graph = subject.graph(dialect)
        plain = rewritten(Copy(graph).module(), subject.pattern)
        every = Spellings(graph)
        every.module()
        count = max(map(len, every.found.values()), default=0)
        for number in _some(list(range(count)), dialect, 3):
            module = Respelled(graph, every.found, number).module()
            found = rewritten(module, subject.pattern)
            same = meaning(found.module.graph) == meaning(plain.module.graph)
            assert same, (
                f"rewritten in another way when spelled so ({dialect.name}):"
                f"\n{shown(module.graph)}\n==>\n{shown(found.module.graph)}"
                f"\nand not\n{shown(plain.module.graph)}\n{found.refused}"
            )


def values(subject: Subject) -> None:
    """Values, gradients, strides and aliases, in three types; in a second dialect in two."""
    for dialect in subject.dialects:
        fitting = 0
        wide = [torch.float64] if dialect is subject.dialects[0] else []
        for dtype in (*wide, torch.float32, torch.bfloat16):
            try:
                module = OtherType(subject.graph(dialect), dtype).module()
            except Impossible:
                continue
            found = rewritten(module, subject.pattern)
            assert found.steps or found.refused, f"nothing found in {dtype}"
            fitting += _compare(subject, found, f"in {dtype}, {dialect.name}", seed=fitting)
        assert fitting, "the example cannot be computed in any type"


def dynamic(subject: Subject) -> None:
    """With a symbolic batch it applies, is right at two sizes, and adds no guard."""
    graph = subject.dynamic()
    if graph is None or Dialect.TORCH not in subject.dialects:
        return
    before = _guards(graph.module)
    found = rewritten(graph.module, subject.pattern)
    assert found.steps, f"nothing found with a symbolic batch: {found.refused}"
    assert _guards(graph.module) == before, "guards on sizes were added"
    for inputs in graph.inputs:
        wrong = disagreement(graph.module, found.module, inputs)
        assert not wrong, f"with a symbolic batch: {wrong}:\n{shown(found.module.graph)}"


def writes(subject: Subject) -> None:
    """A write to any input, or to any value, at any place lets no stale value through."""
    for dialect in subject.dialects:
        graph = subject.graph(dialect)
        inputs = list(graph.find_nodes(op="placeholder"))
        plain = Copy(graph)
        calls = len(plain.calls)
        places = [(n, i) for i in inputs for n in range(calls + 1)]
        places += [(n, c) for at, c in enumerate(plain.calls) for n in range(at + 1, calls + 1)]
        # In a second dialect the same rules hold, and few places show that they are asked.
        most = 12 if dialect is subject.dialects[0] else 4
        copies = (Written(graph, number, target) for number, target in _some(places, dialect, most))
        _try(subject, copies, "with a write", training=False)


def mixed_types(subject: Subject) -> None:
    """One call in another type: not merged with the others, or merged rightly."""
    for dialect in subject.dialects:
        graph = subject.graph(dialect)
        calls = range(len(Copy(graph).calls))
        places = [(n, dtype) for n in calls for dtype in (torch.float64, torch.bfloat16)]
        copies = (MixedTypes(graph, number, dtype) for number, dtype in _some(places, dialect, 2))
        _try(subject, copies, "with one call in another type")


def regions(subject: Subject) -> None:
    """A part of the graph without gradients, or under autocast."""
    if Dialect.TORCH not in subject.dialects:
        return
    graph = subject.graph(Dialect.TORCH)
    calls = len(Copy(graph).calls)
    spans = [(a, b) for a in range(calls) for b in range(a + 1, calls + 1)]
    for autocast in (False, True):
        copies = (
            Region(graph, *span, autocast=autocast) for span in _some(spans, Dialect.TORCH, 2)
        )
        _try(subject, copies, "under autocast" if autocast else "without gradients in part")


def aliases(subject: Subject) -> None:
    """Values between are returned as well, as they are, as views, and as raw memory."""
    for dialect in subject.dialects:
        graph = subject.graph(dialect)
        calls = range(len(Copy(graph).calls))
        places = [([n], how) for how in ("plain", "view", "flat", "memory") for n in calls]
        places += [(list(calls), how) for how in ("plain", "view")]
        copies = (Seen(graph, *place) for place in _some(places, dialect, 3))
        _try(subject, copies, "with more outputs")


def strides(subject: Subject) -> None:
    """Inputs that lie in memory otherwise, one at a time and all."""
    for dialect in subject.dialects:
        graph = subject.graph(dialect)
        # Not of vectors: backward, torch's batch norm reads a weight as if it had no strides.
        values = [node.meta[dialect.value] for node in graph.find_nodes(op="placeholder")]
        count = [n for n, value in enumerate(values) if value.ndim > 1]
        some = [*([n] for n in count), count]
        places = [(numbers, how) for numbers in some for how in ("columns", "spread")]
        copies = (Strided(graph, *place) for place in _some(places, dialect, 2))
        _try(subject, copies, "with other strides")


def replay(subject: Subject) -> None:
    """The steps, as text, give the same graph in another capture."""
    first = subject.outcome(subject.dialects[0])
    fresh = subject.captured_again()
    rewriter = Rewriter(GraphView(fresh.graph), PatternTable([subject.pattern]))
    for step in first.steps:
        anchor, _, key = step.label.rpartition(" @ ")[2].rpartition(":")
        found = rewriter.find(anchor, key)
        assert found is not None, f"{step.label} is not found in another capture"
        assert found.label == step.label
        rewriter.apply(found)
    rewriter.editor.finish()
    assert text(fresh.graph) == text(first.module.graph)


def rollback(subject: Subject) -> None:
    """A step that is interrupted, wherever that is, leaves the graph exactly as it was."""
    for dialect in subject.dialects:
        module = Copy(subject.graph(dialect)).module()
        view = GraphView(module.graph)
        before = snapshot(module.graph)
        known = [(view.address(n), view.read(n), view.any_spec(n)) for n in module.graph.nodes]
        point, ended = 0, False
        while not ended:
            point += 1
            rewriter = Rewriter(view, PatternTable([subject.pattern]))
            first = rewriter.candidates()
            assert first, "nothing found"
            rewriter.editor = InterruptedEditor(view, point)
            try:
                with quiet():
                    rewriter.apply(first[0])
                ended = True
            except Interruption:
                pass
            except IllegalRewrite as error:
                raise AssertionError(f"the first candidate is refused: {error}") from error
            rewriter.editor.rollback()
            assert snapshot(module.graph) == before, f"not undone after {point} changes"
            now = [(view.address(n), view.read(n), view.any_spec(n)) for n in module.graph.nodes]
            assert now == known, f"the view is not as it was after {point} changes"
        assert point > 1, "the step changes nothing through the editor"


#: All of them, by name.
CHECKS = (
    *(events, matching, spellings, values, dynamic, writes, mixed_types, regions),
    *(aliases, strides, replay, rollback),
)


def meaning(graph: fx.Graph) -> tuple[str, Counter[str]]:
    """What the graph computes, in canonical ops: equal for graphs that differ in spelling alone."""
    view = GraphView(graph)
    known: dict[fx.Node, str] = {}
    kinds: Counter[str] = Counter()
    for number, node in enumerate(graph.nodes):
        op = view.read(node)
        if node.op == "placeholder":
            known[node] = f"input {number}"
        elif op is None:
            known[node] = digest(
                target_name(node), _shown(node.args, known), _shown(node.kwargs, known)
            )
        else:
            fields = [f.name for f in dataclasses.fields(op) if f.name != "node"]
            parts = [f"{name}={_shown(getattr(op, name), known)}" for name in fields]
            known[node] = digest(type(op).__name__, *parts)
        kinds[type(op).__name__ if isinstance(op, Op) else target_name(node)] += 1
    return known[graph.output_node()], kinds


def _shown(value: Any, known: dict[fx.Node, str]) -> str:
    if isinstance(value, fx.Node):
        return known[value]
    if isinstance(value, (tuple, list)):
        return f"[{', '.join(_shown(item, known) for item in value)}]"
    if isinstance(value, dict):
        return f"[{', '.join(f'{k}={_shown(v, known)}' for k, v in sorted(value.items()))}]"
    return repr(value)


def _try(subject: Subject, copies: Iterable[Copy], what: str, *, training: bool = True) -> None:
    """Rewrites each copy that torch accepts, and compares."""
    for copied in copies:
        try:
            with quiet():
                module = copied.module()
        except Impossible:
            continue
        found = rewritten(module, subject.pattern)
        if found.steps:
            _compare(subject, found, what, training=training)


def _compare(
    subject: Subject, found: Outcome, what: str, *, training: bool = True, seed: int = 0
) -> bool:
    """Raises AssertionError where the rewritten graph is worse; False where nothing can be told."""
    bitwise = subject.pattern.exactness is Exactness.BITWISE
    inputs = sample_inputs(found.original, seed=seed)
    try:
        wrong = disagreement(
            found.original, found.module, inputs, training=training, bitwise=bitwise, seed=seed
        )
    except Unfit:
        return False
    assert not wrong, (
        f"{what}: {wrong}\n{shown(found.original.graph)}\n==>\n{shown(found.module.graph)}"
    )
    return True


def _some(items: list[Any], dialect: Dialect, most: int) -> Iterator[Any]:
    """At most that many, spread evenly; other ones in ATen-IR than in Torch-IR."""
    step = max(1.0, len(items) / most)
    start = step / 2 if dialect is Dialect.ATEN and step > 1 else 0.0
    return (items[int(start + number * step)] for number in range(min(len(items), most)))


def _guards(module: fx.GraphModule) -> list[str]:
    """Guards of the shape environment behind the graph's symbols."""
    for node in module.graph.find_nodes(op="placeholder"):
        mode = getattr(node.meta.get(Dialect.TORCH.value), "fake_mode", None)
        if mode is not None and mode.shape_env is not None:
            return [str(guard.expr) for guard in mode.shape_env.guards]
    return []

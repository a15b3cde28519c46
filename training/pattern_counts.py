"""How often patterns match in a model, and what is left of it when everything that matches is done.

Nothing is measured or predicted here: counts say what the library finds, not what pays.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_map_only

from passwright.passes.dialect import Dialect
from passwright.passes.errors import IllegalRewrite
from passwright.passes.graph import GraphView
from passwright.passes.matching import Rewriter
from passwright.passes.pattern import Candidate, Exactness
from passwright.passes.table import PatternTable
from passwright.scheduler.inductor import clone_for_compile
from passwright.training.workloads import find

#: Bounds of the walk: rounds over a graph, and steps of one pattern in it.
ROUNDS, STEPS = 32, 300


@dataclass(frozen=True)
class Count:
    """What was found in the graphs of one model. Dicts go from a pattern's name to a number."""

    #: Ops as captured, after clean-up alone, and after everything.
    ops: tuple[int, int, int] = (0, 0, 0)
    #: Candidates after clean-up; of clean-up patterns before it.
    candidates: dict[str, int] = field(default_factory=dict)
    #: Steps of the walk that does everything.
    steps: dict[str, int] = field(default_factory=dict)
    #: Steps that the editor refused.
    refused: int = 0
    #: Candidates after clean-up if the values lay on a GPU, where that was asked for.
    gpu_candidates: dict[str, int] | None = None

    def plus(self, other: Count) -> Count:
        """The sum over two graphs."""
        before, swept, after = (a + b for a, b in zip(self.ops, other.ops, strict=True))
        gpu = None
        if self.gpu_candidates is not None or other.gpu_candidates is not None:
            gpu = _sum(self.gpu_candidates or {}, other.gpu_candidates or {})
        return Count(
            (before, swept, after),
            _sum(self.candidates, other.candidates),
            _sum(self.steps, other.steps),
            self.refused + other.refused,
            gpu,
        )


def count_model(name: str, table: PatternTable, *, train: bool, as_gpu: bool = False) -> Count:
    """Counts in all graphs that Dynamo makes of a workload, with the grad mode of its compile."""
    graphs = capture(name, train=train)
    total = Count()
    with torch.set_grad_enabled(train):
        for graph in graphs:
            total = total.plus(count_graph(graph, table, as_gpu=as_gpu))
    return total


def capture(name: str, *, train: bool) -> list[fx.GraphModule]:
    """The graphs that Dynamo makes of a workload in its usual batch."""
    module, inputs = find(name).build(train=train)
    graphs: list[fx.GraphModule] = []

    def backend(graph: fx.GraphModule, _inputs: Sequence[Any]) -> Callable[..., Any]:
        graphs.append(graph)
        forward: Callable[..., Any] = graph.forward
        return forward

    torch._dynamo.reset()
    with torch.set_grad_enabled(train):
        torch.compile(module, backend=backend, dynamic=False)(*inputs)
    return graphs


def count_graph(captured: fx.GraphModule, table: PatternTable, *, as_gpu: bool = False) -> Count:
    """Counts in one graph, of which a copy is rewritten."""
    rewriter = Rewriter(GraphView(clone_for_compile(captured).graph), table)
    before = _ops(rewriter)
    found = _by_pattern(rewriter.candidates(cleanup=True))
    rewriter.apply(rewriter.sweep())
    swept = _ops(rewriter)
    found += _by_pattern(rewriter.candidates(cleanup=False))
    steps, refused = everything(rewriter)
    try:
        rewriter.editor.finish()
        after = _ops(rewriter)
    except IllegalRewrite:  # all of it is refused
        steps, refused, after = Counter(), refused + steps.total(), before
    gpu = dict(_on_gpu(captured, table)) if as_gpu else None
    return Count((before, swept, after), dict(found), dict(steps), refused, gpu)


def everything(rewriter: Rewriter) -> tuple[Counter[str], int]:
    """Applies whatever matches, the largest candidate first, until nothing is left; the steps by
    pattern, and how many were refused.

    No step is taken twice, so that patterns that undo each other come to an end; ROUNDS and STEPS
    bound what grows. Patterns that lower precision are left out, as they are unless allowed.
    """
    done: Counter[str] = Counter()
    tried: set[tuple[str, str, str]] = set()
    refused = 0
    for _ in range(ROUNDS):
        taken: list[Candidate] = []
        busy: set[fx.Node] = set()
        for candidate in sorted(rewriter.candidates(cleanup=False), key=_largest_first):
            name = candidate.pattern.name()
            if candidate.pattern.exactness is Exactness.RELAXED or done[name] >= STEPS:
                continue
            if candidate.order in tried or not busy.isdisjoint(candidate.match.nodes):
                continue
            # Steps of this round may have changed what was matched.
            current = rewriter.find(candidate.anchor, candidate.key)
            if current is None:
                continue
            tried.add(candidate.order)
            try:
                rewriter.apply(current)
            except IllegalRewrite:
                refused += 1
                continue
            busy.update(candidate.match.nodes)
            taken.append(candidate)
            done[name] += 1
        if not taken:
            break
    return done, refused


def _largest_first(candidate: Candidate) -> tuple[int, tuple[str, str, str]]:
    return -len(candidate.match.nodes), candidate.order


def _on_gpu(captured: fx.GraphModule, table: PatternTable) -> Counter[str]:
    """Candidates after clean-up of a graph whose values are said to lie on a GPU.

    They are only looked for: without a GPU torch cannot run every op on such fake tensors, which
    performing a step takes.
    """
    graph = clone_for_compile(captured).graph
    rewriter = Rewriter(GraphView(graph), table)
    found = _by_pattern(rewriter.candidates(cleanup=True))
    rewriter.apply(rewriter.sweep())
    rewriter.editor.finish()
    relabel(graph, "cuda")
    return found + _by_pattern(Rewriter(GraphView(graph), table).candidates(cleanup=False))


def relabel(graph: fx.Graph, device: str) -> None:
    """Says in the fake tensors of a graph that they lie on the device, each as it lay before and in
    memory shared as before."""
    mode = FakeTensorMode()
    memory: dict[int, Tensor] = {}

    def moved(value: Tensor) -> Tensor:
        storage = value.untyped_storage()
        base = memory.get(storage._cdata)
        if base is None:
            # A multiple of 16 bytes, which can be read as any type.
            base = torch.empty(-(-storage.nbytes() // 16) * 16, dtype=torch.uint8, device=device)
            memory[storage._cdata] = base
        there = base.view(value.dtype)
        there = there.as_strided(value.shape, value.stride(), value.storage_offset())
        return there.requires_grad_(value.requires_grad)

    key = Dialect.of(graph).value
    with mode, torch.no_grad():
        for node in graph.nodes:
            if key in node.meta:
                node.meta[key] = tree_map_only(Tensor, moved, node.meta[key])


def _by_pattern(candidates: Sequence[Candidate]) -> Counter[str]:
    return Counter(candidate.pattern.name() for candidate in candidates)


def _ops(rewriter: Rewriter) -> int:
    """Nodes that are no input and no output."""
    return sum(n.op not in ("placeholder", "output", "get_attr") for n in rewriter.view.nodes())


def _sum(first: dict[str, int], second: dict[str, int]) -> dict[str, int]:
    return dict(Counter(first) + Counter(second))

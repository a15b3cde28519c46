"""The graphs of a model before and after its plan, as data for a picture: which nodes went, which came, and
by which step."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import fx

from passwright.passes.address import target_name
from passwright.passes.errors import IllegalRewrite
from passwright.passes.graph import GraphView
from passwright.passes.matching import Rewriter
from passwright.passes.spec import AnySpec, Spec
from passwright.passes.table import PatternTable
from passwright.scheduler.commands.models import Subject
from passwright.scheduler.inductor import many_compiles
from passwright.scheduler.lowering import plan_below
from passwright.scheduler.plan import Plan, Step
from passwright.scheduler.settings import Settings
from passwright.training.model_plan import ModelPlan, applied
from passwright.training.report.model_content import INSERTED, REMOVED, Drawing, DrawnNode
from passwright.training.report.prefixes import TORCH
from passwright.training.report.replaying import Replaying
from passwright.training.workloads.capture import Captured


@dataclass(frozen=True)
class Drawn:
    """Before and after, and the diff of each step, which a plan that was read from text does not have."""

    before: Drawing
    after: Drawing
    diffs: Mapping[int, tuple[str, ...]]


def drawn(
    graph: fx.Graph,
    numbered: Sequence[tuple[int, Step]],
    table: PatternTable,
    hidden: Collection[str] = (),
) -> Drawn:
    """Performs the steps, by their numbers, once more on a copy of a graph, which is changed. A step that
    finds no place is passed over, as in a compile; inputs that are `hidden` are not drawn."""
    known = {node.name for node in graph.nodes}
    view = GraphView(graph)
    before = _drawing(view, hidden, {}, REMOVED)
    rewriter = Rewriter(view, table)
    removed: dict[str, int] = {}
    inserted: dict[fx.Node, int] = {}
    diffs: dict[int, tuple[str, ...]] = {}
    for number, step in numbered:
        candidate = None if step.is_setting else rewriter.find(step.anchor, step.key)
        if candidate is None:
            continue
        try:
            record = rewriter.apply(candidate)
        except IllegalRewrite:
            continue
        diffs[number] = tuple(record.diff())
        removed |= {n.name: number for n in record.removed if n.name in known}
        inserted |= dict.fromkeys(record.inserted, number)
    rewriter.editor.finish()  # which names what is new
    living = set(graph.nodes)
    come = {node.name: number for node, number in inserted.items() if node in living}
    marked = tuple(_marked(node, removed, REMOVED) for node in before.nodes)
    after = _drawing(GraphView(graph), hidden, come, INSERTED)
    return Drawn(Drawing(marked, before.edges), after, diffs)


def parameters(found: Captured) -> frozenset[str]:
    """Placeholders of weights, of which there are more than of all else, and which no step changes."""
    inputs = [node.name for node in found.graph.graph.nodes if node.op == "placeholder"]
    return frozenset(inputs[at] for at in (*found.parameters, *found.buffers))


@dataclass(frozen=True)
class Watching(Replaying):
    """Draws what it rewrites at ATen-IR, by the fingerprint of the graph."""

    numbered: Mapping[str, Sequence[tuple[int, Step]]] = field(default_factory=dict)
    seen: dict[str, Drawn] = field(default_factory=dict)

    def plan_graph(
        self, graph: fx.Graph, *, training: bool, given: Iterable[str] | None = None
    ) -> Plan:
        copied = copy.deepcopy(graph)
        plan = super().plan_graph(graph, training=training, given=given)
        steps = self.numbered.get(plan.fingerprint)
        if steps:
            # Weights and inputs cannot be told apart here.
            inputs = {node.name for node in copied.nodes if node.op == "placeholder"}
            self.seen[plan.fingerprint] = drawn(copied, steps, self.table, inputs)
        return plan


def drawn_below(
    subject: Subject,
    settings: Settings,
    plans: Sequence[Plan],
    numbered: Mapping[str, Sequence[tuple[int, Step]]],
) -> Mapping[str, Drawn]:
    """Graphs of ATen-IR with steps, by their fingerprints; `plans` are those of all levels. Lowers the
    model once more, and compiles nothing."""
    watching = replace(
        Watching.of_plans(replace(settings, levels="torch+aten"), plans), numbered=numbered, seen={}
    )
    model = ModelPlan(tuple(plan for plan in plans if plan.level == TORCH))

    def backend(gm: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        there, _ = applied(gm, model.of(GraphView(gm.graph).fingerprint), watching.table)
        plan_below(watching, there, inputs)
        return gm.forward

    with many_compiles():
        subject.step(torch.compile(subject.module, backend=backend, dynamic=False))()
    return watching.seen


def _drawing(
    view: GraphView, hidden: Collection[str], marks: Mapping[str, int], mark: str
) -> Drawing:
    shown = [
        node
        for node in view.nodes()
        if node.op not in ("output", "get_attr") and node.name not in hidden
    ]
    number = {node: place for place, node in enumerate(shown)}
    nodes = tuple(
        _marked(
            DrawnNode(
                node.name,
                "input" if node.op == "placeholder" else target_name(node),
                _shape(view.any_spec(node)),
                is_input=node.op == "placeholder",
            ),
            marks,
            mark,
        )
        for node in shown
    )
    edges = tuple(
        (number[source], number[node])
        for node in shown
        for source in node.all_input_nodes
        if source in number
    )
    return Drawing(nodes, edges)


def _marked(node: DrawnNode, marks: Mapping[str, int], mark: str) -> DrawnNode:
    step = marks.get(node.name, 0)
    if not step:
        return node
    return DrawnNode(node.name, node.call, node.shape, mark, step, node.is_input)


def _shape(spec: AnySpec) -> str:
    """`[512, 64]`; of several values the number."""
    if isinstance(spec, Spec):
        kind = str(spec.dtype).removeprefix("torch.")
        sizes = ", ".join(map(str, spec.shape))
        return f"[{sizes}]" if kind == "float32" else f"[{sizes}] {kind}"
    return f"{len(spec)} values" if isinstance(spec, tuple) else ""

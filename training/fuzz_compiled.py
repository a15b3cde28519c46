"""Compares a rewritten random graph with the original after Inductor has compiled it.

Running a graph op by op shows a wrong rewrite, but not what a compiler makes of a right one: which
memory it uses twice, and what the backward may write over. So the compiled graph takes a whole
training step, and everything is compared as it is *after* the backward. Then it takes another, in
which results are changed in place before the backward, as a user may.

What the untouched graph does wrong as well, compiled by stock Inductor, is torch's.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterable, Sequence
from itertools import combinations
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree

from passwright.passes.conformance_values import Unfit, _places, disagreement
from passwright.passes.graph import GraphView
from passwright.passes.isolated import Run, _written_inputs, run
from passwright.passes.random_graphs import RandomGraph
from passwright.passes.random_shown import shown_graph
from passwright.passes.random_walks import LENIENCY, LIMIT, TorchFails, Trial, as_it_is
from passwright.scheduler.inductor import compile_with_inductor, fresh_cache

#: Random ops draw what they draw outside a compiled graph.
_OPTIONS = {"fallback_random": True}
_UNSAFE_VIEW = torch.ops.aten._unsafe_view.default


def compiled(graph: RandomGraph, module: fx.GraphModule, *, rewritten: bool = True) -> str:
    """What is wrong with the rewritten graph once it is compiled; `rewritten` is passed on.

    What can be seen without a compiler is looked for first. Raises TorchFails.
    """
    found = as_it_is(graph, module)
    if found or GraphView(module.graph).fingerprint == GraphView(graph.module.graph).fingerprint:
        return found
    found = _trained(graph, module, rewritten)
    if not found:
        return ""
    stock = _trained(graph, graph.module, False)
    if stock:
        raise TorchFails(stock)
    return f"compiled, {found}"


#: A compile takes seconds, so that it had better show many steps. What is batched shares memory.
COMPILED = Trial(shown_graph, compiled, lengths=(8, 30, LIMIT), horizontal=0.5, replays=30)


def _trained(graph: RandomGraph, module: fx.GraphModule, rewritten: bool) -> str:
    """Compiles the module, and compares its training steps with those of the original."""

    def backend(gm: fx.GraphModule, given: Sequence[Any]) -> Callable[..., Any]:
        return compile_with_inductor(gm, given, options=_OPTIONS, rewritten=rewritten)

    original = graph.module
    # Dynamo does not look into graphs that it has made itself.
    module = fx.GraphModule(module, copy.deepcopy(module.graph))
    with fresh_cache():
        compiled = torch.compile(
            module, backend=backend, dynamic=graph.shapes is not None, fullgraph=True
        )
        for inputs in graph.inputs:
            try:
                found = (
                    _differs(original, _call(original, compiled), inputs, graph.seed)
                    or _overlap(original, _call(original, compiled), inputs, graph.seed)
                    or _changed(original, compiled, inputs, graph.seed)
                )
            except Unfit:
                continue
            if found:
                return found
    return ""


def _differs(
    original: fx.GraphModule, other: fx.GraphModule, inputs: Sequence[Any], seed: int
) -> str:
    return disagreement(original, other, inputs, leniency=LENIENCY, seed=seed)


def _changed(
    original: fx.GraphModule, compiled: Callable[..., Any], inputs: Sequence[Any], seed: int
) -> str:
    """Results are changed in place before the backward: all those with which that is allowed.

    Where the compiled graph refuses and eager does not, all is well: what is saved for the backward
    is torch's to choose. Nor is eager right where a graph has views that autograd does not know.
    """
    expected = _run(original, inputs, seed)
    if expected is None or original.graph.find_nodes(op="call_function", target=_UNSAFE_VIEW):
        return ""
    own = [
        number
        for number, value in enumerate(expected.outputs)
        if isinstance(value, torch.Tensor)
        and value.is_floating_point()
        and not _shared(expected, value)
    ]
    called = _call(original, compiled)

    def allowed(numbers: Sequence[int]) -> bool:
        runs = (_run(_changing(m, numbers), inputs, seed) for m in (original, called))
        return all(found is not None for found in runs)

    numbers = [number for number in own if allowed([number])]
    if not numbers or not allowed(numbers):
        return ""
    found = _differs(_changing(original, numbers), _changing(called, numbers), inputs, seed)
    return found and f"outputs {numbers} changed in place, {found}"


def _shared(found: Run, value: torch.Tensor) -> bool:
    """The memory belongs to an input or to another output as well."""
    memory = value.untyped_storage()._cdata
    tensors = [v for v in (*found.outputs, *found.inputs) if isinstance(v, torch.Tensor)]
    return [v.untyped_storage()._cdata for v in tensors].count(memory) > 1


def _overlap(
    original: fx.GraphModule, other: fx.GraphModule, inputs: Sequence[Any], seed: int
) -> str:
    """Results, inputs and gradients that lie on each other, and did not before."""
    before, after = (_run(module, inputs, seed) for module in (original, other))
    if before is None or after is None:
        return ""
    added = sorted(_overlaps(after) - _overlaps(before))
    if not added:
        return ""
    return f"{added[0][0]} and {added[0][1]} lie on the same memory, and did not before"


def _overlaps(found: Run) -> set[tuple[str, str]]:
    kinds: dict[str, Iterable[Any]] = {
        "output": found.outputs,
        "input": found.inputs,
        "gradient of input": found.gradients,
    }
    places = {
        f"{kind} {number}": _places(value)
        for kind, values in kinds.items()
        for number, value in enumerate(values)
        if isinstance(value, torch.Tensor)
    }
    return {(a, b) for a, b in combinations(places, 2) if places[a] & places[b]}


def _run(module: fx.GraphModule, inputs: Sequence[Any], seed: int) -> Run | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return run(module, inputs, training=True, seed=seed)
    except Exception:  # whatever torch says: no gradient, or one that needs what was changed
        return None


def _call(original: fx.GraphModule, compiled: Callable[..., Any]) -> fx.GraphModule:
    """A graph that calls the compiled function, and writes the inputs that the original writes."""
    graph, written = fx.Graph(), _written_inputs(original)
    inputs = []

    def call(*given: Any) -> Any:
        return compiled(*given)

    for number, node in enumerate(original.graph.find_nodes(op="placeholder")):
        inputs.append(graph.placeholder(node.name))
        if number in written:  # an unknown call counts as writing what is known to be a tensor
            inputs[-1].meta.update(node.meta)
    graph.output(graph.call_function(call, tuple(inputs)))
    return fx.GraphModule({}, graph)


def _changing(module: fx.GraphModule, numbers: Sequence[int]) -> fx.GraphModule:
    """The module, with these of its outputs changed in place at the end."""

    def change(results: Any) -> list[Any]:
        flat = _pytree.tree_leaves(results)
        for number in numbers:
            flat[number].add_(1.0)
        return flat

    graph = copy.deepcopy(module.graph)
    end = graph.output_node()
    with graph.inserting_before(end):
        end.args = (graph.call_function(change, (end.args[0],)),)
    return fx.GraphModule(module, graph)

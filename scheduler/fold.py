"""Parameter-only values computed once instead of at every call (inference, opt-in).

What rewrites join (weights of a batch, tables of a gather) is joined anew at each call unless somebody
keeps it. Here the graph is parted: a prelude computes the values to keep, and the main graph takes
them as inputs. They are computed again as soon as a parameter was written or replaced, which its
version counter and its storage tell. Writes through `parameter.data` leave no trace in either, so
this is opt-in. The kept values take memory beside the parameters.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from passwright.passes.graph import GraphView
from passwright.passes.parameters import computed_once
from passwright.scheduler.inductor import clone_for_compile, static_example

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Folded:
    """A graph in two parts."""

    #: Takes the inputs of the graph, returns the values to keep.
    prelude: fx.GraphModule
    #: Takes the inputs of the graph and then the kept values.
    main: fx.GraphModule
    #: Positions of the inputs that the prelude reads.
    reads: tuple[int, ...]


def fold_parameters(module: fx.GraphModule, inputs: Sequence[Any]) -> Folded | None:
    """The module in two parts, or None where there is nothing to keep.

    The module itself is not changed.
    """
    view = GraphView(module.graph)
    kept = computed_once(view)
    if not kept or not all(map(_has_version, inputs)):
        return None
    prelude = _prelude(module, kept)
    places = list(module.graph.find_nodes(op="placeholder"))
    needed = _sources(kept)
    reads = tuple(i for i, node in enumerate(places) if node in needed)
    return Folded(prelude, _main(module, kept), reads)


class FoldedCall:
    """The compiled main graph with the kept values, which are renewed when a parameter changes."""

    def __init__(
        self,
        folded: Folded,
        inputs: Sequence[Any],
        compile_graph: Callable[[fx.GraphModule, Sequence[Any]], Callable[..., Any]],
    ) -> None:
        self._folded = folded
        self._kept: list[torch.Tensor] = []
        self._stamp: list[Any] = []
        self._renew(inputs)
        size = sum(value.nbytes for value in self._kept)
        log.info("%d values of parameters kept, %.1f MiB", len(self._kept), size / 2**20)
        examples = [*inputs, *map(static_example, self._kept)]
        self._compiled = compile_graph(folded.main, examples)

    def __call__(self, *inputs: Any) -> Any:
        if self._changed(inputs):
            self._renew(inputs)
        return self._compiled(*inputs, *self._kept)

    def _changed(self, inputs: Sequence[Any]) -> bool:
        return any(
            inputs[i]._version != version or inputs[i].data_ptr() != address
            for i, (_, address, version) in zip(self._folded.reads, self._stamp, strict=True)
        )

    def _renew(self, inputs: Sequence[Any]) -> None:
        with torch.no_grad():
            values = self._folded.prelude(*inputs)
        if self._kept:
            # In place: a CUDA graph has captured where they lie.
            for old, new in zip(self._kept, values, strict=True):
                old.copy_(new)
        else:
            self._kept = [value.detach() for value in values]
        read = [inputs[i] for i in self._folded.reads]
        # Holding the storage keeps its address from being given to another tensor.
        self._stamp = [(v.untyped_storage(), v.data_ptr(), v._version) for v in read]


def compile_folded(
    module: fx.GraphModule,
    inputs: Sequence[Any],
    compile_graph: Callable[[fx.GraphModule, Sequence[Any]], Callable[..., Any]],
) -> Callable[..., Any]:
    """Compiles the module with the values of its parameters kept, where there are any to keep."""
    folded = fold_parameters(module, inputs)
    if folded is None:
        return compile_graph(module, inputs)
    return FoldedCall(folded, inputs, compile_graph)


def _has_version(value: Any) -> bool:
    """Writes to the value are counted: it is no tensor of inference mode, and no fake."""
    if not isinstance(value, torch.Tensor):
        return True
    return not value.is_inference() and type(value) in (torch.Tensor, torch.nn.Parameter)


def _sources(nodes: Sequence[fx.Node]) -> set[fx.Node]:
    """The nodes and everything that they are computed from."""
    found: set[fx.Node] = set()
    pending = list(nodes)
    while pending:
        node = pending.pop()
        if node not in found:
            found.add(node)
            pending += node.all_input_nodes
    return found


def _prelude(module: fx.GraphModule, kept: Sequence[fx.Node]) -> fx.GraphModule:
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    needed = _sources(kept)
    for node in module.graph.nodes:
        if node.op == "placeholder" or node in needed:
            copies[node] = graph.node_copy(node, copies.__getitem__)
    graph.output(tuple(copies[node] for node in kept))
    return fx.GraphModule(module, graph)


def _main(module: fx.GraphModule, kept: Sequence[fx.Node]) -> fx.GraphModule:
    """The rest. To AOTAutograd the kept values are inputs that stay where they are."""
    main = clone_for_compile(module)
    by_name = {node.name: node for node in main.graph.nodes}
    last = main.graph.find_nodes(op="placeholder", sort=True)[-1]
    for number, node in enumerate(kept):
        old = by_name[node.name]
        with main.graph.inserting_after(last):
            last = main.graph.placeholder(f"passwright_kept_{number}")
        last.meta = {**old.meta, "tensor_dict": {"_dynamo_static_input_type": "unguarded"}}
        last._dynamo_source = None
        old.replace_all_uses_with(last)
    # What the prelude computes now, and nothing else: to fx a method that writes looks dead too.
    sources = _sources(kept)
    computed = [by_name[node.name] for node in module.graph.nodes if node in sources]
    for node in reversed(computed):
        if node.op != "placeholder" and not node.users:
            main.graph.erase_node(node)
    main.recompile()
    return main

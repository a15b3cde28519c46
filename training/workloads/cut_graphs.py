"""The graphs of a model, and graphs of their own made of some of their nodes."""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn

from passwright.passes.graph import GraphView
from passwright.passes.matching import Rewriter
from passwright.passes.pattern import Candidate
from passwright.passes.table import default_table
from passwright.training.agreement import without_dropout
from passwright.training.workloads.capture import Captured, capture, copied, copies_of, copy_of
from passwright.training.workloads.regions import Regions
from passwright.training.workloads.workload import quiet, seeded


@functools.lru_cache(maxsize=2)
def graphs_of(model: str, batch: int, seed: int, train: bool) -> list[ModelGraph]:
    """The graphs of a model on the CPU, without dropout; those of the last two are kept, since cuts of
    one model are built in a row. Raises WorkloadError if it cannot be had."""
    # The registry may know this module.
    from passwright.training.workloads.registry import build as build_model

    module, inputs = build_model(model, batch=batch, seed=seed, train=train)
    with quiet(), seeded(seed):
        found = capture(without_dropout(module), inputs, train=train)
    return [ModelGraph(graph, train) for graph in found]


class ModelGraph:
    """One graph of a model, and what can be cut out of it."""

    def __init__(self, found: Captured, train: bool) -> None:
        self.found, self.train = found, train
        self.view = GraphView(found.graph.graph)
        self.rewriter = Rewriter(self.view, default_table())
        self.rewriter.keep_exact()
        self.regions = Regions(found, self.view, train=train)

    def sites(self) -> list[Candidate]:
        return self.rewriter.candidates(cleanup=False)

    def find(self, anchor: str, key: str) -> Candidate | None:
        return self.rewriter.find(anchor, key)

    def cut(self, site: Candidate, radius: int) -> CutGraph:
        """Raises NoRegion."""
        nodes = self.regions.around(site.match.anchor.node, site.match.nodes, radius)
        results = self.regions.results(nodes)
        return CutGraph(self, nodes, results, self.regions.boundary(nodes))


@dataclass(frozen=True)
class CutGraph:
    """Nodes of a model's graph that are to be a graph of their own."""

    of: ModelGraph
    nodes: list[fx.Node]
    results: list[fx.Node]
    boundary: list[fx.Node]

    def fingerprint(self) -> str:
        """Equal for cuts that compute the same, before anything is run."""
        return GraphView(self._graph(self._kinds(), torch.device("cpu"))).fingerprint

    def build(self, device: torch.device) -> tuple[nn.Module, tuple[Tensor, ...]]:
        """The module and its inputs. Runs the model's graph once, on the CPU."""
        kinds = self._kinds()
        values = _values(self.of, self.boundary)
        root = nn.Module()
        for node in self.boundary:
            if kinds[node] == "input":
                continue
            value = copy_of(values[node].detach(), device)
            if kinds[node] == "parameter":
                root.register_parameter(node.name, nn.Parameter(value, values[node].requires_grad))
            else:
                root.register_buffer(node.name, value)
        graph = self._graph(kinds, device)
        for node in graph.nodes:
            node.meta.clear()  # what Dynamo noted is about the model
        return fx.GraphModule(root, graph, "Cut").train(self.of.train), self._inputs(
            kinds, values, device
        )

    def _inputs(
        self, kinds: Mapping[fx.Node, str], values: Mapping[fx.Node, Tensor], device: torch.device
    ) -> tuple[Tensor, ...]:
        """What shares memory in the model does so in the cut."""
        nodes = [node for node in self.boundary if kinds[node] == "input"]
        made = copies_of([values[node].detach() for node in nodes], device)
        for node, value in zip(nodes, made, strict=True):
            # Values were taken without gradients; whether they have one in the model, Dynamo noted.
            known = node.meta[self.of.view.dialect.value]
            value.requires_grad_(self.of.train and known.requires_grad)
        return tuple(made)

    def _kinds(self) -> dict[fx.Node, str]:
        found = self.of.found
        kinds = dict.fromkeys(self.boundary, "input")
        for number, node in enumerate(found.graph.graph.find_nodes(op="placeholder")):
            if node in kinds and number in found.parameters:
                kinds[node] = "parameter"
            elif node in kinds and number in found.buffers:
                kinds[node] = "buffer"
        constants = (node for node in self.boundary if node.op == "get_attr")
        return kinds | dict.fromkeys(constants, "buffer")

    def _graph(self, kinds: Mapping[fx.Node, str], device: torch.device) -> fx.Graph:
        graph, made = fx.Graph(), dict[fx.Node, fx.Node]()
        for node in sorted(self.boundary, key=lambda node: kinds[node] != "input"):
            make = graph.placeholder if kinds[node] == "input" else graph.get_attr
            made[node] = make(node.name)
            made[node].meta = dict(node.meta)
        for node in self.nodes:
            copied = made[node] = graph.node_copy(node, lambda source: made[source])
            copied.args, copied.kwargs = _on(device, copied.args), _on(device, copied.kwargs)
        graph.output(tuple(made[node] for node in self.results))
        return graph


def _on(device: torch.device, arguments: Any) -> Any:
    """Arguments in which the CPU, on which a model is captured, is this device."""

    def moved(value: Any) -> Any:
        return device if isinstance(value, torch.device) and value.type == "cpu" else value

    return fx.node.map_aggregate(arguments, moved)


def _values(of: ModelGraph, wanted: Collection[fx.Node]) -> dict[fx.Node, Tensor]:
    """Values of the nodes when the graph is called with its arguments."""
    view = of.view
    # Where a constant lies that Dynamo says nothing of, nobody knows.
    written = {n for n in wanted if view.any_spec(n) is None or view.storages([n]) & view.written}
    recorder = _Recorder(of.found.graph, wanted, written)
    with torch.no_grad(), quiet(), seeded(0):
        recorder.run(*copied(of.found.arguments), enable_io_processing=False)
    return recorder.values


class _Recorder(fx.Interpreter):
    """Runs a graph and keeps some values; of those that are written, copies as they come into being."""

    def __init__(
        self, module: fx.GraphModule, wanted: Collection[fx.Node], written: Collection[fx.Node]
    ) -> None:
        super().__init__(module)
        self.wanted, self.written = set(wanted), set(written)
        self.values: dict[fx.Node, Tensor] = {}

    def run_node(self, n: fx.Node) -> Any:
        value = super().run_node(n)
        if n in self.wanted:
            self.values[n] = copy_of(value) if n in self.written else value
        return value

"""Values that depend on parameters alone: equal at every call for as long as nobody trains.

A stack of weights, a batch norm folded into them, a joined embedding table.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from passwright.passes.graph import GraphView
from passwright.passes.legality import escapes, is_written
from passwright.passes.spec import Spec


def is_parameter(graph: GraphView, node: fx.Node) -> bool:
    """An input of the graph that stays where it is from call to call: a parameter or a buffer."""
    if node.op == "get_attr":
        return True
    if node.op != "placeholder":
        return False
    value = node.meta.get(graph.dialect.value)
    described: dict[str, Any] = node.meta.get("tensor_dict") or {}
    return isinstance(value, torch.nn.Parameter) or "_dynamo_static_input_type" in described


def parameter_only(graph: GraphView) -> set[fx.Node]:
    """Nodes computed from parameters alone, which nobody writes, outside every autocast region."""
    found: set[fx.Node] = set()
    for node in graph.nodes():
        if node.op in ("placeholder", "get_attr"):
            constant = is_parameter(graph, node) and not is_written(graph, node)
        elif node.op == "output" or not node.all_input_nodes:
            constant = False
        else:
            constant = all(source in found for source in node.all_input_nodes)
            constant = constant and graph.is_pure(node) and not is_written(graph, node)
            constant = constant and not graph.mode(graph.region(node)).autocasts
        if constant:
            found.add(node)
    return found


def computed_once(graph: GraphView) -> list[fx.Node]:
    """The values to keep, in graph order: what the rest of the graph takes, or takes views of.

    Each has memory of its own, of known size, and does not leave the graph.
    """
    constant = parameter_only(graph)
    kept: dict[fx.Node, None] = {}
    for node in graph.nodes():
        if node in constant:
            continue
        for source in node.all_input_nodes:
            root = _base(graph, source) if source in constant else None
            if root is not None and _may_stay(graph, source):
                kept[root] = None
    return sorted(kept)


def _base(graph: GraphView, node: fx.Node) -> fx.Node | None:
    """The value of which this is a view (or itself), if it was computed and is one tensor."""
    while True:
        above = [n for n in node.all_input_nodes if graph.storages([n]) & graph.storages([node])]
        if not above:
            computed = node.op not in ("placeholder", "get_attr")
            spec = graph.any_spec(node)
            return node if computed and isinstance(spec, Spec) and spec.is_static else None
        node = above[0]


def _may_stay(graph: GraphView, node: fx.Node) -> bool:
    """The value is no output of the graph, whose owner might write it; nor is a view of it."""
    return not escapes(graph, node)

"""Which values a gradient reaches: a batch asks for the gradients of all its members."""

from __future__ import annotations

from torch import fx

from passwright.passes.graph import GraphView


def gets_gradient(graph: GraphView, node: fx.Node) -> bool:
    """A gradient reaches the result, as far as the graph can tell.

    What writes over a value that autograd has saved (of an `amax`, say) is no error as long as nobody
    asks for the gradient there; a batch asks for those of all its members. True for every node of a graph
    that overwrites nothing that autograd records.
    """
    reached = graph.memo("gradients", lambda: _reached_by_gradients(graph))
    return reached is None or node in reached


def _reached_by_gradients(graph: GraphView) -> set[fx.Node] | None:
    recorded = [node for node in graph.nodes() if graph.needs_grad(node)]
    if not graph.written or not graph.written & graph.storages(recorded):
        return None
    found: set[fx.Node] = set()
    waiting = [node for node in graph.nodes() if node.op in ("output", "placeholder")]
    while waiting:
        node = waiting.pop()
        if node in found:
            continue
        found.add(node)
        if node.op in ("output", "placeholder") or graph.needs_grad(node):
            waiting += node.all_input_nodes
            for memory in graph.storages((node,)) & graph.written:
                for writer in graph.writers(memory):
                    waiting += (writer, *writer.all_input_nodes)
    return found

"""State: memory that a graph overwrites for its next call, as a batch norm does its statistics.

A write is a barrier for every rewrite, unless nobody but the writer touches that memory: then it may
happen at any time during the call. Batching the writers is legal on that ground.
"""

from __future__ import annotations

from collections.abc import Collection

from torch import fx

from passwright.passes.effects import only_writes, written_arguments
from passwright.passes.errors import IllegalRewrite
from passwright.passes.graph import GraphView

_GIVEN = ("placeholder", "get_attr")


def keeps_private_state(graph: GraphView, node: fx.Node) -> bool:
    """Pure but for writing memory that no other node of the graph reads, writes or returns.

    The memory belongs to inputs of the graph, each seen as a whole by one input alone.
    """
    if not only_writes(node):
        return False
    written = list(written_arguments(node))
    if not written or any(value.op not in _GIVEN for value in written):
        return False
    touching = _touching(graph)
    storages = [graph.storages([value]) for value in written]
    if not all(storages) or len(frozenset().union(*storages)) != len(written):
        return False
    return all(touching[number] == {node} for found in storages for number in found)


def _touching(graph: GraphView) -> dict[int, set[fx.Node]]:
    """The nodes that touch the memory of each storage; of the inputs that lie in it, all but one."""
    return graph.memo("touching", lambda: _find_touching(graph))


def _find_touching(graph: GraphView) -> dict[int, set[fx.Node]]:
    found: dict[int, set[fx.Node]] = {}
    for node in graph.nodes():
        given = node.op in _GIVEN
        for number in graph.storages([node] if given else [node, *node.all_input_nodes]):
            touching = found.get(number)
            if touching is None:
                found[number] = set() if given else {node}
            else:
                touching.add(node)
    return found


def refuse_foreign_state(view: GraphView, inserted: Collection[fx.Node]) -> None:
    """Raises IllegalRewrite where a node that a step inserted writes memory that others touch.

    What the step replaced must be gone by now.
    """
    writers = [node for node in inserted if not view.is_pure(node)]
    own = set(inserted)
    for writer in writers:
        written = view.storages(written_arguments(writer))
        for number in written:
            strangers = _touching(view).get(number, set()) - own
            if strangers:
                name = min(strangers).name
                raise IllegalRewrite(f"{name} touches memory that {writer.name} would write")

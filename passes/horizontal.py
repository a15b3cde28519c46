"""The base of patterns that make many independent like ops one."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Iterator
from typing import Any, ClassVar

from torch import fx

from passwright.passes.graph import GraphView
from passwright.passes.legality import batchable, independent_groups
from passwright.passes.ops import Op
from passwright.passes.pattern import Direction, Match, Pattern, match


class HorizontalPattern(Pattern):
    """Groups ops with equal keys that cannot reach each other; one match a group.

    The anchor of a match is the group's first member in graph order, `m.members` are all its ops.
    """

    direction = Direction.HORIZONTAL
    #: Smallest group worth a match.
    at_least: ClassVar[int] = 2

    @abstractmethod
    def key(self, graph: GraphView, op: Any) -> Hashable | None:
        """Equal for ops that may share a batch; None for an op that may not be batched at all.

        Build it on `legality.agreement`, and add every argument of the op that is not a tensor.
        """

    def matches(self, graph: GraphView, anchor: Op) -> Iterator[Match]:
        members = graph.memo((self.name(), "groups"), lambda: self._groups(graph)).get(anchor.node)
        if members is not None:
            yield match(anchor, *members, members=members, parameters={"members": len(members)})

    def _groups(self, graph: GraphView) -> dict[fx.Node, tuple[Op, ...]]:
        """Groups by their first member."""
        alike: dict[Hashable, list[Op]] = {}
        for node in graph.nodes():
            op = graph.read(node)
            if type(op) in self.anchors and batchable(graph, node):
                key = self.key(graph, op)
                if key is not None:
                    alike.setdefault(key, []).append(op)  # type: ignore[arg-type]
        found: dict[fx.Node, tuple[Op, ...]] = {}
        for ops in alike.values():
            if len(ops) < self.at_least:
                continue
            by_node = {op.node: op for op in ops}
            for group in independent_groups(graph, list(by_node)):
                if len(group) >= self.at_least:
                    found[group[0]] = tuple(by_node[node] for node in group)
        return found

"""Branches: chains of ops that look alike, found by hashing what each chain computes.

A chain starts at an op and goes on as long as the value has one user that a stage knows. Chains that
hash alike, op by op, down to their end are isomorphic and may be batched whole.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import fx

from passwright.passes.graph import GraphView
from passwright.passes.horizontal import HorizontalPattern
from passwright.passes.legality import between_writes, independent_groups
from passwright.passes.ops import Op

#: The pattern that batches the ops of one kind, side by side.
Stages = Mapping[type[Op], HorizontalPattern]


@dataclass(frozen=True)
class Chain:
    """Ops of which each is the only user of the one before it."""

    ops: tuple[Any, ...]
    #: Equal for chains that may be batched op by op.
    shape: tuple[Hashable, ...]

    @property
    def nodes(self) -> tuple[fx.Node, ...]:
        return tuple(op.node for op in self.ops)


class Branches:
    """The chains of one graph, as these stages see it."""

    def __init__(
        self, graph: GraphView, stages: Stages, starts: frozenset[type[Op]] = frozenset()
    ) -> None:
        """Ops of the kinds in `starts` begin a chain and never continue one."""
        self.graph = graph
        self.stages = stages
        self.starts = starts
        self._keys: dict[fx.Node, Hashable] = {}
        for node in graph.nodes():
            op = graph.read(node)
            stage = stages.get(type(op)) if op is not None else None
            if op is not None and stage is not None:
                key = stage.key_of(graph, op)
                if key is not None:
                    self._keys[node] = (stage.name(), key)

    def chains(self) -> Iterator[Chain]:
        """The longest chain from every op that continues no other, in graph order."""
        for node in self._keys:
            if self._before(node) is None:
                ops, keys = [], []
                link: fx.Node | None = node
                while link is not None:
                    ops.append(self.graph.read(link))
                    keys.append(self._keys[link])
                    link = self._after(link)
                yield Chain(tuple(ops), tuple(keys))

    def _before(self, node: fx.Node) -> fx.Node | None:
        op: Any = self.graph.read(node)
        return op.input if op.input in self._keys and self._after(op.input) is node else None

    def by_shape(self) -> dict[tuple[Hashable, ...], list[Chain]]:
        """All chains that are longer than one op, alike ones together."""
        found: dict[tuple[Hashable, ...], list[Chain]] = {}
        for chain in self.chains():
            if len(chain.ops) > 1:
                found.setdefault(chain.shape, []).append(chain)
        return found

    def _after(self, node: fx.Node) -> fx.Node | None:
        users = list(node.users)
        if len(users) != 1 or users[0] not in self._keys:
            return None
        op: Any = self.graph.read(users[0])
        if type(op) in self.starts:
            return None
        others = [value for value in users[0].all_input_nodes if value is not op.input]
        return users[0] if op.input is node and node not in others else None

    def groups(self, chains: Sequence[Chain]) -> Iterator[list[Chain]]:
        """Those of equally shaped chains that cannot reach each other, with no write between."""
        by_node = {chain.nodes[0]: chain for chain in chains}
        for level in independent_groups(self.graph, list(by_node)):
            group = [by_node[node] for node in level]
            if len(group) > 1 and all(
                map(self._side_by_side, zip(*(c.ops for c in group), strict=True))
            ):
                yield group

    def _side_by_side(self, ops: tuple[Op, ...]) -> bool:
        """The ops at one place of all chains may be one batch."""
        stage, nodes = self.stages[type(ops[0])], [op.node for op in ops]
        own = [node for node in nodes if stage.with_state and not self.graph.is_pure(node)]
        return len(between_writes(self.graph, nodes, besides=own)) == 1

"""The base of patterns that make many independent like ops one."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Any, ClassVar

import torch
from torch import fx

from passwright.passes.graph import GraphView
from passwright.passes.legality import (
    batchable,
    between_writes,
    independent_groups,
    is_host_number,
    is_written,
)
from passwright.passes.ops import Op
from passwright.passes.pattern import Direction, Match, Pattern, match
from passwright.passes.spec import Spec
from passwright.passes.state import keeps_private_state


class HorizontalPattern(Pattern):
    """Groups ops with equal keys that cannot reach each other; a match for each way to batch them.

    The anchor of a match is the group's first member in graph order, `m.members` are all its ops. How
    many members pay is a choice: all of a group are one match, and so is each part of `sizes`.
    """

    direction = Direction.HORIZONTAL
    #: Smallest group worth a match.
    at_least: ClassVar[int] = 2
    #: Smaller batches to offer, where a group has members for two of them.
    sizes: ClassVar[tuple[int, ...]] = (4, 8)
    #: The key depends on the op and the specs of its tensors alone, so that it need not be asked
    #: again while they stay.
    lasting_key: ClassVar[bool] = False
    #: Ops that overwrite state which nobody else touches may be members (see `state`).
    with_state: ClassVar[bool] = False

    @abstractmethod
    def key(self, graph: GraphView, op: Any) -> Hashable | None:
        """Equal for ops that may share a batch; None for an op that may not be batched at all.

        Build it on `legality.agreement`, and add every argument of the op that is not a tensor.
        """

    def divide(self, graph: GraphView, ops: Sequence[Any]) -> Iterable[Sequence[Op]]:
        """Parts of a group that may each be one batch, for what a key cannot express."""
        return (ops,)

    def matches(self, graph: GraphView, anchor: Op) -> Iterator[Match]:
        keys, alike = graph.memo((self.name(), "alike"), lambda: self._alike(graph))
        key = keys.get(anchor.node)
        if key is None:
            return
        groups = graph.memo((self.name(), key), lambda: self._groups(graph, alike[key]))
        for members in groups.get(anchor.node, ()):
            yield match(anchor, *members, members=members, parameters={"members": len(members)})

    def _alike(self, graph: GraphView) -> tuple[dict[fx.Node, Hashable], dict[Hashable, list[Op]]]:
        """The key of every op that has one, and the ops of every key, in graph order."""
        keys: dict[fx.Node, Hashable] = {}
        alike: dict[Hashable, list[Op]] = {}
        for node in graph.nodes():
            op = graph.read(node)
            if op is not None and type(op) in self.anchors and not is_host_number(graph, node):
                key = self.key_of(graph, op)
                if key is not None:
                    keys[node] = key
                    alike.setdefault(key, []).append(op)
        return keys, alike

    def _groups(self, graph: GraphView, ops: Sequence[Op]) -> dict[fx.Node, list[tuple[Op, ...]]]:
        """The batches among ops of one key, by their first member."""
        found: dict[fx.Node, list[tuple[Op, ...]]] = {}
        for group in self.batches(graph, ops):
            for part in (group, *self._parts(group)):
                found.setdefault(part[0].node, []).append(part)
        return found

    def _parts(self, group: tuple[Op, ...]) -> Iterator[tuple[Op, ...]]:
        for size in self.sizes:
            if len(group) >= 2 * size:
                parts = [group[start : start + size] for start in range(0, len(group), size)]
                yield from (part for part in parts if len(part) >= self.at_least)

    def batches(self, graph: GraphView, ops: Sequence[Op]) -> Iterator[tuple[Op, ...]]:
        """The largest legal batches among ops of one key, in graph order."""
        by_node = {op.node: op for op in ops}
        for level in independent_groups(graph, list(by_node)):
            own = [node for node in level if self.with_state and not graph.is_pure(node)]
            for stretch in between_writes(graph, level, besides=own):
                for group in self.divide(graph, [by_node[node] for node in stretch]):
                    if len(group) >= self.at_least:
                        yield tuple(group)

    def key_of(self, graph: GraphView, op: Op) -> Hashable | None:
        """The key of the op, None where it may not be batched."""

        def find() -> Hashable | None:
            return self.key(graph, op) if self.is_plain(graph, op.node) else None

        if self.lasting_key and graph.is_pure(op.node):
            return graph.lasting(op.node, self.name(), find)
        return find()

    def is_plain(self, graph: GraphView, node: fx.Node) -> bool:
        """A batchable op with a result of known shape, and no tensor of another layout than
        strided."""
        values = [graph.any_spec(value) for value in (node, *node.all_input_nodes)]
        tensors = [spec for spec in values if isinstance(spec, Spec)]
        if not isinstance(values[0], Spec) or not all(s.layout is torch.strided for s in tensors):
            return False
        if batchable(graph, node):
            return True
        own = is_written(graph, node, besides=node)
        return self.with_state and not own and keeps_private_state(graph, node)

"""Which nodes of a captured graph make a graph of their own.

A region grows around the nodes of a candidate. Some nodes take others along: what takes a tuple apart
belongs to what makes it, and who reads memory belongs to all who write it. A region is refused where
its nodes alone cannot compute what they compute in the model.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import torch
from torch import fx

from passwright.passes.effects import only_writes
from passwright.passes.graph import GraphView
from passwright.passes.spec import Spec, parts_of
from passwright.training.workloads.capture import Captured

#: Nodes up to which a region grows: a graph of so many compiles in seconds.
MOST = 60
#: Nodes that a region may have because it cannot do with fewer.
LARGEST = 150


class NoRegion(Exception):
    """These nodes make no graph of their own; the message says why."""


class Regions:
    """The regions of one captured graph."""

    def __init__(self, captured: Captured, view: GraphView, *, train: bool) -> None:
        self.view, self.train = view, train
        inputs = captured.graph.graph.find_nodes(op="placeholder")
        #: Inputs that a call may write: state of the model, and not memory of the caller.
        self._state = {inputs[number] for number in captured.buffers}
        owners: dict[int, int] = {}
        for node in inputs:
            for storage in view.storages([node]):
                owners[storage] = owners.get(storage, 0) + 1
        self._shared = {storage for storage, count in owners.items() if count > 1}
        self._position = {node: number for number, node in enumerate(captured.graph.graph.nodes)}

    def around(self, anchor: fx.Node, core: Iterable[fx.Node], radius: int) -> list[fx.Node]:
        """The calls of `core`, and those within `radius` edges of them, nearest to the anchor first
        as long as there are no more than `MOST`; in graph order.

        Inputs of the graph are no way from one node to another. Raises NoRegion.
        """
        found = self._closed([node for node in core if _is_call(node)], ())
        edge: Collection[fx.Node] = list(found)
        for _ in range(radius):
            around = {n for node in edge for n in (*node.all_input_nodes, *node.users)} - found
            edge = sorted(filter(_is_call, around), key=lambda node: self._distance(node, anchor))
            for node in edge:
                try:
                    added = self._closed([node], found)
                except NoRegion:
                    continue
                if len(found) + len(added) <= MOST:
                    found |= added
            edge = [node for node in edge if node in found]
        return sorted(found)

    def _distance(self, node: fx.Node, anchor: fx.Node) -> tuple[int, int]:
        position = self._position[node]
        return abs(position - self._position[anchor]), position

    def _closed(self, nodes: Iterable[fx.Node], known: Collection[fx.Node]) -> set[fx.Node]:
        """The nodes and all that they take along, but for what is known already."""
        found: set[fx.Node] = set()
        waiting = list(nodes)
        while waiting:
            node = waiting.pop()
            if node in found or node in known:
                continue
            self._check(node)
            found.add(node)
            if len(found) > LARGEST:
                raise NoRegion(f"more than {LARGEST} nodes belong together")
            waiting += self._taken_along(node)
        return found

    def _check(self, node: fx.Node) -> None:
        """Raises NoRegion for a node that does more than compute and write known memory."""
        if not _is_call(node):
            raise NoRegion(f"{node.name} is a {node.op}")
        if not (self.view.is_pure(node) or only_writes(node)):
            raise NoRegion(f"{node.name} draws random numbers, or nobody knows what it does")
        mode = self.view.mode(self.view.region(node))
        # The cut runs under the caller's grad mode alone.
        if mode.autocasts or (mode.grad and mode.enabled is not self.train):
            raise NoRegion(f"{node.name} runs under a mode of its own")

    def _taken_along(self, node: fx.Node) -> list[fx.Node]:
        view, taken = self.view, []
        for source in node.all_input_nodes:
            if not isinstance(view.any_spec(source), Spec) or not _is_call(source):
                taken += self._producer(source)
            elif view.storages([source]) & view.written:
                taken.append(source)
        if not isinstance(view.any_spec(node), Spec):
            taken += node.users
        for storage in view.storages([node, *node.all_input_nodes]) & view.written:
            taken += view.writers(storage)
        return taken

    def _producer(self, source: fx.Node) -> list[fx.Node]:
        """What to take along for a value that is no tensor made by a call. Raises NoRegion."""
        if _is_call(source):
            return [source]
        spec = self.view.any_spec(source)
        if not isinstance(spec, Spec) and not _holds_tensor(source):
            raise NoRegion(f"{source.name} is no tensor")
        written = self.view.storages([source]) & self.view.written
        if written and (source not in self._state or written & self._shared):
            raise NoRegion(f"{source.name} is an input, and is written")
        return []

    # ---- results

    def results(self, nodes: Collection[fx.Node]) -> list[fx.Node]:
        """Tensors that somebody outside uses, or nobody. Raises NoRegion where none of them is of use
        to a step: floating-point, and in training with a gradient."""
        region, found = set(nodes), []
        for node in nodes:
            if not isinstance(self.view.any_spec(node), Spec):
                continue
            # A counter that was raised in place has done its work.
            idle = not node.users and not self.view.storages([node]) & self.view.written
            if idle or not region.issuperset(node.users):
                found.append(node)
        wanted = [n for n in found if self.view.spec(n).dtype.is_floating_point]
        if not any(self.view.needs_grad(n) or not self.train for n in wanted):
            raise NoRegion("no result is differentiable" if self.train else "no result is a number")
        return found

    def boundary(self, nodes: Collection[fx.Node]) -> list[fx.Node]:
        """What the nodes take from outside, in the order of its first use. Raises NoRegion."""
        region = set(nodes)
        sources = (source for node in nodes for source in node.all_input_nodes)
        found = list(dict.fromkeys(source for source in sources if source not in region))
        for source in found:
            for part in parts_of(self.view.any_spec(source)):
                if part.layout != torch.strided or not part.is_static:
                    raise NoRegion(f"{source.name} has no strides that are known")
        return found


def _is_call(node: fx.Node) -> bool:
    return node.op in ("call_function", "call_method")


def _holds_tensor(node: fx.Node) -> bool:
    owner = node.graph.owning_module
    held = getattr(owner, str(node.target), None) if node.op == "get_attr" else None
    return isinstance(held, torch.Tensor)

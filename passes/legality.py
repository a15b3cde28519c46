"""Side conditions of rewrites, each a named question about the graph.

The editor refuses whatever would change meaning; these predicates keep a pattern from proposing it
in the first place. The nine points are those a pass must respect: writes to memory, agreement of
members, independence, spelling (see `binding`), observers of strides (`strides`), random numbers, symbolic
sizes, metadata and roll-back (the last two are the editor's).
"""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Hashable, Iterable, Sequence

import torch
from torch import fx

from passwright.passes.gradients import gets_gradient
from passwright.passes.graph import GraphView
from passwright.passes.kernels import importable
from passwright.passes.ops import (
    Op,
)
from passwright.passes.spec import AnySpec, Size, Spec, parts_of, static
from passwright.passes.strides import observes_strides


def only_user(_: GraphView, node: fx.Node, user: fx.Node) -> bool:
    """`user` is the one and only user of `node`."""
    return len(node.users) == 1 and user in node.users


def same(first: Size, second: Size) -> bool:
    """Equal for every input; a symbolic size equals only itself, and no guard is installed."""
    if type(first) is int and type(second) is int:
        return first == second
    return type(first) is type(second) and str(first) == str(second)


def same_shape(first: Sequence[Size], second: Sequence[Size]) -> bool:
    """As many dims, each of the same size."""
    return len(first) == len(second) and all(map(same, first, second))


def can_reshape_to(shape: Sequence[Size]) -> bool:
    """At most one size is symbolic, and torch can tell it from the others."""
    sizes = [static(size) for size in shape]
    return None not in sizes or (sizes.count(None) == 1 and 0 not in sizes)


def same_type(first: AnySpec, second: AnySpec) -> bool:
    """Equal shape, dtype, device and layout; for several outputs, each of them."""
    if isinstance(first, tuple) and isinstance(second, tuple):
        return len(first) == len(second) and all(map(same_type, first, second))
    if not isinstance(first, Spec) or not isinstance(second, Spec):
        return first is None and second is None
    kinds = [(spec.dtype, spec.layout) for spec in (first, second)]
    devices = same_device(first.device, second.device)
    return same_shape(first.shape, second.shape) and kinds[0] == kinds[1] and devices


def is_host_number(graph: GraphView, node: fx.Node) -> bool:
    """A tensor without dims on the CPU, in a graph that uses another device.

    Ops there take it as a number. A part of a batch of such is a tensor on the CPU like any other, and
    Inductor (2.11) hands its address to a kernel on the GPU.
    """
    spec = graph.any_spec(node)
    if not isinstance(spec, Spec) or spec.ndim or spec.device.type != "cpu":
        return False
    return graph.memo("uses another device than the CPU", lambda: _uses_another_device(graph))


def _uses_another_device(graph: GraphView) -> bool:
    specs = (part for node in graph.nodes() for part in parts_of(graph.any_spec(node)))
    return any(spec.device.type != "cpu" for spec in specs)


def same_device(first: torch.device, second: torch.device) -> bool:
    """One and the same device; `cuda` without a number may be any of them."""
    numbers = {first.index, second.index} - {None}
    return first.type == second.type and len(numbers) < 2


def takes_triton(graph: GraphView, *nodes: fx.Node) -> bool:
    """The values lie on a GPU, and Triton is installed to compile a kernel for it."""
    specs = [graph.any_spec(node) for node in nodes]
    return importable() and all(isinstance(s, Spec) and s.device.type == "cuda" for s in specs)


def static_shape(graph: GraphView, node: fx.Node) -> tuple[int, ...] | None:
    """The shape, if every size is known without a guard."""
    spec = graph.any_spec(node)
    if not isinstance(spec, Spec):
        return None
    sizes = tuple(static(size) for size in spec.shape)
    return None if None in sizes else sizes  # type: ignore[return-value]


def is_written(graph: GraphView, *nodes: fx.Node, besides: fx.Node | None = None) -> bool:
    """Some node of the graph (other than `besides`) writes the memory of one of these values."""
    storages = graph.storages(nodes) & graph.written if graph.writes else frozenset()
    return any(writer is not besides for memory in storages for writer in graph.writers(memory))


def one_grad_mode(graph: GraphView, *nodes: fx.Node) -> bool:
    """Grad mode does not change from one of these nodes to another."""
    return len({graph.mode(graph.region(node)).grad for node in nodes}) < 2


def undisturbed(graph: GraphView, *nodes: fx.Node) -> bool:
    """Between the first and the last of these nodes grad mode stays, and nobody writes memory that
    they read or return."""
    if not one_grad_mode(graph, *nodes):
        return False
    if not graph.writes:
        return True
    first, last = min(nodes), max(nodes)
    storages = graph.storages(source for n in nodes for source in (n, *n.all_input_nodes))
    lists = (graph.writers(memory) for memory in storages & graph.written)
    return not any(bisect_right(w, first) < bisect_left(w, last) for w in lists)


def agreement(graph: GraphView, op: Op, *tensors: fx.Node | None) -> Hashable:
    """What the members of one batch have in common apart from their op's own arguments.

    Shape, type, device and layout of the given tensors, grad mode and autocast region, and whether
    autograd records the result. Members with different keys never share a batch. Writes to memory
    are no property of one member: see `between_writes`.
    """
    return (
        type(op),
        tuple(None if tensor is None else graph.spec(tensor).key() for tensor in tensors),
        graph.spec(op.node).dtype,
        graph.region(op.node),
        graph.needs_grad(op.node),
    )


def batchable(graph: GraphView, node: fx.Node) -> bool:
    """A pure op whose result nobody overwrites: it may become part of a batch."""
    return graph.is_pure(node) and not is_written(graph, node)


def independent_groups(graph: GraphView, members: Sequence[fx.Node]) -> list[list[fx.Node]]:
    """The members in groups within which none is reachable from another, largest groups possible.

    A member's level is the greatest number of members on a path to it; members of one level cannot
    reach each other. Linear in the stretch of graph between the first and the last member.
    """
    if len(members) < 2:
        return [list(members)]
    depth = graph.memo("depth", lambda: _depths(graph))
    if len({depth[node] for node in members}) == 1:
        return [sorted(members)]
    chosen = set(members)
    first, last = min(members), max(members)
    level: dict[fx.Node, int] = {}
    groups: dict[int, list[fx.Node]] = {}
    node = first
    while True:
        above = max((level.get(source, 0) for source in node.all_input_nodes), default=0)
        level[node] = above + (node in chosen)
        if node in chosen:
            groups.setdefault(level[node], []).append(node)
        if node is last:
            return [groups[key] for key in sorted(groups)]
        node = node.next


def _depths(graph: GraphView) -> dict[fx.Node, int]:
    """Length of the longest path to each node; nodes of equal depth cannot reach each other."""
    depth: dict[fx.Node, int] = {}
    for node in graph.nodes():
        depth[node] = 1 + max((depth[source] for source in node.all_input_nodes), default=0)
    return depth


def between_writes(
    graph: GraphView, members: Sequence[fx.Node], besides: Collection[fx.Node] = ()
) -> list[list[fx.Node]]:
    """The members, in graph order, parted wherever something writes memory that they read.

    Writes by `besides` part nothing: those of members that overwrite what is theirs alone. Members whose
    results no gradient reaches are parted from those that get one (see `gets_gradient`).
    """
    storages = graph.storages(n for node in members for n in (node, *node.all_input_nodes))
    own = set(besides)
    touching = {w for memory in storages & graph.written for w in graph.writers(memory)}
    writes = sorted(touching - own)
    parts: dict[tuple[int, bool], list[fx.Node]] = {}
    for node in members:
        key = (bisect_left(writes, node), gets_gradient(graph, node))
        parts.setdefault(key, []).append(node)
    return list(parts.values())


def parting_write(
    graph: GraphView, nodes: Sequence[fx.Node], besides: Collection[fx.Node] = ()
) -> fx.Node | None:
    """A write (but those of `besides`) that lies between nodes that read or return its memory."""
    if not graph.writes:
        return None
    readers: dict[int, list[fx.Node]] = {}
    for node in nodes:
        for memory in graph.storages((node, *node.all_input_nodes)) & graph.written:
            readers.setdefault(memory, []).append(node)
    own = set(besides)
    ends = {memory: (min(found), max(found)) for memory, found in readers.items()}
    for write in graph.writes:
        near = [ends[memory] for memory in write.storages & ends.keys()]
        parts = near and min(a for a, _ in near) < write.node < max(b for _, b in near)
        if parts and write.node not in own:
            return write.node
    return None


def stands_in(graph: GraphView, old: fx.Node, new: fx.Node) -> bool:
    """The existing value `new` can take the place of `old` as it is: no copy is needed to hide
    other strides or newly shared memory from an outsider, and no user's grad mode is another."""
    before, after = graph.spec(old), graph.spec(new)
    if not one_grad_mode(graph, old, *old.users):
        return False
    if before.storage != after.storage and (is_written(graph, old, new) or escapes(graph, old)):
        return False
    return before.same_strides(after) or not observes_strides(graph, old)


def may_become(graph: GraphView, old: fx.Node, source: fx.Node) -> bool:
    """All users of `old` may take `source`, an equal value.

    Not where a graph output would become the same tensor object as an input or another output, and
    not where a user could see that `source` carries a gradient and `old` does not.
    """
    if any(user.op == "output" for user in old.users):
        also = any(user.op == "output" for user in source.users)
        if also or source.op in ("placeholder", "get_attr"):
            return False
    return one_grad_mode(graph, old, *old.users)


def same_gradient(graph: GraphView, old: fx.Node, *sources: fx.Node) -> bool:
    """`old` may be made of these sources without gaining or losing a gradient.

    Where grad mode is off torch still marks a view as requiring grad if its base does, but no copy.
    There a value that turns from the one into the other must not be seen from the outside.
    """
    if graph.needs_grad(old) != any(map(graph.needs_grad, sources)):
        return graph.mode(graph.region(old)).enabled is False and stays_in_grad_mode(graph, old)
    return True


def stays_in_grad_mode(graph: GraphView, node: fx.Node) -> bool:
    """Nobody reads the value, or a view of it, in another grad mode."""
    storages = graph.storages([node])
    pending, seen = [node], {node}
    while pending:
        for user in pending.pop().users:
            if not one_grad_mode(graph, node, user):
                return False
            if user not in seen and graph.storages([user]) & storages:
                seen.add(user)
                pending.append(user)
    return True


def unseen(graph: GraphView, old: fx.Node, layout: Spec, *, shared: bool = True) -> bool:
    """No outsider can tell that `old` comes to lie in other memory, with the strides of `layout`.

    `shared`: other values lie in that memory too. As `stands_in`, for a value not made yet.
    """
    if is_written(graph, old) or (shared and escapes(graph, old)):
        return False
    return graph.spec(old).same_strides(layout) or not observes_strides(graph, old)


def escapes(graph: GraphView, node: fx.Node) -> bool:
    """The memory of the value can be reached from outside the graph, or by an unknown op."""
    storages = graph.storages([node])
    pending, seen = [node], {node}
    while pending:
        for user in pending.pop().users:
            if user in seen:
                continue
            seen.add(user)
            if user.op == "output":
                return True
            if not graph.is_pure(user) and graph.read(user) is None:
                return True
            if graph.storages([user]) & storages:
                pending.append(user)
    return False


def consecutive(numbers: Iterable[int]) -> bool:
    """Each number is one more than the last."""
    items = list(numbers)
    return all(b == a + 1 for a, b in itertools.pairwise(items))

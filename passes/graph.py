"""A graph as patterns see it: read-only, canonical, with every fact computed once."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch
from torch import fx

# Importing the readers fills the table of spellings.
from passwright.passes import (
    read_compute,
    read_contractions,  # noqa: F401
    read_convert,  # noqa: F401
    read_lookups,  # noqa: F401
    read_movement,
    read_multi_head,  # noqa: F401
    read_products,  # noqa: F401
    read_reduce,  # noqa: F401
)
from passwright.passes.address import addresses, fingerprint
from passwright.passes.addressed import Addressed
from passwright.passes.binding import read
from passwright.passes.dialect import Dialect
from passwright.passes.effects import (
    changes_metadata,
    is_pure,
    is_region_change,
    written_arguments,
)
from passwright.passes.ops import SMOOTH, Op, Piece, Split, Unbind
from passwright.passes.spec import AnySpec, Spec, parts_of, spec_of
from passwright.passes.touched import Noted

_READ_THROUGH = frozenset((*read_compute.READ_THROUGH, *read_movement.READ_THROUGH))
#: Stands for what was not looked at yet.
_UNREAD: Any = object()
OpT = TypeVar("OpT", bound=Op)
T = TypeVar("T")


@dataclass(frozen=True)
class Write:
    """One node that may write memory, and the storages it may write."""

    node: fx.Node
    storages: frozenset[int]


@dataclass(frozen=True)
class RegionMode:
    """What holds in one region: the node it starts after, and the autocasts entered.

    `grad` counts the changes of grad mode (or inference mode) so far; `enabled` is what the graph
    sets grad mode to, None as long as it is the caller's.
    """

    start: fx.Node | None
    autocasts: tuple[fx.Node, ...]
    grad: int = 0
    enabled: bool | None = None


class GraphView(Addressed, Noted):
    """Read access to an `fx.Graph` for patterns, predicates, features and gain models.

    Only the editor changes the graph, and it tells the view what changed.
    """

    def __init__(self, graph: fx.Graph) -> None:
        self.graph = graph
        self.dialect = Dialect.of(graph)
        self._specs: dict[fx.Node, AnySpec] = {
            node: spec_of(node.meta.get(self.dialect.value)) for node in graph.nodes
        }
        self._ops: dict[fx.Node, Op | None] = {}
        self._pure: dict[fx.Node, bool] = {}
        self._buried: set[fx.Node] = set()
        self._modes: list[RegionMode] = []
        self._writes: dict[fx.Node, Write] | None = None
        self._memo: dict[Hashable, Any] = {}
        self._lasting: dict[fx.Node, dict[Hashable, Any]] = {}
        self._lasting_for: frozenset[int] = frozenset()
        self._recorded = self._find_recorded()
        self._regions = self._find_regions()
        self._give_addresses(addresses(graph, self._specs))
        self._fickle = self._find_fickle()
        self._note_callers_grad_mode()
        #: Identifies the untouched graph, in any process.
        self.fingerprint = fingerprint(graph, self._addresses)

    # ---- reading

    def read(self, node: object) -> Op | None:
        """The canonical op of a node; None if nobody understands it or it is no node."""
        if not isinstance(node, fx.Node):
            return None
        found: Op | None = self._ops.get(node, _UNREAD)
        if found is _UNREAD:
            found = None if node in self._fickle else read(node, self._steady_spec)
            self._ops[node] = found
        return found

    def _steady_spec(self, node: fx.Node) -> AnySpec:
        return None if node in self._fickle else self._specs.get(node)

    def producer(self, node: object, kind: type[OpT]) -> OpT | None:
        """The op that computes `node`, if it is of this kind."""
        op = self.read(node)
        return op if isinstance(op, kind) else None

    def nodes(self) -> Iterator[fx.Node]:
        """Living nodes in graph order."""
        return (node for node in self.graph.nodes if node not in self._buried)

    def ops(self, kind: type[OpT]) -> Iterator[OpT]:
        """All ops of a kind, in graph order."""
        for node in self.nodes():
            op = self.read(node)
            if isinstance(op, kind):
                yield op

    def spec(self, node: fx.Node) -> Spec:
        """Spec of a tensor value; KeyError for anything else."""
        spec = self._specs.get(node)
        if not isinstance(spec, Spec):
            raise KeyError(f"{node.name} is not a tensor with a known shape")
        return spec

    def any_spec(self, node: fx.Node) -> AnySpec:
        return self._specs.get(node)

    def shape(self, node: fx.Node) -> tuple[int, ...]:
        """Sizes of a tensor value; a symbolic size stands as torch's SymInt."""
        return self.spec(node).shape  # type: ignore[return-value]

    def ndim(self, node: fx.Node) -> int:
        return self.spec(node).ndim

    def memo(self, key: Hashable, compute: Callable[[], T]) -> T:
        """`compute()`, remembered until the graph changes."""
        if key not in self._memo:
            self._memo[key] = compute()
        return self._memo[key]  # type: ignore[no-any-return]

    def lasting(self, node: fx.Node, key: Hashable, compute: Callable[[], T]) -> T:
        """`compute()`, remembered for as long as the node's op, the specs of its tensors, and what the
        graph writes stay the same: it may depend on nothing else."""
        if self._lasting_for != self.written:
            self._lasting_for = self.written
            self._lasting.clear()
        facts = self._lasting.setdefault(node, {})
        if key not in facts:
            facts[key] = compute()
        return facts[key]  # type: ignore[no-any-return]

    # ---- neighbours

    def users(self, node: fx.Node) -> tuple[fx.Node, ...]:
        """Users in graph order."""
        return tuple(sorted(node.users) if len(node.users) > 1 else node.users)

    def pieces(self, op: Split | Unbind) -> dict[int, list[Piece]] | None:
        """The pieces taken of a multi-output op by index, or None if it is used in another way."""
        return self.memo(("pieces", op.node), lambda: self._find_pieces(op))

    def _find_pieces(self, op: Split | Unbind) -> dict[int, list[Piece]] | None:
        found: dict[int, list[Piece]] = {}
        for user in self.users(op.node):
            piece = self.producer(user, Piece)
            if piece is None:
                return None
            found.setdefault(piece.index, []).append(piece)
        return found

    # ---- order, regions, memory

    def needs_grad(self, node: fx.Node) -> bool:
        """Autograd records how the value is computed: it or something before it requires grad."""
        return node in self._recorded

    def _find_recorded(self) -> set[fx.Node]:
        """Nodes whose fake tensor requires grad; none where nothing computed does (inference)."""
        found = {node for node in self.graph.nodes if _requires_grad(self._fake_value(node))}
        # A graph that changes grad mode itself tells nothing: a view made there may yet carry one.
        computes = any(node.op.startswith("call") for node in found)
        return found if computes or any(map(is_region_change, self.graph.nodes)) else set()

    def _note_callers_grad_mode(self) -> None:
        """The caller's grad mode is off where a smooth op's result does not require grad although
        one of its operands does: there only views of parameters do."""
        for node in self.graph.nodes:
            if node in self._recorded or self._recorded.isdisjoint(node.all_input_nodes):
                continue
            if self._modes[self._regions[node]].grad or not self._could_record(node):
                continue
            early = (replace(mode, enabled=False) for mode in self._modes if not mode.grad)
            self._modes = [*early, *(mode for mode in self._modes if mode.grad)]
            return

    def _could_record(self, node: fx.Node) -> bool:
        """An op that hands a gradient on, wherever grad mode is on."""
        spec = self._specs.get(node)
        smooth = isinstance(spec, Spec) and spec.dtype.is_floating_point
        return smooth and isinstance(self.read(node), SMOOTH)

    def _fake_value(self, node: fx.Node) -> Any:
        return node.meta.get(self.dialect.value)

    def region(self, node: fx.Node) -> int:
        """Number of the stretch between two changes of grad mode or autocast."""
        return self._regions[node]

    def mode(self, region: int) -> RegionMode:
        """Where the region starts and which autocasts hold in it."""
        return self._modes[region]

    @property
    def writes(self) -> Collection[Write]:
        """All nodes that may write memory."""
        if self._writes is None:
            self._writes = {}
            for node in self.nodes():
                self._refresh_write(node)
        return self._writes.values()

    @property
    def written(self) -> frozenset[int]:
        """All memory that some node may write."""
        return self.memo("written", lambda: frozenset().union(*(w.storages for w in self.writes)))

    def _refresh_write(self, node: fx.Node) -> None:
        assert self._writes is not None
        storages = self.storages(written_arguments(node))
        self._writes.pop(node, None)
        if storages and node not in self._buried:
            self._writes[node] = Write(node, storages)

    def storages(self, nodes: Iterable[fx.Node]) -> frozenset[int]:
        """Memory behind the given values."""
        found: set[int] = set()
        for node in nodes:
            spec = self._specs.get(node)
            if isinstance(spec, Spec):
                found.add(spec.storage)
            elif spec is not None:
                found.update(part.storage for part in spec)
        return frozenset(found)

    def writers(self, storage: int) -> Sequence[fx.Node]:
        """The nodes that may write this memory, in graph order."""
        return self.memo("writers", self._find_writers).get(storage, ())

    def _find_writers(self) -> dict[int, list[fx.Node]]:
        found: dict[int, list[fx.Node]] = {}
        for write in sorted(self.writes, key=lambda write: write.node):
            for storage in write.storages:
                found.setdefault(storage, []).append(write.node)
        return found

    def epoch(self, nodes: Iterable[fx.Node], at: fx.Node) -> int:
        """How many writes to the memory of `nodes` come before `at` in the graph; one that writes
        several of these counts for each."""
        storages = self.storages(nodes) & self.written
        return sum(bisect_left(self.writers(storage), at) for storage in storages)

    def _find_regions(self) -> dict[fx.Node, int]:
        regions: dict[fx.Node, int] = {}
        self._modes = [RegionMode(None, ())]
        for node in self.graph.nodes:
            if is_region_change(node):
                casts, grad = self._modes[-1].autocasts, self._modes[-1].grad
                enabled = self._modes[-1].enabled
                if node.target is torch.amp.autocast_mode._enter_autocast:
                    casts = (*casts, node)
                elif node.target is torch.amp.autocast_mode._exit_autocast:
                    casts = tuple(cast for cast in casts if cast is not node.args[0])
                else:
                    grad += 1
                    enabled = _grad_mode(node)
                self._modes.append(RegionMode(node, casts, grad, enabled))
            regions[node] = len(self._modes) - 1
        return regions

    def _find_fickle(self) -> set[fx.Node]:
        """Values whose shape or strides may change in place: no spec holds for all their life."""
        changing = [node for node in self.graph.nodes if changes_metadata(node)]
        storages = self.storages(n for node in changing for n in (node, *node.all_input_nodes))
        return {node for node in self._specs if storages and self.storages([node]) & storages}

    # ---- for the editor

    def learn(self, node: fx.Node, spec: AnySpec, region: int, address: str) -> None:
        """Takes in a node that was just inserted."""
        self._specs[node] = spec
        self._regions[node] = region
        self.rename(node, address)
        if self._records(node, spec, region):
            self._recorded.add(node)
        self.note_users(node.all_input_nodes)
        self.forget((node,))

    def restate(self, node: fx.Node, spec: AnySpec) -> None:
        """`node` lies elsewhere in memory than it did."""
        self._specs[node] = spec
        self.forget((node,))
        for user in node.users:
            self._lasting.pop(user, None)

    def _records(self, node: fx.Node, spec: AnySpec, region: int) -> bool:
        parts = parts_of(spec) if spec is not None else _parts_known(self._fake_value(node))
        smooth = any(p.dtype.is_floating_point or p.dtype.is_complex for p in parts)
        sources = [source for source in node.all_input_nodes if source in self._recorded]
        if self._modes[region].enabled is False:
            # Even there a view requires grad if its base does, although no gradient gets through.
            return smooth and bool(self.storages(sources) & {part.storage for part in parts})
        return smooth and bool(sources)

    def is_pure(self, node: fx.Node) -> bool:
        """`effects.is_pure`, asked once a node: rewiring changes no flag among its arguments."""
        found = self._pure.get(node)
        if found is None:
            found = self._pure[node] = is_pure(node)
        return found

    def forget(self, nodes: Iterable[fx.Node]) -> None:
        """The arguments of these nodes changed: read them again when asked.

        Their users as well where an op is read through its producer: `mm(x, t(w))` is a Linear of w.
        """
        self._memo.clear()
        nodes = tuple(nodes)
        self.note_changed(nodes)
        for node in nodes:
            self._ops.pop(node, None)
            self._lasting.pop(node, None)
            for user in node.users if node.target in _READ_THROUGH else ():
                self._ops.pop(user, None)
                self._lasting.pop(user, None)
            if self._writes is not None and (node in self._writes or not self.is_pure(node)):
                self._refresh_write(node)

    def bury(self, node: fx.Node) -> None:
        """The node is dead: it has no users and no arguments any more."""
        self._buried.add(node)
        self.forget((node,))

    def unbury(self, node: fx.Node) -> None:
        self._buried.discard(node)
        self.forget((node,))

    def is_buried(self, node: fx.Node) -> bool:
        return node in self._buried

    def is_living(self, node: fx.Node) -> bool:
        """The node is part of the graph as it will be after `finish`."""
        return node in self._regions and node not in self._buried

    def drop(self, node: fx.Node) -> None:
        """The node has left the graph."""
        self._buried.discard(node)
        self._recorded.discard(node)
        self._drop_address(node)
        tables: tuple[dict[fx.Node, Any], ...] = (
            *(self._ops, self._pure, self._specs, self._regions, self._lasting),
            self._writes or {},
        )
        for table in tables:
            table.pop(node, None)


def _grad_mode(change: fx.Node) -> bool | None:
    """What a node sets grad mode to, where it does so plainly."""
    if change.target is torch._C._set_grad_enabled and change.args in ((True,), (False,)):
        return bool(change.args[0])
    return None


def _parts_known(value: Any) -> tuple[Spec, ...]:
    """The tensors among several outputs of which some are none."""
    items = value if isinstance(value, (tuple, list)) else ()
    return tuple(part for item in items for part in parts_of(spec_of(item)))


def _requires_grad(value: Any) -> bool:
    parts = value if isinstance(value, (tuple, list)) else (value,)
    return any(isinstance(part, torch.Tensor) and part.requires_grad for part in parts)

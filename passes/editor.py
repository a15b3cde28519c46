"""The one way in which a graph changes.

A step is a transaction: `with editor.step(...)` either ends with a legal graph and a record of what
was inserted, removed and replaced, or leaves the graph exactly as it was. The editor keeps
topological order, refuses to move anything across a write to memory or a change of grad mode, keeps
shapes, types, strides and aliasing as an outsider can see them, and fills in fake tensors.

Dead nodes are emptied and buried, not erased, until `finish`: that is what makes a step cheap to
undo, and undoing cheap enough to rehearse candidates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import FakeTensorMode

from passwright.passes.address import digest
from passwright.passes.build import Builders
from passwright.passes.effects import is_pure
from passwright.passes.errors import IllegalRewrite
from passwright.passes.graph import GraphView
from passwright.passes.legality import escapes, is_written, observes_strides, same_shape
from passwright.passes.spec import AnySpec, Spec, spec_of
from passwright.passes.symbolic import forbid_new_guards


@dataclass
class Record:
    """What one step did to the graph."""

    label: str
    inserted: list[fx.Node] = field(default_factory=list)
    #: Node and the text it had while alive.
    removed: dict[fx.Node, str] = field(default_factory=dict)
    #: Old value and the node that computes it now.
    replaced: list[tuple[fx.Node, fx.Node]] = field(default_factory=list)

    def diff(self) -> list[str]:
        """Lines `- node` and `+ node`, as in a text diff."""
        lines = [f"- {text}" for text in self.removed.values()]
        living = [node for node in self.inserted if node not in self.removed]
        return lines + [f"+ {_text(node)}" for node in sorted(living)]

    def absorb(self, later: Record) -> None:
        """Adds a following step; what it removed of ours was never there."""
        self.inserted += later.inserted
        self.replaced += later.replaced
        for node, text in later.removed.items():
            if node in self.inserted:
                self.inserted.remove(node)
            else:
                self.removed[node] = text


class GraphEditor(Builders):
    """Edits the graph behind a view."""

    def __init__(self, view: GraphView) -> None:
        super().__init__(view)
        self._undo: list[Callable[[], None]] = []
        self._record: Record | None = None
        self._region = 0
        self._made: list[fx.Node] = []

    # ---- transactions

    @contextmanager
    def step(self, nodes: Sequence[fx.Node], label: str = "") -> Iterator[Record]:
        """One rewrite of the matched `nodes`; undone if anything raises.

        Raises IllegalRewrite when the result would not be legal.
        """
        mark, outer = len(self._undo), (self._record, self._region)
        self._record = record = Record(label)
        self._region = self.view.region(max(nodes))
        try:
            yield record
            self._sink_early_users(record)
            self._refuse_crossed_writes(record, nodes)
            self._bury_dead(record, nodes)
        except BaseException:
            self.rollback(mark)
            raise
        finally:
            self._record, self._region = outer

    def mark(self) -> int:
        """A point to which `rollback` can return."""
        return len(self._undo)

    def rollback(self, mark: int = 0) -> None:
        """Undoes everything since the mark, newest first."""
        while len(self._undo) > mark:
            self._undo.pop()()

    def finish(self) -> None:
        """Makes all steps final: erases what is dead and fills in fake tensors.

        Raises IllegalRewrite (after undoing everything) where torch computes another shape or type
        than a builder foretold.
        """
        try:
            for node in sorted(node for node in self._made if not self.view.is_buried(node)):
                foretold = self.view.any_spec(node)
                if self.view.dialect.value not in node.meta:
                    found = self._run_fake(node, self.view.region(node))
                    if not _agree(foretold, found):
                        raise IllegalRewrite(f"{node.format_node()} has another shape than foretold")
        except BaseException:
            self.rollback()
            raise
        self._undo.clear()
        for node in reversed(list(self.view.graph.nodes)):
            if self.view.is_buried(node):
                self.view.drop(node)
                self.view.graph.erase_node(node)
        self._made.clear()

    # ---- changes, for patterns

    def call(
        self, target: Any, *args: Any, spec: AnySpec = None, **kwargs: Any
    ) -> fx.Node:
        """Inserts a call as early as its arguments allow.

        Without `spec`, torch's fake tensors tell shape and type. Raises IllegalRewrite where that
        fails or would add a guard.
        """
        record = self._current()
        after = self._earliest(args, kwargs)
        with self.view.graph.inserting_after(after):
            if isinstance(target, str):
                node = self.view.graph.call_method(target, args, kwargs)
            else:
                node = self.view.graph.call_function(target, args, kwargs)
        self._undo.append(lambda: self._remove(node))
        self._made.append(node)
        record.inserted.append(node)
        if spec is None or self.view.mode(self._region).autocasts:
            spec = self._run_fake(node, self._region)
        address = digest(record.label, len(record.inserted))
        self.view.learn(node, spec, self._region, address)
        self.view.forget(node.all_input_nodes)
        return node

    def replace(
        self,
        old: fx.Node,
        new: fx.Node,
        *,
        where: Callable[[fx.Node], bool] = lambda user: True,
    ) -> None:
        """All users of `old` (for which `where` holds) take `new` instead.

        Copies where an outsider could see a change of strides or of sharing. Raises IllegalRewrite
        on a change of shape, type or device, or where memory that would newly be shared is written.
        """
        record = self._current()
        before, after = self.view.any_spec(old), self.view.any_spec(new)
        if not _agree(before, after):
            raise IllegalRewrite(f"{old.name} would change from {before} to {after}")
        if isinstance(before, Spec) and isinstance(after, Spec):
            new = self._keep_appearance(old, before, new, after)
        for user in self.view.users(old):
            if user is not new and where(user):
                self._rewire(user, old, new)
        if new in record.inserted:
            address, given = self.view.address(new), self.view.address(old)
            self.view.rename(new, given)
            self._undo.append(lambda: self.view.rename(new, address))
        record.replaced.append((old, new))

    def remove(self, node: fx.Node) -> None:
        """Takes out a call whose effect the step has replaced; it must have no users left."""
        if node.users:
            raise IllegalRewrite(f"{node.name} still has users")
        self._current().removed[node] = _text(node)
        self._bury(node)

    # ---- mechanism

    def _current(self) -> Record:
        if self._record is None:
            raise RuntimeError("the graph changes only inside `with editor.step(...)`")
        return self._record

    def _earliest(self, args: Any, kwargs: Any) -> fx.Node:
        """The node after which a call with these arguments can stand, in the step's region."""
        needed: list[fx.Node] = []
        fx.node.map_arg((args, kwargs), needed.append)
        start = self.view.mode(self._region).start
        needed += [start] if start is not None else []
        latest = max(needed) if needed else None
        if latest is None or latest.op == "placeholder":
            return self._last_placeholder(latest)
        return latest

    def _last_placeholder(self, latest: fx.Node | None) -> fx.Node:
        node = latest or next(iter(self.view.graph.nodes))
        while node.next.op in ("placeholder", "get_attr"):
            node = node.next
        return node

    def _rewire(self, user: fx.Node, old: fx.Node, new: fx.Node) -> None:
        args, kwargs = user.args, user.kwargs
        user.replace_input_with(old, new)

        def undo() -> None:
            user.args, user.kwargs = args, kwargs
            self.view.forget((user,))

        self._undo.append(undo)
        self.view.forget((user,))

    def _remove(self, node: fx.Node) -> None:
        inputs = node.all_input_nodes
        self.view.graph.erase_node(node)
        self._made.remove(node)
        self.view.drop(node)
        self.view.forget(inputs)

    def _keep_appearance(self, old: fx.Node, before: Spec, new: fx.Node, after: Spec) -> fx.Node:
        """`new`, or a copy of it where sharing or strides would differ for somebody outside."""
        copy = False
        if before.storage != after.storage:
            if is_written(self.view, old) or is_written(self.view, new):
                raise IllegalRewrite(f"memory of {old.name} or {new.name} is written elsewhere")
            shared = new not in self._current().inserted or self._shares_memory(new)
            copy = shared and escapes(self.view, old)
        if not before.same_strides(after) and observes_strides(self.view, old):
            copy = True
        if not copy:
            return new
        if before.is_contiguous:
            return self.contiguous_copy(new)
        raise IllegalRewrite(f"{old.name} is visible outside with strides {before.stride}")

    def _shares_memory(self, node: fx.Node) -> bool:
        """Some other living value lies in the same memory."""
        storage = self.view.spec(node).storage
        for source in node.all_input_nodes:
            spec = self.view.any_spec(source)
            for part in spec if isinstance(spec, tuple) else (spec,):
                if part is not None and part.storage == storage:
                    return True
        return False

    def _sink_early_users(self, record: Record) -> None:
        """Users that stand before a node they now need move behind it, if they may move."""
        for node in sorted(record.inserted):
            late = [user for user in node.users if user < node]
            if not late:
                continue
            moving = _dependants(min(late), node)
            if node in moving or any(source in moving for source in node.all_input_nodes):
                raise IllegalRewrite(f"{node.name} would depend on itself")
            place = node
            for member in moving:
                self._check_movable(member, node)
                place = self._move_behind(member, place)

    def _check_movable(self, member: fx.Node, node: fx.Node) -> None:
        if not is_pure(member):
            raise IllegalRewrite(f"{member.name} would have to move and may not")
        if self.view.region(member) != self.view.region(node):
            raise IllegalRewrite(f"{member.name} would leave its grad or autocast region")
        storages = self.view.storages([member, *member.all_input_nodes])
        for write in self.view.writes:
            if member < write.node < node and write.storages & storages:
                raise IllegalRewrite(f"{member.name} would cross {write.node.name}, which writes")

    def _move_behind(self, member: fx.Node, place: fx.Node) -> fx.Node:
        previous = member.prev
        place.append(member)
        self._undo.append(lambda: previous.append(member))
        return member

    def _refuse_crossed_writes(self, record: Record, nodes: Sequence[fx.Node]) -> None:
        """No write to memory that the step reads may lie inside the stretch the step touches."""
        if not self.view.writes or not record.inserted:
            return
        touched = [*nodes, *record.inserted]
        first, last = min(touched), max(touched)
        read = self.view.storages(
            source for node in touched for source in (node, *node.all_input_nodes)
        )
        for write in self.view.writes:
            if first < write.node < last and write.storages & read:
                raise IllegalRewrite(f"{write.node.name} writes memory that the step reads")

    def _bury_dead(self, record: Record, nodes: Iterable[fx.Node]) -> None:
        pending = [*nodes, *record.inserted, *(old for old, _ in record.replaced)]
        while pending:
            node = pending.pop()
            if node.users or self.view.is_buried(node) or not is_pure(node):
                continue
            record.removed[node] = _text(node)
            pending += node.all_input_nodes
            self._bury(node)
        for node in list(record.removed):
            if node in record.inserted:
                record.inserted.remove(node)
                del record.removed[node]

    def _bury(self, node: fx.Node) -> None:
        args, kwargs, inputs = node.args, node.kwargs, node.all_input_nodes
        node.args, node.kwargs = (), {}
        self.view.bury(node)
        self.view.forget(inputs)

        def undo() -> None:
            node.args, node.kwargs = args, kwargs
            self.view.unbury(node)
            self.view.forget(inputs)

        self._undo.append(undo)

    def _run_fake(self, node: fx.Node, region: int) -> AnySpec:
        """Runs the node on fake tensors under its region's autocast, and stores the result."""
        key = self.view.dialect.value
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), self._fake)
        mode = self._fake_mode(node)
        with ExitStack() as stack:
            stack.enter_context(mode)
            stack.enter_context(torch.no_grad())
            # Without it some meta functions cannot take symbolic sizes.
            stack.enter_context(enable_python_dispatcher())
            stack.enter_context(forbid_new_guards(mode))
            for cast in self.view.mode(region).autocasts:
                device, dtype, enabled, cache = cast.args
                stack.enter_context(torch.autocast(device, dtype, enabled, cache))
            try:
                if isinstance(node.target, str):
                    value = getattr(args[0], node.target)(*args[1:], **kwargs)
                else:
                    value = node.target(*args, **kwargs)
            except Exception as error:
                raise IllegalRewrite(f"{node.format_node()} cannot be computed: {error}") from error
        node.meta[key] = tuple(value) if isinstance(value, list) else value
        return spec_of(value)

    def _fake(self, node: fx.Node) -> Any:
        """Fake value of a node; made on demand for nodes whose builder foretold the spec."""
        if self.view.dialect.value not in node.meta:
            self._run_fake(node, self.view.region(node))
        return node.meta[self.view.dialect.value]

    def _fake_mode(self, node: fx.Node) -> FakeTensorMode:
        for source in node.all_input_nodes:
            value = self._fake(source)
            for part in value if isinstance(value, (tuple, list)) else (value,):
                mode = getattr(part, "fake_mode", None)
                if mode is not None:
                    return mode
        raise IllegalRewrite(f"{node.name} has no fake tensor among its arguments")


def _dependants(first: fx.Node, stop: fx.Node) -> dict[fx.Node, None]:
    """Users of `stop`'s value and all that follows from them, between `first` and `stop`, in order."""
    found: dict[fx.Node, None] = {}
    node = first
    while node is not stop:
        if any(source is stop or source in found for source in node.all_input_nodes):
            found[node] = None
        node = node.next
    return found


def _agree(before: AnySpec, after: AnySpec) -> bool:
    """Equal shape, type, device and layout; for several outputs, each of them."""
    if isinstance(before, tuple) and isinstance(after, tuple):
        return len(before) == len(after) and all(map(_agree, before, after))
    if not isinstance(before, Spec) or not isinstance(after, Spec):
        return before is None and after is None
    return (
        same_shape(before.shape, after.shape)
        and (before.dtype, before.device.type, before.layout)
        == (after.dtype, after.device.type, after.layout)
    )


def _text(node: fx.Node) -> str:
    return node.format_node() or node.name

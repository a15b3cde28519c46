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
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from torch import fx

from passwright.passes.address import digest
from passwright.passes.appearance import must_copy, refuse_other_gradient, refuse_other_outputs
from passwright.passes.build_compute import Builders
from passwright.passes.constants import Constant, Constants
from passwright.passes.effects import is_pure, only_draws, only_writes
from passwright.passes.errors import FaultyRewrite, IllegalRewrite
from passwright.passes.fake import FakeRuns
from passwright.passes.graph import GraphView
from passwright.passes.legality import one_grad_mode, parting_write, same_type
from passwright.passes.order import Sinking
from passwright.passes.originals import original
from passwright.passes.spec import AnySpec, Spec
from passwright.passes.state import refuse_foreign_state
from passwright.passes.strides import observes_strides


@dataclass
class Record:
    """What one step did to the graph."""

    label: str
    inserted: list[fx.Node] = field(default_factory=list)
    #: Node and the text it had while alive; in a rehearsal its name.
    removed: dict[fx.Node, str] = field(default_factory=dict)
    #: Old value and the node that computes it now.
    replaced: list[tuple[fx.Node, fx.Node]] = field(default_factory=list)
    #: Values of the graph, in other memory, that took (or were copied for) another's place.
    reused: list[fx.Node] = field(default_factory=list)

    def diff(self) -> list[str]:
        """Lines `- node` and `+ node`, as in a text diff."""
        lines = [f"- {text}" for text in self.removed.values()]
        living = [node for node in self.inserted if node not in self.removed]
        return lines + [f"+ {_text(node)}" for node in sorted(living)]

    def absorb(self, later: Record) -> None:
        """Adds a following step; what it removed of ours was never there."""
        self.inserted += later.inserted
        self.replaced += later.replaced
        self.removed |= later.removed
        self.forget_both()

    def forget_both(self) -> None:
        """What was inserted and removed again was never there."""
        both = self.removed.keys() & set(self.inserted)
        if both:
            self.inserted = [node for node in self.inserted if node not in both]
            self.removed = {n: text for n, text in self.removed.items() if n not in both}


class GraphEditor(FakeRuns, Sinking, Builders, Constants):
    """Edits the graph behind a view."""

    def __init__(self, view: GraphView) -> None:
        super().__init__(view)
        self._undo: list[Callable[[], None]] = []
        self._record: Record | None = None
        #: Steps are to be told of. Writing nodes out takes longer than burying them.
        self.tells = True
        self._region = 0
        self._first: fx.Node | None = None
        self._draws = False
        self._made: dict[fx.Node, None] = {}
        self._stale: dict[fx.Node, None] = {}
        self._constants: dict[fx.Node, Constant] = {}
        #: Last node of this step that was put right after the key, so that siblings stand in order.
        self._tail: dict[fx.Node, fx.Node] = {}
        #: Users of values before the first change, in their order.
        self._users: dict[fx.Node, tuple[fx.Node, ...]] = {}

    # ---- transactions

    @contextmanager
    def step(self, nodes: Sequence[fx.Node], label: str = "") -> Iterator[Record]:
        """One rewrite of the matched `nodes`; undone if anything raises.

        Raises IllegalRewrite when the result would not be legal.
        """
        if not all(map(self.view.is_living, nodes)):
            raise IllegalRewrite("a matched node is no longer in the graph")
        mark, outer = len(self._undo), (self._record, self._region, self._first)
        self._record = record = Record(label)
        self._tail, self._draws = {}, False
        self._region = self.view.region(max(nodes))
        self._first = min(nodes)
        try:
            if not one_grad_mode(self.view, *nodes):
                raise IllegalRewrite("the matched nodes lie in several grad modes")
            yield record
            self._sink_early_users({*record.inserted, *(new for _, new in record.replaced)})
            self._refuse_crossed_writes(record, nodes)
            self._bury_dead(record, nodes)
            refuse_foreign_state(self.view, record.inserted)
        except BaseException:
            self.rollback(mark)
            raise
        finally:
            self._record, self._region, self._first = outer
            self._tail = {}

    def mark(self) -> int:
        """A point to which `rollback` can return."""
        return len(self._undo)

    def rollback(self, mark: int = 0) -> None:
        """Undoes everything since the mark, newest first."""
        while len(self._undo) > mark:
            self._undo.pop()()
        if not self._undo:
            self._restore_users()

    def finish(self) -> None:
        """Makes all steps final: erases what is dead and fills in fake tensors.

        Raises IllegalRewrite (after undoing everything) where torch computes another shape or type
        than a builder foretold.
        """
        try:
            living = sorted(node for node in self._made if not self.view.is_buried(node))
            stale = [node for node in self._stale if self.view.is_living(node)]
            for node in sorted({*living, *stale}):
                foretold = self.view.any_spec(node)
                if self.view.dialect.value not in node.meta:
                    found = self._run_fake(node, self.view.region(node))
                    if foretold is not None and not same_type(foretold, found):
                        raise IllegalRewrite(f"{node.format_node()}: shape was foretold wrong")
                    if self._is_elsewhere(node, foretold, found):
                        raise IllegalRewrite(f"{node.format_node()}: strides were foretold wrong")
                self._mark_recorded(node)
            self._hold_constants()
        except BaseException:
            self.rollback()
            raise
        self._undo.clear()
        self._constants.clear()
        self._name_in_order(living)
        for node in reversed(list(self.view.graph.nodes)):
            if self.view.is_buried(node):
                self.view.drop(node)
                self.view.graph.erase_node(node)
        self._made.clear()
        self._stale.clear()
        self._users = {n: tuple(sorted(n.users)) for n in self._users if self.view.is_living(n)}
        self._restore_users()

    def _name_in_order(self, living: Sequence[fx.Node]) -> None:
        """Names that depend on the rewritten graph alone.

        A name that fx makes up depends on every name ever used in the graph, also by rehearsals,
        and AOTAutograd's cache key holds the names: a replayed plan would miss the cache.
        """
        for number, node in enumerate(living):
            node._rename(f"pw{number}_{node._pretty_print_target(node.target).rpartition('.')[2]}")

    # ---- changes, for patterns

    def call(self, target: Any, *args: Any, spec: AnySpec = None, **kwargs: Any) -> fx.Node:
        """Inserts a call as early as its arguments allow.

        Without `spec`, torch's fake tensors tell shape and type. Raises IllegalRewrite where that
        fails or would add a guard, and for a call that does more than compute a value.
        """
        return self._insert(target, args, kwargs, spec)

    def write(self, target: Any, *args: Any, spec: AnySpec = None, **kwargs: Any) -> fx.Node:
        """Inserts a call that overwrites some of its arguments; `spec` as for `call`.

        That may be memory which this step made, or state that nobody touches but the nodes which the
        step replaces (take those out with `remove`). Raises IllegalRewrite for any other, at the end
        of the step.
        """
        return self._insert(target, args, kwargs, spec, may=only_writes)

    def draw(self, target: Any, *args: Any, **kwargs: Any) -> fx.Node:
        """Inserts a call that draws random numbers, for calls that the step removes.

        They come from another part of the random stream, and other such calls may move behind this
        one: for relaxed patterns alone.
        """
        self._draws = True
        return self._insert(target, args, kwargs, None, may=only_draws)

    def _insert(
        self,
        target: Any,
        args: Any,
        kwargs: Any,
        spec: AnySpec,
        may: Callable[[fx.Node], bool] = is_pure,
    ) -> fx.Node:
        record = self._current()
        anchor = self._earliest(args, kwargs)
        after = self._tail.get(anchor, anchor)
        region = self.view.region(after)
        with self.view.graph.inserting_after(after):
            if isinstance(target, str):
                node = self.view.graph.call_method(target, args, kwargs)
            else:
                node = self.view.graph.call_function(original(target), args, kwargs)
        self._made[node] = None
        try:
            if not (self.view.is_pure(node) if may is is_pure else may(node)):
                raise IllegalRewrite(f"{node.format_node()} has an effect, and may not be inserted")
            if spec is None or self.view.mode(region).autocasts:
                spec = self._run_fake(node, region)
            elif spec == () and may is only_writes:
                spec = None  # the call returns no tensor
        except BaseException:
            self._remove(node)
            raise
        self._undo.append(lambda: self._remove(node))
        self._tail[anchor] = node
        record.inserted.append(node)
        self.view.learn(node, spec, region, digest(record.label, len(record.inserted)))
        return node

    def replace(
        self,
        old: fx.Node,
        new: fx.Node,
        *,
        where: Callable[[fx.Node], bool] = lambda _: True,
        undoing: fx.Node | None = None,
    ) -> None:
        """All users of `old` (for which `where` holds) take `new` instead.

        Copies where an outsider could see a change of strides or of sharing. Raises IllegalRewrite
        on a change of shape, type, device or grad mode, or where memory that would newly be shared
        is written; a write by `undoing`, which the step is about to remove, does not count.
        """
        record = self._current()
        before, after = self.view.any_spec(old), self.view.any_spec(new)
        if not same_type(before, after):
            raise FaultyRewrite(f"{old.name} would change from {before} to {after}")
        users = [user for user in self.view.users(old) if user is not new and where(user)]
        refuse_other_gradient(self.view, old, new, users)
        if isinstance(before, tuple) and isinstance(after, tuple):
            refuse_other_outputs(self.view, old, before, after)
        if new not in record.inserted and self.view.storages([old]) != self.view.storages([new]):
            record.reused.append(new)
        if isinstance(before, Spec):
            copy = must_copy(self.view, old, new, inserted=record.inserted, undoing=undoing)
            new = self.contiguous_copy(new) if copy else new
        for user in users:
            self._rewire(user, old, new)
        if isinstance(before, Spec):
            self._follow(users, before, self.view.spec(new))
        if new in record.inserted and not old.users:
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
        if not all(map(self.view.is_living, needed)):
            raise IllegalRewrite("an argument is no longer in the graph")
        start = self.view.mode(self._region).start
        needed += [start] if start is not None else []
        needed += self._earlier_writes(needed)
        latest = max(needed) if needed else None
        if latest is None or latest.op == "placeholder":
            return self._last_placeholder(latest)
        return latest

    def _earlier_writes(self, values: Sequence[fx.Node]) -> list[fx.Node]:
        """Nodes that wrote the memory of these values before the stretch that the step rewrites, or
        that the step inserted for it."""
        if not self.view.writes or self._first is None:
            return []
        storages, first, own = self.view.storages(values), self._first, self._current().inserted
        touching = [w for w in self.view.writes if w.storages & storages]
        return [w.node for w in touching if w.node < first or w.node in own]

    def _last_placeholder(self, latest: fx.Node | None) -> fx.Node:
        node = latest or next(iter(self.view.graph.nodes))
        while node.next.op in ("placeholder", "get_attr"):
            node = node.next
        return node

    def _rewire(self, user: fx.Node, old: fx.Node, new: fx.Node) -> None:
        args, kwargs = user.args, user.kwargs
        self._note_users(new, *user.all_input_nodes)
        self.view.note_users((old, new))
        user.replace_input_with(old, new)

        def undo() -> None:
            user.args, user.kwargs = args, kwargs
            self.view.forget((user,))

        self._undo.append(undo)
        self.view.forget((user,))

    def _remove(self, node: fx.Node) -> None:
        self.view.graph.erase_node(node)
        self._made.pop(node)
        self.view.drop(node)
        self.view.forget(())

    def _is_elsewhere(self, node: fx.Node, foretold: AnySpec, found: AnySpec) -> bool:
        """Strides were foretold wrong, and somebody can see it."""
        if not isinstance(foretold, Spec) or not isinstance(found, Spec):
            return False
        return not foretold.same_strides(found) and observes_strides(self.view, node)

    def _note_users(self, *values: fx.Node) -> None:
        for value in values:
            if value not in self._users:
                self._users[value] = tuple(value.users)

    def _restore_users(self) -> None:
        """Users back in their order: fx forgets it, and later passes may walk through them."""
        for value, order in self._users.items():
            rank = {user: number for number, user in enumerate(order)}
            users = sorted(value.users, key=lambda user: rank.get(user, len(rank)))
            value.users.clear()
            value.users.update(dict.fromkeys(users))
        self._users.clear()

    def _refuse_crossed_writes(self, record: Record, nodes: Sequence[fx.Node]) -> None:
        """No write may part the nodes of the step that read its memory.

        Nor such a node from an existing value of other memory that takes its place.
        """
        moved = [*record.inserted, *record.reused]
        olds = (old for old, _ in record.replaced)
        # What the step itself writes, it reads in the order in which it was told to.
        readers = [*{*nodes, *olds, *moved}]
        write = parting_write(self.view, readers, besides=record.inserted) if moved else None
        if write is not None:
            raise IllegalRewrite(f"{write.name} writes memory that the step reads")

    def _bury_dead(self, record: Record, nodes: Iterable[fx.Node]) -> None:
        pending = [*nodes, *record.inserted, *(old for old, _ in record.replaced)]
        while pending:
            node = pending.pop()
            if node.users or self.view.is_buried(node) or not self.view.is_pure(node):
                continue
            record.removed[node] = _text(node) if self.tells else node.name
            pending += node.all_input_nodes
            self._bury(node)
        record.forget_both()

    def _bury(self, node: fx.Node) -> None:
        args, kwargs = node.args, node.kwargs
        self._note_users(*node.all_input_nodes)
        self.view.note_users(node.all_input_nodes)
        node.args, node.kwargs = (), {}
        self.view.bury(node)

        def undo() -> None:
            node.args, node.kwargs = args, kwargs
            self.view.unbury(node)

        self._undo.append(undo)


def _text(node: fx.Node) -> str:
    return node.format_node() or node.name

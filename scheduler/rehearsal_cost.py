"""What a step changes of a graph's estimate, without a walk over the whole graph for each step.

Most nodes cost what they cost by themselves. Only pointwise ops and concatenations share kernels, with
those that lie on the memory which they read. So a graph falls into groups that know nothing of each other:
of a step, those are estimated anew that it touches. `GraphCost` says what each costs; a test compares with
a walk over everything.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from torch import fx

from passwright.passes.graph import GraphView
from passwright.passes.spec import Spec, parts_of
from passwright.passes.touched import Touched
from passwright.scheduler.cost import GraphCost, Kind
from passwright.scheduler.device import DeviceDescriptor
from passwright.scheduler.estimate import Estimate, Seconds

_SHARING = (Kind.FUSED, Kind.CAT)
#: Stands for all kernels that a step does not touch.
_REST = "rest"


class RehearsalCost(GraphCost):
    """Estimates one state of a graph, and what steps that are rehearsed on it make of it."""

    def __init__(
        self, view: GraphView, device: DeviceDescriptor, *, training: bool, folds: bool = False
    ) -> None:
        super().__init__(view, device, training=training, folds=folds)
        self._parts, self._counts = self.walk(view.nodes())
        #: The state that steps are rehearsed on.
        self.before = self.estimate_of(self._parts, self._counts)
        self._columns = _sums(self._parts.values())
        self._writers: dict[int, list[fx.Node]] = {}
        self._group = self._groups()

    def compared(self, touched: Touched) -> tuple[Estimate, Estimate]:
        """The state before the step and the present one, which differ by what it `touched`.

        All kernels that both have and that the step does not reach are one part of each.
        """
        if self.folds:
            # What depends on parameters alone is no matter of neighbours.
            return self.before, self.estimate()
        reached = self._reached(touched)
        new, counts = self.walk(sorted(filter(self.view.is_living, reached)))
        known = sorted(node for node in reached if node in self._parts)
        old = {n: self._parts[n] for n in known if self._parts[n] != new.get(n)}
        new = {n: part for n, part in new.items() if part != self._parts.get(n)}
        rest = Seconds(*map(float.__sub__, self._columns, _sums(old.values())))
        less = sum(self._counts.get(node, 0) for node in reached)
        kernels = self.before.kernels - less + sum(counts.values())
        return (
            replace(self.before, parts={_REST: rest, **old}),
            replace(self.before, parts={_REST: rest, **new}, kernels=kernels),
        )

    # ---- groups

    def _groups(self) -> dict[fx.Node, list[fx.Node]]:
        """Of each node that may share a kernel, all that are estimated together with it."""
        sharing = [node for node in self.view.nodes() if self._kind(node) in _SHARING]
        for node in sharing:
            if self._kind(node) is Kind.FUSED:
                self._writers.setdefault(self.view.spec(node).storage, []).append(node)
        group = {node: [node] for node in sharing}
        for writers in self._writers.values():
            for other in writers[1:]:
                _join(group, writers[0], other)
        for node in sharing:
            fused = self._kind(node) is Kind.FUSED
            for writers in self._read_by(node):
                # A loop over other elements never becomes one with this one.
                if not fused or any(self._loop(w) == self._loop(node) for w in writers):
                    _join(group, writers[0], node)
        return group

    def _read_by(self, node: fx.Node) -> Iterable[list[fx.Node]]:
        """For each memory that the node reads, the nodes that may share a kernel and write it."""
        for source in node.all_input_nodes:
            spec = self.view.any_spec(source)
            if isinstance(spec, Spec) and spec.storage in self._writers:
                yield self._writers[spec.storage]

    def _reached(self, touched: Touched) -> set[fx.Node]:
        """Nodes that may cost something else than before, living and dead."""
        reached: set[fx.Node] = set()
        pending = list(touched.used)
        for node in touched.changed:
            pending.append(node)
            if self._leads_on(node):
                pending += self._below(node)
            else:
                pending += node.users
        seen = set()
        groups: set[int] = set()

        def reach(node: fx.Node) -> None:
            group = self._group.get(node)
            if group is not None and id(group) not in groups:
                groups.add(id(group))
                reached.update(group)

        while pending:
            node = pending.pop()
            if node in seen:
                continue
            seen.add(node)
            reached.add(node)
            reach(node)
            if not self.view.is_living(node):
                continue
            if self._kind(node) in _SHARING:
                for part in parts_of(self.view.any_spec(node)):
                    for writer in self._writers.get(part.storage, ())[:1]:
                        reach(writer)
                for writers in self._read_by(node):
                    reach(writers[0])
            if self._leads_on(node):
                pending += node.all_input_nodes
        return reached

    def _leads_on(self, node: fx.Node) -> bool:
        """What becomes of the node matters to its producers, and what it is of to its users: a view, or
        an index, which a look-up may compute anew."""
        if node.op == "output" or not self.view.is_living(node):
            return False
        kind = self._kind(node)
        if kind is Kind.FREE:
            return True
        return kind is Kind.FUSED and not self.view.spec(node).dtype.is_floating_point

    def _below(self, node: fx.Node) -> list[fx.Node]:
        """Users of the node, of views of it, and of views of those."""
        found: dict[fx.Node, None] = {}
        pending = [node]
        while pending:
            for user in pending.pop().users:
                if user not in found:
                    found[user] = None
                    if self.view.is_living(user) and self._kind(user) is Kind.FREE:
                        pending.append(user)
        return list(found)


def _join(group: dict[fx.Node, list[fx.Node]], first: fx.Node, second: fx.Node) -> None:
    """One list for the members of both; those of the smaller move."""
    into, other = group[first], group[second]
    if into is other:
        return
    if len(into) < len(other):
        into, other = other, into
    into += other
    for node in other:
        group[node] = into


def _sums(parts: Iterable[Seconds]) -> Seconds:
    launch = arithmetic = traffic = 0.0
    for part in parts:
        launch += part.launch
        arithmetic += part.arithmetic
        traffic += part.traffic
    return Seconds(launch, arithmetic, traffic)

"""Order in the graph: users move behind a value that was inserted after them, if they may."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

from torch import fx

from passwright.passes.effects import only_draws, only_writes, written_arguments
from passwright.passes.errors import IllegalRewrite
from passwright.passes.graph import GraphView


class Sinking:
    """Mixin of `GraphEditor`."""

    view: GraphView
    _undo: list[Callable[[], None]]
    #: The step draws random numbers anew, so that the order of such calls no longer matters.
    _draws: bool

    def _sink_early_users(self, values: Iterable[fx.Node]) -> None:
        """Users that stand before one of these values move behind it, if they may move."""
        for run in _runs(sorted(values)):
            late = [user for node in run for user in node.users if user < node]
            if not late:
                continue
            # A late user inside the run is an insertion that needs what comes after it.
            moving = _dependants(min(late), run)
            sources = (source for node in run for source in node.all_input_nodes)
            if min(late) >= run[0] or any(source in moving for source in sources):
                raise IllegalRewrite(f"{run[-1].name} would depend on itself")
            place = run[-1]
            for member in moving:
                self._check_movable(member, run[-1], moving)
                place = self._move_behind(member, place)

    def _check_movable(self, member: fx.Node, node: fx.Node, moving: Collection[fx.Node]) -> None:
        """`member` may go behind `node`, in the company of the others that go there."""
        plain = self.view.is_pure(member) or (self._draws and only_draws(member))
        if not plain and not only_writes(member):
            raise IllegalRewrite(f"{member.name} would have to move and may not")
        if self.view.region(member) != self.view.region(node):
            raise IllegalRewrite(f"{member.name} would leave its grad or autocast region")
        if not self.view.writes and plain:
            return
        storages = self.view.storages([member, *member.all_input_nodes])
        for write in self.view.writes:
            crossed = member < write.node < node and write.node not in moving
            if crossed and write.storages & storages:
                raise IllegalRewrite(f"{member.name} would cross {write.node.name}, which writes")
        if plain:
            return
        targets = list(written_arguments(member))
        if any(self.view.any_spec(target) is None for target in targets):
            raise IllegalRewrite(f"nobody knows which memory {member.name} writes")
        written = self.view.storages(targets)
        passed = member.next
        while passed is not node:
            touched = self.view.storages([passed, *passed.all_input_nodes])
            if passed not in moving and touched & written:
                raise IllegalRewrite(f"{member.name} writes what {passed.name} reads before")
            passed = passed.next

    def _move_behind(self, member: fx.Node, place: fx.Node) -> fx.Node:
        previous = member.prev
        place.append(member)
        # What was found out about the order of the graph, of its writes for one, holds no longer.
        self.view.forget((member,))

        def undo() -> None:
            previous.append(member)
            self.view.forget((member,))

        self._undo.append(undo)
        return member


def _runs(nodes: Sequence[fx.Node]) -> list[list[fx.Node]]:
    """Nodes, given in graph order, in runs that stand side by side: the pieces of one batch."""
    runs: list[list[fx.Node]] = []
    for node in nodes:
        if runs and node.prev is runs[-1][-1]:
            runs[-1].append(node)
        else:
            runs.append([node])
    return runs


def _dependants(first: fx.Node, run: Sequence[fx.Node]) -> dict[fx.Node, None]:
    """Users of the run's values and all that follows from them, from `first` to the run, in order."""
    needed = set(run)
    found: dict[fx.Node, None] = {}
    node = first
    while node is not run[0]:
        if any(source in needed for source in node.all_input_nodes):
            found[node] = None
            needed.add(node)
        node = node.next
    return found

"""An editor that fails half-way, for tests that a step is undone from wherever it ended."""

from __future__ import annotations

from typing import Any

from torch import fx

from passwright.passes.editor import GraphEditor
from passwright.passes.graph import GraphView


class Interruption(BaseException):
    """No error that a rewriter would handle."""


class InterruptedEditor(GraphEditor):
    """Raises after its n-th change of the graph, whatever kind of change that is."""

    def __init__(self, view: GraphView, at: int, error: type[BaseException] = Interruption) -> None:
        super().__init__(view)
        self.left = at
        self.error = error

    def _tick(self) -> None:
        self.left -= 1
        if self.left == 0:
            raise self.error("interrupted")

    def _insert(self, *args: Any, **kwargs: Any) -> fx.Node:
        node = super()._insert(*args, **kwargs)
        self._tick()
        return node

    def _read_attribute(self, *args: Any) -> fx.Node:
        node = super()._read_attribute(*args)
        self._tick()
        return node

    def _rewire(self, user: fx.Node, old: fx.Node, new: fx.Node) -> None:
        super()._rewire(user, old, new)
        self._tick()

    def _move_behind(self, member: fx.Node, place: fx.Node) -> fx.Node:
        moved = super()._move_behind(member, place)
        self._tick()
        return moved

    def _bury(self, node: fx.Node) -> None:
        super()._bury(node)
        self._tick()

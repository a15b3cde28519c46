"""What edits touched, for who wants to look at no more than that again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from torch import fx


@dataclass
class Touched:
    """Nodes that edits touched, in the order in which they did; they may be dead by now.

    `changed`: inserted, buried, or with other arguments, another spec or another place in the order.
    `used`: with other users.
    """

    changed: dict[fx.Node, None] = field(default_factory=dict)
    used: dict[fx.Node, None] = field(default_factory=dict)


class Noted:
    """Mixin of `GraphView`, which hears from the editor of every change."""

    _noted: Touched | None = None

    @contextmanager
    def noted(self) -> Iterator[Touched]:
        """Notes what edits inside touch; of blocks inside each other, the inner one alone notes."""
        outer, self._noted = self._noted, Touched()
        try:
            yield self._noted
        finally:
            self._noted = outer

    def note_changed(self, nodes: Iterable[fx.Node]) -> None:
        """For the editor: these nodes are new, or not what they were."""
        if self._noted is not None:
            self._noted.changed.update(dict.fromkeys(nodes))

    def note_users(self, nodes: Iterable[fx.Node]) -> None:
        """For the editor: the users of these nodes change."""
        if self._noted is not None:
            self._noted.used.update(dict.fromkeys(nodes))

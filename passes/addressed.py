"""Which node of a changing graph computes the value that has an address."""

from __future__ import annotations

from collections.abc import Mapping

from torch import fx


class Addressed:
    """Mixin of `GraphView`, which the editor tells who takes a value over."""

    _addresses: dict[fx.Node, str]
    #: Nodes that have an address, and some that had it once.
    _located: dict[str, dict[fx.Node, None]]

    def _give_addresses(self, found: Mapping[fx.Node, str]) -> None:
        self._addresses, self._located = {}, {}
        for node, address in found.items():
            self.rename(node, address)

    def address(self, node: fx.Node) -> str:
        """Structural address (see `address`)."""
        return self._addresses[node]

    def at(self, address: str) -> fx.Node | None:
        """The living node that computes the value with this address."""
        had = self._located.get(address, ())
        found = [n for n in had if self._addresses.get(n) == address and self.is_living(n)]
        return min(found, default=None)

    def rename(self, node: fx.Node, address: str) -> None:
        """`node` now computes the value that had this address."""
        self._addresses[node] = address
        self._located.setdefault(address, {})[node] = None

    def is_living(self, node: fx.Node) -> bool:
        """The view's."""
        raise NotImplementedError

    def _drop_address(self, node: fx.Node) -> None:
        self._located.get(self._addresses.pop(node, ""), {}).pop(node, None)

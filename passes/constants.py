"""Constant tensors in a graph: row offsets of joined tables, indices of pairs.

A constant is an attribute of the graph's module under a name that tells its contents, so that a
cache which hashes the graph's text tells constants apart. It is a plain attribute and not a buffer:
AOTAutograd makes buffers inputs of the compiled graph, and takes stock of them before it runs passes
that sit inside Inductor. In Torch-IR the attribute is read through `lift_fresh_copy`, as AOTAutograd
itself writes down a `torch.tensor` that it meets; Inductor reads it where it is used, without a copy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import _disable_current_modes

from passwright.passes.address import digest
from passwright.passes.dialect import Dialect
from passwright.passes.errors import IllegalRewrite
from passwright.passes.graph import GraphView
from passwright.passes.spec import spec_of

#: How the names of such attributes start.
PREFIX = "_passwright_constant_"


@dataclass(frozen=True)
class Constant:
    """What a constant holds: numbers along one dim."""

    values: tuple[int | float, ...]
    dtype: torch.dtype
    device: torch.device

    @property
    def name(self) -> str:
        """Equal for equal constants, in any process."""
        return PREFIX + digest(self.values, self.dtype, self.device)

    def tensor(self) -> torch.Tensor:
        """The real tensor, whatever fake, tracing or inference modes are on."""
        with _disable_current_modes(), torch.inference_mode(False):
            return torch.tensor(self.values, dtype=self.dtype, device=self.device)


class Constants:
    """Mixin of `GraphEditor`."""

    view: GraphView
    _undo: list[Callable[[], None]]
    _made: dict[fx.Node, None]
    #: The nodes that read a constant which the module does not hold yet.
    _constants: dict[fx.Node, Constant]

    def constant(self, values: Sequence[int | float], dtype: torch.dtype, like: fx.Node) -> fx.Node:
        """A tensor (len(values),) of these numbers, on the device of `like`.

        Raises IllegalRewrite for a graph that belongs to no module, which could hold it.
        """
        if self.view.graph.owning_module is None:
            raise IllegalRewrite("the graph has no module to hold a constant")
        held = Constant(tuple(values), dtype, self.view.spec(like).device)
        attribute = self._read_attribute(held, like)
        if self.view.dialect is Dialect.ATEN:
            return attribute
        spec = self.view.spec(attribute)
        target = torch.ops.aten.lift_fresh_copy.default
        return self.call(target, attribute, spec=spec.fresh(spec.shape))

    def _read_attribute(self, held: Constant, like: fx.Node) -> fx.Node:
        after = self._last_placeholder(None)
        with self.view.graph.inserting_after(after):
            # Not Graph.get_attr, which warns: the attribute comes with `finish`.
            node = self.view.graph.create_node("get_attr", held.name)
        self._made[node] = None
        self._constants[node] = held

        def undo() -> None:
            self._constants.pop(node)
            self._remove(node)

        self._undo.append(undo)
        with self._mode_of(like):
            fake = torch.empty(len(held.values), dtype=held.dtype, device=held.device)
        node.meta[self.view.dialect.value] = fake
        record = self._current()
        record.inserted.append(node)
        address = digest(record.label, len(record.inserted))
        self.view.learn(node, spec_of(fake), self.view.region(after), address)
        return node

    def _hold_constants(self) -> None:
        """Gives the module the constants that living nodes read."""
        owner = self.view.graph.owning_module
        for node, held in self._constants.items():
            if self.view.is_living(node) and held.name not in vars(owner):
                setattr(owner, held.name, held.tensor())

    # ---- of the editor, which inherits this after its own

    def call(self, target: Any, *args: Any, spec: Any = None, **kwargs: Any) -> fx.Node:
        raise NotImplementedError

    def _last_placeholder(self, latest: fx.Node | None) -> fx.Node:
        raise NotImplementedError

    def _mode_of(self, *values: fx.Node) -> FakeTensorMode:
        raise NotImplementedError

    def _remove(self, node: fx.Node) -> None:
        raise NotImplementedError

    def _current(self) -> Any:
        raise NotImplementedError

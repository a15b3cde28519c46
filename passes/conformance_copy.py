"""Copies of a captured graph, each changed in one way: what a conformance check tries a pattern on.

A copy is sketched anew node by node, so that every change has true fake tensors behind it; what
torch refuses on the way is no graph that a user could have, and raises Impossible.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from passwright.passes.conformance_spelling import Call, other_forms, respelled
from passwright.passes.dialect import Dialect
from passwright.passes.sketch import Sketch

_SET_GRAD = torch._C._set_grad_enabled
_ENTER = torch.amp.autocast_mode._enter_autocast
_EXIT = torch.amp.autocast_mode._exit_autocast


class Impossible(Exception):
    """Torch takes no such graph."""


class Copy:
    """The graph as it is; a subclass overrides the moment that it wants to change."""

    def __init__(self, graph: fx.Graph) -> None:
        self.graph = graph
        self.s = Sketch(Dialect.of(graph))
        #: Node of the original to its copy; calls are the originals, in order.
        self.made: dict[fx.Node, fx.Node] = {}
        self.calls = [node for node in graph.nodes if node.op.startswith("call")]

    def module(self) -> fx.GraphModule:
        """The changed copy."""
        try:
            for node in self.graph.nodes:
                self._add(node)
        except Impossible:
            raise
        except Exception as error:  # whatever torch says
            raise Impossible(str(error)) from error
        return self.s.module()

    def _add(self, node: fx.Node) -> None:
        if node.op == "placeholder":
            self.made[node] = self.placeholder(node, node.meta[self.s.key])
        elif node.op == "output":
            self.before(len(self.calls))
            results = [self.made[n] if isinstance(n, fx.Node) else n for n in _flat(node.args[0])]
            self.s.output(*self.results(results))
        elif node.op in ("call_function", "call_method"):
            self.before(self.calls.index(node))
            self.made[node] = self.call(node, *self.arguments(node))
        else:
            raise Impossible(f"{node.op} {node.name}: make it an input of the example")

    # ---- moments

    def placeholder(self, node: fx.Node, value: torch.Tensor) -> fx.Node:
        """Makes an input."""
        return self.s.input(
            *value.shape,
            dtype=value.dtype,
            requires_grad=value.requires_grad,
            stride=value.stride(),
        )

    def before(self, number: int) -> None:
        """Comes before call `number`, and before the output."""

    def arguments(self, node: fx.Node) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Arguments of a call, as nodes of the copy."""
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), lambda n: self.made[n])
        return args, kwargs

    def call(self, node: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> fx.Node:
        """Makes a call."""
        return self.s.call(node.target, *args, **kwargs)

    def results(self, results: list[Any]) -> list[Any]:
        """What the graph returns."""
        return results

    # ---- helpers

    def value(self, node: fx.Node) -> Any:
        """Fake tensor of a node of the copy."""
        return node.meta.get(self.s.key)


class Spellings(Copy):
    """Finds the spellings of every call; the copy itself is as the original."""

    def __init__(self, graph: fx.Graph) -> None:
        super().__init__(graph)
        #: Calls of the original to their other spellings, whose arguments are nodes of the original.
        self.found: dict[fx.Node, list[Call]] = {}

    def call(self, node: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> fx.Node:
        plain = super().call(node, args, kwargs)
        back = {copied: original for original, copied in self.made.items()}
        self.found[node] = []
        for form in other_forms(self.s, plain):
            made = respelled(self.s, plain, form)
            if made is not None:
                self.s.graph.erase_node(made)
                args, kwargs = fx.node.map_arg(form[1:], lambda n: back[n])
                self.found[node].append((form[0], args, kwargs))
        return plain


class Respelled(Copy):
    """Every call in its spelling number `number`, of those that it has."""

    def __init__(self, graph: fx.Graph, spellings: dict[fx.Node, list[Call]], number: int) -> None:
        super().__init__(graph)
        self.spellings, self.number = spellings, number

    def call(self, node: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> fx.Node:
        forms = self.spellings[node]
        if not forms:
            return super().call(node, args, kwargs)
        target, positional, named = forms[self.number % len(forms)]
        args, kwargs = fx.node.map_arg((positional, named), lambda n: self.made[n])
        return self.s.call(target, *args, **kwargs)


class OtherType(Copy):
    """All floating-point inputs in another type, gradients only where wanted."""

    def __init__(self, graph: fx.Graph, dtype: torch.dtype | None, *, grad: bool = True) -> None:
        super().__init__(graph)
        self.dtype, self.grad = dtype, grad

    def placeholder(self, node: fx.Node, value: torch.Tensor) -> fx.Node:
        dtype = self.dtype if self.dtype and value.is_floating_point() else value.dtype
        return self.s.input(
            *value.shape,
            dtype=dtype,
            requires_grad=value.requires_grad and self.grad,
            stride=value.stride(),
        )


class Written(OtherType):
    """Writes to the value `target` (an input or a call of the original) before call `number`."""

    def __init__(self, graph: fx.Graph, number: int, target: fx.Node) -> None:
        super().__init__(graph, None, grad=False)
        self.number, self.target = number, target

    def before(self, number: int) -> None:
        if number != self.number:
            return
        node = self.made[self.target]
        if self.value(node).dtype.is_floating_point:
            self.s.call("add_", self.s.call("mul_", node, -1.5), 0.25)
        else:
            self.s.call("fill_", node, 0)


class MixedTypes(Copy):
    """Call `number` computes in another type: its tensors are converted, and its result back."""

    def __init__(self, graph: fx.Graph, number: int, dtype: torch.dtype) -> None:
        super().__init__(graph)
        self.number, self.dtype = number, dtype

    def call(self, node: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> fx.Node:
        if node is not self.calls[self.number]:
            return super().call(node, args, kwargs)
        converted: dict[fx.Node, fx.Node] = {}

        def convert(source: fx.Node) -> fx.Node:
            value = self.value(source)
            if not isinstance(value, torch.Tensor) or not value.is_floating_point():
                return source
            if source not in converted:
                converted[source] = self._to(source, self.dtype)
            return converted[source]

        args, kwargs = fx.node.map_arg((args, kwargs), convert)
        made = super().call(node, args, kwargs)
        before, after = node.meta[self.s.key], self.value(made)
        if not isinstance(after, torch.Tensor) or after.dtype == before.dtype:
            return made
        return self._to(made, before.dtype)

    def _to(self, node: fx.Node, dtype: torch.dtype) -> fx.Node:
        if self.s.key == Dialect.ATEN.value:
            return self.s.call(torch.ops.aten._to_copy.default, node, dtype=dtype)
        return self.s.call("to", node, dtype)


class Region(Copy):
    """Calls `first` to `last` (not included) run without gradients, or under autocast."""

    def __init__(self, graph: fx.Graph, first: int, last: int, *, autocast: bool) -> None:
        super().__init__(graph)
        self.first, self.last, self.autocast = first, last, autocast
        self.entered: fx.Node | None = None

    def before(self, number: int) -> None:
        if number == self.first:
            if self.autocast:
                self.entered = self.s.call(_ENTER, "cpu", torch.bfloat16, True, True)
            else:
                self.s.call(_SET_GRAD, False)
        if number == self.last:
            if self.entered is not None:
                self.s.call(_EXIT, self.entered)
            else:
                self.s.call(_SET_GRAD, True)


class Seen(Copy):
    """Some calls are returned as well: as they are, as a view, flat (`view`), or as raw memory."""

    def __init__(self, graph: fx.Graph, calls: Sequence[int], how: str) -> None:
        super().__init__(graph)
        self.seen, self.how = [self.calls[number] for number in calls], how

    def results(self, results: list[Any]) -> list[Any]:
        added = [
            self.made[n] for n in self.seen if isinstance(self.value(self.made[n]), torch.Tensor)
        ]
        if not added:
            raise Impossible("no tensor to return")
        return [*results, *(self._shown(node) for node in added)]

    def _shown(self, node: fx.Node) -> fx.Node:
        value, is_aten = self.value(node), self.s.key == Dialect.ATEN.value
        aten = torch.ops.aten
        if self.how == "view":
            return self.s.call(aten.unsqueeze.default if is_aten else torch.unsqueeze, node, 0)
        if self.how == "flat":
            return (
                self.s.call(aten.view.default, node, [-1])
                if is_aten
                else self.s.call("view", node, -1)
            )
        if self.how == "memory":
            target = aten.as_strided.default if is_aten else torch.as_strided
            return self.s.call(target, node, (value.numel(),), (1,))
        return node


class Strided(Copy):
    """Inputs lie in memory otherwise: columns first, or every other element."""

    def __init__(self, graph: fx.Graph, inputs: Sequence[int], how: str) -> None:
        super().__init__(graph)
        given = graph.find_nodes(op="placeholder")
        self.changed, self.how = [given[number] for number in inputs], how

    def placeholder(self, node: fx.Node, value: torch.Tensor) -> fx.Node:
        if node not in self.changed or value.ndim == 0:
            return super().placeholder(node, value)
        order = list(range(value.ndim))
        strides, step = [0] * value.ndim, 1
        for dim in order if self.how == "columns" else reversed(order):
            strides[dim] = step
            step *= max(value.shape[dim], 1)
        if self.how == "spread":
            strides = [2 * stride for stride in strides]
        return self.s.input(
            *value.shape, dtype=value.dtype, requires_grad=value.requires_grad, stride=strides
        )


def _flat(results: Any) -> list[Any]:
    return list(results) if isinstance(results, (tuple, list)) else [results]

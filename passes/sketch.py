"""Graphs built by hand, for tests: much quicker than a capture, and exactly the nodes wanted.

s = Sketch()
x = s.input(4, 8)
s.output(s.call(torch.sin, x))
result = rewrite_graph(s.module(), [torch.rand(4, 8)], MyPattern())
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch import fx
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import FakeTensorMode

from passwright.passes.dialect import Dialect
from passwright.passes.graph import GraphView
from passwright.passes.originals import original


class Sketch:
    """An `fx.Graph` in the making, with a fake tensor for every node as Dynamo would leave it."""

    def __init__(self, dialect: Dialect = Dialect.TORCH) -> None:
        self.graph = fx.Graph()
        self.key = dialect.value
        self.mode = FakeTensorMode()
        self._grad = True
        self._casts: dict[fx.Node, tuple[Any, ...]] = {}
        self._inputs = 0

    def input(
        self,
        *shape: int,
        dtype: torch.dtype = torch.float32,
        requires_grad: bool = False,
        stride: Sequence[int] | None = None,
        device: str = "cpu",
    ) -> fx.Node:
        """A placeholder."""
        node = self.graph.placeholder(f"x{self._inputs}")
        self._inputs += 1
        with self.mode:
            value = torch.empty(shape, dtype=dtype, device=device)
            if stride is not None:
                value = torch.empty_strided(shape, stride, dtype=dtype, device=device)
            node.meta[self.key] = value.requires_grad_(requires_grad)
        return node

    def call(self, target: Any, *args: Any, **kwargs: Any) -> fx.Node:
        """A call; a string target is a method. A change of mode holds for the calls after it."""
        make = self.graph.call_method if isinstance(target, str) else self.graph.call_function
        target = original(target)
        node = make(target, args, kwargs)
        if target is torch._C._set_grad_enabled:
            self._grad = args[0]
        elif target is torch.amp.autocast_mode._enter_autocast:
            self._casts[node] = args
        elif target is torch.amp.autocast_mode._exit_autocast:
            del self._casts[args[0]]
        else:
            value = self._run(target, node)
            node.meta[self.key] = tuple(value) if isinstance(value, list) else value
        return node

    def _run(self, target: Any, node: fx.Node) -> Any:
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), lambda n: n.meta[self.key])
        with ExitStack() as stack:
            stack.enter_context(self.mode)
            stack.enter_context(enable_python_dispatcher())
            stack.enter_context(torch.set_grad_enabled(self._grad))
            for device, dtype, enabled, cache in self._casts.values():
                stack.enter_context(torch.autocast(device, dtype, enabled, cache))
            if isinstance(target, str):
                return getattr(args[0], target)(*args[1:], **kwargs)
            return target(*args, **kwargs)

    def output(self, *nodes: fx.Node) -> None:
        """The graph's results."""
        self.graph.output(nodes)

    def module(self) -> fx.GraphModule:
        """Runs what was sketched."""
        return fx.GraphModule(torch.nn.Module(), self.graph)

    def view(self) -> GraphView:
        """The graph as patterns see it."""
        return GraphView(self.graph)


def snapshot(graph: fx.Graph) -> list[tuple[object, ...]]:
    """All that a user can tell of a graph: order, names, arguments, users in their order, metas."""
    return [
        (
            node,
            node.name,
            node.op,
            node.target,
            str(node.args),
            str(node.kwargs),
            tuple(node.users),
            tuple(node.all_input_nodes),
            {key: id(value) for key, value in node.meta.items()},
        )
        for node in graph.nodes
    ]


def outcome(module: fx.GraphModule, *inputs: torch.Tensor) -> tuple[Any, list[torch.Tensor]]:
    """What the graph computes on copies of the inputs, and what it leaves in them."""
    copies = [value.detach().clone().requires_grad_(value.requires_grad) for value in inputs]
    with torch.no_grad():
        return module(*copies), copies


def assert_outcome(module: fx.GraphModule, expected: Any, *inputs: torch.Tensor) -> None:
    """The graph is well formed, and computes what it did: every bit and every stride."""
    module.graph.lint()
    module.recompile()
    found = outcome(module, *inputs)
    torch.testing.assert_close(found, expected, rtol=0, atol=0, check_stride=True)


def nested_splits(s: Sketch) -> tuple[fx.Node, ...]:
    """split(split(x, [4, 8])[1], [3, 5]) and a use of every piece."""
    x = s.input(2, 12)
    outer = s.call(torch.split, x, [4, 8], 1)
    a, b = (s.call(operator.getitem, outer, i) for i in range(2))
    inner = s.call(torch.split, b, [3, 5], 1)
    c, d = (s.call(operator.getitem, inner, i) for i in range(2))
    s.output(*(s.call(torch.sin, piece) for piece in (a, c, d)))
    return x, outer, a, b, inner, c, d

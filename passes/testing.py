"""Helpers to test patterns: capture a function, rewrite its graph, compare before and after.

Shipped with the package so that a third party can test its own patterns the same way:

    result = rewrite(fn, inputs, MyPattern())
    assert result.after == ["a = narrow(x, 1, 0, 8)", "return a"]
    result.check()
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx

from passwright.passes.address import target_name
from passwright.passes.dialect import Dialect
from passwright.passes.graph import GraphView
from passwright.passes.matching import Rewriter
from passwright.passes.pattern import Candidate, Exactness, Pattern
from passwright.passes.spec import hint
from passwright.passes.table import PatternTable

_LIMIT = 200


def capture(
    fn: Callable[..., Any],
    inputs: Sequence[Any],
    dialect: Dialect = Dialect.TORCH,
    *,
    dynamic: bool | None = False,
) -> tuple[fx.GraphModule, list[Any]]:
    """The graph of `fn` with fake tensors in its nodes, and the inputs of that graph.

    Torch-IR comes from Dynamo (a model with graph breaks raises an error), ATen-IR from make_fx of
    the Torch-IR graph. Parameters are inputs of the graph.
    """
    found: list[tuple[fx.GraphModule, list[Any]]] = []

    def keep(graph_module: fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
        inputs = [hint(v) if isinstance(v, torch.SymInt) else v for v in example_inputs]
        found.append((graph_module, inputs))
        return graph_module.forward

    torch._dynamo.reset()
    torch.compile(fn, backend=keep, dynamic=dynamic, fullgraph=True)(*inputs)
    if len(found) != 1:
        raise RuntimeError(f"expected one graph, Dynamo made {len(found)}")
    module, graph_inputs = found[0]
    if dialect is Dialect.ATEN:
        module = make_fx(module, tracing_mode="fake")(*graph_inputs)
    return module, graph_inputs


def random_inputs(graph: fx.Graph, seed: int = 0) -> list[torch.Tensor]:
    """Real tensors for a graph of static shapes: normal numbers, integers from 0 to 3, booleans."""
    generator = torch.Generator().manual_seed(seed)
    dialect = Dialect.of(graph)
    made = []
    for node in graph.find_nodes(op="placeholder"):
        fake = node.meta[dialect.value]
        real = torch.empty_strided(fake.shape, fake.stride(), dtype=fake.dtype)
        if fake.is_floating_point() or fake.is_complex():
            real.normal_(generator=generator)
        else:
            real.random_(0, 2 if fake.dtype is torch.bool else 4, generator=generator)
        made.append(real.requires_grad_(fake.requires_grad))
    return made


def text(graph: fx.Graph) -> list[str]:
    """One short line a node: `cat = cat([a, b], 1)`; placeholders are left out."""
    lines = []
    for node in graph.nodes:
        if node.op == "output":
            lines.append(f"return {_short(node.args[0])}")
        elif node.op not in ("placeholder", "get_attr"):
            arguments = [_short(value) for value in node.args]
            arguments += [f"{key}={_short(value)}" for key, value in node.kwargs.items()]
            lines.append(f"{node.name} = {target_name(node)}({', '.join(arguments)})")
    return lines


def _short(value: Any) -> str:
    if isinstance(value, fx.Node):
        return value.name
    if isinstance(value, (list, tuple)):
        inner = ", ".join(map(_short, value))
        return f"[{inner}]" if isinstance(value, list) else f"({inner})"
    return str(value)


@dataclass
class Rewritten:
    """A graph before and after a sequence of steps."""

    original: fx.GraphModule
    module: fx.GraphModule
    inputs: list[Any]
    before: list[str]
    after: list[str]
    labels: list[str] = field(default_factory=list)
    diffs: list[list[str]] = field(default_factory=list)
    bitwise: bool = True

    @property
    def calls(self) -> list[str]:
        """Names of all calls that are left (as `text` prints them), in graph order."""
        return [line.split(" = ")[1].partition("(")[0] for line in self.after if " = " in line]

    def count(self, name: str) -> int:
        """How many calls of this name are left."""
        return self.calls.count(name)

    def check(self, *, gradients: bool = True) -> None:
        """Values, strides and gradients are those of the original; raises AssertionError.

        So are the inputs afterwards (a graph may write them), and which outputs require grad.
        """
        expected, expected_grads = _run(self.original, self.inputs, gradients)
        actual, actual_grads = _run(self.module, self.inputs, gradients)
        error = 0.0 if self.bitwise else None
        torch.testing.assert_close(actual, expected, rtol=error, atol=error, equal_nan=True)
        assert list(map(_strides, actual)) == list(map(_strides, expected))
        wanted = [getattr(value, "requires_grad", None) for value in expected]
        assert [getattr(value, "requires_grad", None) for value in actual] == wanted
        torch.testing.assert_close(actual_grads, expected_grads, equal_nan=True)


def _strides(value: Any) -> tuple[int, ...] | None:
    """Strides of a tensor, but for dims of size 1, where they mean nothing."""
    if not isinstance(value, torch.Tensor):
        return None
    return tuple(s for size, s in zip(value.shape, value.stride(), strict=True) if size != 1)


def _run(module: fx.GraphModule, inputs: list[Any], gradients: bool) -> tuple[Any, Any]:
    """Outputs and then inputs, and gradients of a fixed random weighting of the outputs."""
    fresh = [
        value.detach().clone().requires_grad_(value.requires_grad)
        if isinstance(value, torch.Tensor)
        else value
        for value in inputs
    ]
    with torch.enable_grad():  # puts the mode back that the graph may leave changed
        outputs = copy.deepcopy(module)(*fresh)
    flat = list(torch.utils._pytree.tree_leaves(outputs))
    after = [value.detach() if isinstance(value, torch.Tensor) else value for value in fresh]
    if not gradients:
        return [*flat, *after], []
    generator = torch.Generator().manual_seed(0)
    loss: Any = 0
    for value in flat:
        if isinstance(value, torch.Tensor) and value.requires_grad:
            weight = torch.rand(value.shape, generator=generator, dtype=torch.float64)
            loss = loss + (value * weight.to(value.dtype).to(value.device)).sum()
    wanted = [v for v in fresh if isinstance(v, torch.Tensor) and v.requires_grad]
    if not wanted or not isinstance(loss, torch.Tensor):
        return [*flat, *after], []
    return [*flat, *after], list(torch.autograd.grad(loss, wanted, materialize_grads=True))


def rewrite(
    fn: Callable[..., Any],
    inputs: Sequence[Any],
    *patterns: Pattern,
    dialect: Dialect = Dialect.TORCH,
    dynamic: bool | None = False,
) -> Rewritten:
    """Captures `fn` and applies candidates of the patterns, by name and the largest first, until
    none is left."""
    module, graph_inputs = capture(fn, inputs, dialect, dynamic=dynamic)
    return rewrite_graph(module, graph_inputs, *patterns)


def _rank(candidate: Candidate) -> tuple[Any, ...]:
    name, *rest = candidate.order
    return (name, -len(candidate.match.nodes), *rest)


def rewrite_graph(module: fx.GraphModule, graph_inputs: list[Any], *patterns: Pattern) -> Rewritten:
    """As `rewrite`, for a graph already captured."""
    original = copy.deepcopy(module)
    view = GraphView(module.graph)
    rewriter = Rewriter(view, PatternTable(patterns))
    result = Rewritten(original, module, graph_inputs, text(module.graph), [])
    result.bitwise = all(p.exactness is Exactness.BITWISE for p in patterns)
    for _ in range(_LIMIT):
        chosen = min(rewriter.candidates(), key=_rank, default=None)
        if chosen is None:
            break
        result.diffs.append(rewriter.apply(chosen).diff())
        result.labels.append(chosen.label)
    else:
        raise AssertionError(f"still candidates after {_LIMIT} steps: {result.labels[-1]}")
    rewriter.editor.finish()
    module.graph.lint()
    module.recompile()
    result.after = text(module.graph)
    return result

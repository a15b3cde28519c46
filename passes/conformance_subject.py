"""A pattern and an example of it, captured once: what the conformance checks look at."""

from __future__ import annotations

import copy
import functools
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from passwright.passes.conformance_spelling import quiet
from passwright.passes.dialect import Dialect
from passwright.passes.errors import FaultyRewrite, IllegalRewrite
from passwright.passes.graph import GraphView
from passwright.passes.matching import Rewriter
from passwright.passes.ops import Op
from passwright.passes.pattern import Candidate, Pattern
from passwright.passes.spec import hint
from passwright.passes.table import PatternTable
from passwright.passes.testing import capture, text

#: The batch "b" of examples, and those with which it becomes symbolic.
BATCH, OTHER_BATCHES = 6, (10, 14)
_LIMIT = 100


@dataclass(frozen=True)
class Given:
    """An input: floating-point numbers, or indices of that many rows. A size "b" is the batch."""

    shape: tuple[int | str, ...]
    rows: int | None = None
    grad: bool = True

    def real(self, batch: int) -> torch.Tensor:
        """A tensor of this kind; a batch other than the usual one is marked as dynamic."""
        sizes = [batch if size == "b" else int(size) for size in self.shape]
        if self.rows is not None:
            return torch.arange(torch.Size(sizes).numel()).reshape(sizes) % self.rows
        generator = torch.Generator().manual_seed(len(sizes))
        return torch.randn(sizes, generator=generator).requires_grad_(self.grad)


def tensor(*shape: int | str, grad: bool = True) -> Given:
    """A floating-point input; the checks choose its type."""
    return Given(shape, None, grad)


def index(*shape: int | str, rows: int) -> Given:
    """An integer input for a table of that many rows."""
    return Given(shape, rows, False)


@dataclass(frozen=True, eq=False)
class Example:
    """A function in which the pattern finds something to do.

    `before` and `after` count canonical ops in Torch-IR (those that are named), `changes` is how
    many nodes all steps together insert and remove, `steps` how many there are.
    """

    fn: Callable[..., Any]
    inputs: tuple[Given, ...]
    before: Mapping[type[Op], int]
    after: Mapping[type[Op], int]
    changes: tuple[int, int]
    steps: int = 1
    #: Of the pattern's levels, those on which this example shows it.
    levels: frozenset[Dialect] = frozenset(Dialect)
    #: The pattern applies with a symbolic batch as well (tried where an input has a "b").
    dynamic: bool = True


@dataclass
class Outcome:
    """A graph before and after all steps that a pattern finds in it."""

    original: fx.GraphModule
    module: fx.GraphModule
    steps: list[Candidate] = field(default_factory=list)
    inserted: int = 0
    removed: int = 0
    refused: list[str] = field(default_factory=list)


def rewritten(module: fx.GraphModule, pattern: Pattern) -> Outcome:
    """Applies the pattern to a copy until nothing is left; a refused candidate is left out."""
    found = Outcome(module, copy.deepcopy(module))
    view = GraphView(found.module.graph)
    rewriter = Rewriter(view, PatternTable([pattern]))
    refused: set[tuple[str, str, str]] = set()
    with quiet():
        for _ in range(_LIMIT):
            left = [c for c in rewriter.candidates() if c.order not in refused]
            if not left:
                break
            try:
                record = rewriter.apply(left[0])
            except FaultyRewrite as error:
                raise AssertionError(f"{left[0].label}: {error}") from error
            except IllegalRewrite as error:
                refused.add(left[0].order)
                found.refused.append(f"{left[0].label}: {error}")
                continue
            found.steps.append(left[0])
            found.inserted += sum(line.startswith("+") for line in record.diff())
            found.removed += sum(line.startswith("-") for line in record.diff())
        else:
            raise AssertionError(f"still candidates after {_LIMIT} steps: {left[0].label}")
        assert not rewriter._reported, f"pattern {pattern.name()} raised an error (see the log)"
        rewriter.editor.finish()
    found.module.graph.lint()
    found.module.recompile()
    return found


@dataclass(frozen=True)
class Dynamic:
    """A graph with a symbolic batch, and inputs of two sizes."""

    module: fx.GraphModule
    inputs: list[list[Any]]


@dataclass(frozen=True)
class Subject:
    """One example of one pattern."""

    pattern: Pattern
    example: Example

    @property
    def dialects(self) -> list[Dialect]:
        """Levels of the pattern on which the example shows it."""
        return [d for d in Dialect if d in self.pattern.levels and d in self.example.levels]

    def graph(self, dialect: Dialect) -> fx.Graph:
        """The example's graph; not to be changed."""
        return _captured(self.example, dialect).graph

    def outcome(self, dialect: Dialect) -> Outcome:
        """The example's graph before and after."""
        return rewritten(_captured(self.example, dialect), self.pattern)

    def captured_again(self) -> fx.GraphModule:
        """The example's graph in Torch-IR from another run of Dynamo."""
        return _capture(self.example, self.dialects[0])

    def dynamic(self) -> Dynamic | None:
        """The example's graph with a symbolic batch, if it has one."""
        given = self.example.inputs
        if not self.example.dynamic or not any("b" in g.shape for g in given):
            return None
        return _captured_dynamic(self.example)


def counts(graph: fx.Graph) -> Counter[type[Op]]:
    """How many ops of each kind there are."""
    view = GraphView(graph)
    return Counter(type(op) for op in map(view.read, view.nodes()) if op is not None)


def shown(graph: fx.Graph) -> str:
    """The graph as text, for messages."""
    return "\n".join(text(graph))


@functools.cache
def _captured(example: Example, dialect: Dialect) -> fx.GraphModule:
    return _capture(example, dialect)


def _capture(example: Example, dialect: Dialect) -> fx.GraphModule:
    module, given = capture(example.fn, [g.real(BATCH) for g in example.inputs], dialect)
    for node, value in zip(module.graph.find_nodes(op="placeholder"), given, strict=True):
        # make_fx forgets which inputs have a gradient.
        node.meta[dialect.value].requires_grad_(value.requires_grad)
    if dialect is Dialect.ATEN:
        # AOTAutograd leaves no dead calls; make_fx does. (In Torch-IR this would drop writes.)
        module.graph.eliminate_dead_code()
    module.recompile()
    return module


@functools.cache
def _captured_dynamic(example: Example) -> Dynamic:
    modules: list[fx.GraphModule] = []
    inputs: list[list[Any]] = []

    def keep(module: fx.GraphModule, _: list[Any]) -> Callable[..., Any]:
        modules.append(module)

        def run(*args: Any) -> Any:
            inputs.append([hint(v) if isinstance(v, torch.SymInt) else v for v in args])
            return module.forward(*args)

        return run

    torch._dynamo.reset()
    compiled = torch.compile(_tied(example), backend=keep, dynamic=None, fullgraph=True)
    # A size that was another one at the second call is a symbol from then on.
    for batch in (BATCH, *OTHER_BATCHES):
        compiled(*(given.real(batch) for given in example.inputs))
    assert len(modules) == 2, "Dynamo specialises the batch of this example: set dynamic=False"
    return Dynamic(modules[1], inputs[1:])


def _tied(example: Example) -> Callable[..., Any]:
    """The function, with one symbol for all batches, as in a model where one tensor feeds them."""
    places = [(i, g.shape.index("b")) for i, g in enumerate(example.inputs) if "b" in g.shape]

    def fn(*values: torch.Tensor) -> Any:
        (first, dim), *others = places
        for i, d in others:
            if values[i].shape[d] != values[first].shape[dim]:
                raise ValueError("batches differ")
        return example.fn(*values)

    return fn

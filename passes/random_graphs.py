"""Random graphs of Torch-IR and ATen-IR on which any pattern may find something to do.

A graph grows by moves: small groups of ops as models have them, branches of like ops, cuts that are
joined again, look-ups, writes, stretches without gradients. `random_moves.MOVES` is the table of
them. The same seed gives the same graph. Built without Dynamo, so that hundreds fit into a test.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch._dynamo.source import ConstantSource
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import (
    DimDynamic,
    ShapeEnv,
    StatelessSymbolicContext,
)

from passwright.passes.conformance_copy import Copy
from passwright.passes.conformance_spelling import other_forms, quiet, respelled
from passwright.passes.dialect import Dialect
from passwright.passes.effects import is_pure
from passwright.passes.isolated import run
from passwright.passes.sketch import Sketch
from passwright.passes.spec import hint

#: Rows of a batch: a number that no other size has, since equal sizes become one symbol.
BATCH, OTHER_BATCH = 5, 7
#: No value gets more elements than this.
_ELEMENTS = 2000
#: What torch raises where a random call makes no sense.
_IMPOSSIBLE = (RuntimeError, IndexError, ValueError, TypeError, NotImplementedError)
_SET_GRAD = torch._C._set_grad_enabled
#: Makes the numbers of an input: shape and random stream to a tensor of any type.
Maker = Callable[[list[int], torch.Generator], torch.Tensor]


def numbers_below(limit: int) -> Maker:
    """Whole numbers from 0 on."""
    return lambda shape, stream: torch.randint(0, limit, shape, generator=stream)


class Refused(Exception):
    """Torch does not take this call; the move ends here."""


@dataclass(frozen=True)
class Traits:
    """What a graph may hold besides plain ops."""

    dtype: torch.dtype
    writes: bool
    regions: bool
    mixed: bool
    dynamic: bool
    aten: bool
    respell: float
    inference: bool

    @classmethod
    def drawn(cls, draw: random.Random) -> Traits:
        """Most graphs have one or two of them, so that patterns still find much to do."""
        dtype = draw.choice([torch.float32, torch.float64] * 3 + [torch.bfloat16])
        kind = draw.choice(
            ["plain"] * 4 + ["writes", "regions", "mixed", "aten", "all"] * 2 + ["dynamic"]
        )
        wild = kind == "all"
        return cls(
            dtype,
            kind == "writes" or wild,
            kind == "regions" or wild,
            kind == "mixed" or wild,
            kind == "dynamic",
            kind == "aten",
            0.0 if kind == "dynamic" else draw.choice([0.0, 0.3, 0.6]),
            draw.random() < 0.15,
        )


@dataclass
class RandomGraph:
    """A graph with real inputs for it (twice, where the batch is symbolic)."""

    seed: int
    traits: Traits
    module: fx.GraphModule
    inputs: list[list[torch.Tensor]]
    shapes: ShapeEnv | None


class SymbolicSketch(Sketch):
    """A sketch whose inputs have a symbolic batch."""

    def __init__(self) -> None:
        super().__init__()
        self.shapes = ShapeEnv()
        self.mode = FakeTensorMode(shape_env=self.shapes)

    def input(
        self,
        *shape: int,
        dtype: torch.dtype = torch.float32,
        requires_grad: bool = False,
        stride: Sequence[int] | None = None,
        device: str = "cpu",
    ) -> fx.Node:
        node = self.graph.placeholder(f"x{self._inputs}")
        self._inputs += 1
        kinds = [DimDynamic.DUCK if size == BATCH else DimDynamic.STATIC for size in shape]
        context: Any = StatelessSymbolicContext(dynamic_sizes=kinds)
        real = torch.empty(shape, dtype=dtype, device=device).requires_grad_(requires_grad)
        node.meta[self.key] = self.mode.from_tensor(
            real, symbolic_context=context, source=ConstantSource(f"x{self._inputs}")
        )
        return node


class Grower:
    """A graph in the making: values, and calls that torch may refuse."""

    def __init__(self, draw: random.Random, traits: Traits) -> None:
        self.draw, self.traits = draw, traits
        self.s = SymbolicSketch() if traits.dynamic else Sketch()
        self.values: list[fx.Node] = []
        #: Values that came into being together, as pieces of one split or outputs of like branches.
        self.families: list[list[fx.Node]] = []
        #: Inputs that need numbers of their own, and what makes these.
        self.makers: dict[fx.Node, Maker] = {}
        #: Inputs that the graph returns as well.
        self.returned: list[fx.Node] = []
        self.parameters: dict[tuple[int, ...], list[fx.Node]] = {}

    # ---- nodes

    def input(self, *shape: int, dtype: torch.dtype | None = None, grad: float = 0.7) -> fx.Node:
        """A floating-point input; `grad` is the chance that it requires a gradient."""
        wanted = self.chance(grad) and not self.traits.inference
        return self.s.input(*shape, dtype=dtype or self.traits.dtype, requires_grad=wanted)

    def index(self, rows: int, *shape: int) -> fx.Node:
        """An integer input for a table of that many rows."""
        dtype = self.draw.choice([torch.int64] * 3 + [torch.int32])
        return self.given(numbers_below(rows), *shape, dtype=dtype)

    def given(self, make: Maker, *shape: int, dtype: torch.dtype) -> fx.Node:
        """An input without a gradient that gets these numbers; it stands before all calls."""
        if not all(type(size) is int for size in shape):
            raise Refused
        node = self.first(lambda: self.s.input(*shape, dtype=dtype))
        self.makers[node] = make
        return node

    def parameter(self, *shape: int) -> fx.Node:
        """A weight of that shape, often one that there is."""
        if not all(type(size) is int for size in shape):
            raise Refused
        known = self.parameters.setdefault(shape, [])
        if not known or self.chance(0.6):
            known.append(self.first(lambda: self.input(*shape, grad=0.9)))
        return self.draw.choice(known)

    def first(self, make: Callable[[], fx.Node]) -> fx.Node:
        """Inputs stand before all calls, where Dynamo puts them."""
        inputs = self.s.graph.find_nodes(op="placeholder")
        node = make()
        if inputs:
            inputs[-1].append(node)
        return node

    def call(self, target: Any, *args: Any, **kwargs: Any) -> fx.Node:
        """A call, perhaps in another spelling. Raises Refused."""
        try:
            with quiet():
                node = self.s.call(target, *args, **kwargs)
        except _IMPOSSIBLE as error:
            self.s.graph.erase_node(next(reversed(self.s.graph.nodes)))
            raise Refused from error
        value = node.meta.get(self.s.key)
        if isinstance(value, torch.Tensor) and self.numel(node) > _ELEMENTS:
            self.s.graph.erase_node(node)
            raise Refused
        return self._respell(node) if self.chance(self.traits.respell) else node

    def _respell(self, node: fx.Node) -> fx.Node:
        if not is_pure(node):
            return node
        forms = other_forms(self.s, node)
        other = respelled(self.s, node, self.draw.choice(forms)) if forms else None
        if other is None:
            return node
        self.s.graph.erase_node(node)
        return other

    # ---- choices

    def chance(self, odds: float) -> bool:
        return self.draw.random() < odds

    def any(self) -> fx.Node:
        """A value, more likely a late one."""
        return self.draw.choice(self.values[-self.draw.choice([2, 4, 8, 64]) :])

    def family(self) -> list[fx.Node]:
        """A group of like values, more likely a late one."""
        recent = self.families[-self.draw.choice([1, 1, 2, 8]) :]
        return list(self.draw.choice(recent)) if recent else [self.any()]

    def keep(self, *nodes: fx.Node) -> list[fx.Node]:
        """New values that came into being together."""
        self.values += nodes
        if len(nodes) > 1:
            self.families.append(list(nodes))
        return list(nodes)

    # ---- facts

    def value(self, node: fx.Node) -> Any:
        return node.meta[self.s.key]

    def shape(self, node: fx.Node) -> tuple[Any, ...]:
        return tuple(self.value(node).shape)

    def numel(self, node: fx.Node) -> int:
        total = 1
        for size in self.shape(node):
            total *= hint(size)
        return total

    def static_dim(self, node: fx.Node) -> int:
        """A dim of known size larger than 0."""
        dims = [d for d, size in enumerate(self.shape(node)) if type(size) is int and size]
        if not dims:
            raise Refused
        return self.draw.choice([*dims, dims[-1]])


def random_graph(seed: int, *, calls: tuple[int, int] = (8, 34)) -> RandomGraph:
    """The graph of this seed, with about as many calls; torch runs it, though not always backward."""
    # The moves import this module, and enter themselves into the table.
    from passwright.passes import random_field_moves, random_layer_moves, random_wild_moves  # noqa: F401
    from passwright.passes.random_moves import MOVES

    draw = random.Random(seed)
    for _ in range(50):
        traits = Traits.drawn(draw)
        grower = Grower(draw, traits)
        _inputs_of(grower)
        _grow(grower, MOVES, draw.randint(*calls))
        module = grower.s.module()
        batches = [BATCH, OTHER_BATCH] if traits.dynamic else [BATCH]
        inputs = [_real(grower, module.graph, batch, seed) for batch in batches]
        try:
            if traits.aten:
                module = _as_aten(module, inputs[0])
            for given in inputs:
                run(module, given, training=False)
        except Exception:  # fake tensors allow a few calls that torch refuses
            continue
        shapes = grower.s.shapes if isinstance(grower.s, SymbolicSketch) else None
        if shapes is not None and any(size.is_number for size in shapes.replacements.values()):
            continue  # some call fixes the batch, so that the graph holds for one size alone
        return RandomGraph(seed, traits, module, inputs, shapes)
    raise RuntimeError(f"no graph that runs for seed {seed}")


def _inputs_of(g: Grower) -> None:
    for _ in range(g.draw.choice([1, 2, 2, 3])):
        shape = g.draw.choice([(BATCH, 12), (BATCH, 12), (BATCH, 24), (BATCH, 4, 6), (BATCH, 3, 4)])
        g.values.append(g.input(*shape, grad=0.8))
    if g.chance(0.3):
        g.keep(*(g.input(BATCH, 6) for _ in range(g.draw.randint(2, 4))))


def _grow(g: Grower, moves: dict[str, tuple[int, Callable[[Grower], object]]], calls: int) -> None:
    names, weights = list(moves), [weight for weight, _ in moves.values()]
    silent = False
    for _ in range(6 * calls):
        if sum(node.op.startswith("call") for node in g.s.graph.nodes) >= calls:
            break
        if g.traits.regions and g.chance(0.15):
            silent = not silent
            g.call(_SET_GRAD, not silent)
        try:
            moves[g.draw.choices(names, weights)[0]][1](g)
        except (Refused, IndexError, ValueError):  # no dim where the move wants one
            continue
    if silent:
        g.call(_SET_GRAD, True)
    _return(g)


def _return(g: Grower) -> None:
    """What nobody uses is returned, most of it behind a reduction, where nobody sees its strides."""
    known = [n for n in g.values if isinstance(g.value(n), torch.Tensor)]
    ends = [n for n in known if not n.users and n.op != "placeholder"]
    outputs = [n for n in ends if g.chance(0.9)] or known[-1:]
    hidden = g.chance(0.6)
    results = []
    for node in outputs:
        behind = hidden and g.chance(0.9) and g.value(node).is_floating_point()
        try:
            results.append(g.call(torch.logsumexp, node, -1) if behind and g.shape(node) else node)
        except Refused:  # a view that a write has spoilt
            continue
    results += [n for n in known if n.op != "placeholder" and g.chance(0.04)]
    g.s.output(*results, *g.returned)


def _real(g: Grower, graph: fx.Graph, batch: int, seed: int) -> list[torch.Tensor]:
    """Real tensors for the placeholders."""
    generator = torch.Generator().manual_seed(seed)
    made = []
    for node in graph.find_nodes(op="placeholder"):
        fake = node.meta[g.s.key]
        shape = [size if type(size) is int else batch for size in fake.shape]
        if node in g.makers:
            value = g.makers[node](shape, generator).to(fake.dtype)
        else:
            value = torch.randn(shape, generator=generator, dtype=torch.float64).to(fake.dtype)
        made.append(value.requires_grad_(fake.requires_grad))
    return made


def _as_aten(module: fx.GraphModule, inputs: list[torch.Tensor]) -> fx.GraphModule:
    """The graph in the other dialect, with fake tensors that know what requires a gradient."""
    traced = make_fx(module, tracing_mode="fake")(*(v.detach().clone() for v in inputs))
    for node, value in zip(traced.graph.find_nodes(op="placeholder"), inputs, strict=True):
        node.meta[Dialect.ATEN.value].requires_grad_(value.requires_grad)
    traced.graph.eliminate_dead_code()
    return Copy(traced.graph).module()

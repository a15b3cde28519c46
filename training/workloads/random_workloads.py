"""Random graphs as workloads: the graphs of `passes.random_graphs` at a batch that is worth measuring.

    random:17 and random:17?calls=60

are the graph of seed 17, grown to its usual 8 to 34 calls or to about 60. As tests grow them, graphs have
five rows, a number that no other size has; so they are sketched again with as many rows as are asked
for wherever a five stands. Torch takes most of them that way, and some graph it is in any case: it need
not compute what the small one does. Widths stay what they are, a few to some dozens of columns.
"""

from __future__ import annotations

import functools
import operator
import re
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn

from passwright.passes.conformance_copy import Copy, Impossible
from passwright.passes.conformance_spelling import quiet
from passwright.passes.effects import is_random, is_region_change
from passwright.passes.errors import WorkloadError
from passwright.passes.graph import GraphView
from passwright.passes.random_graphs import BATCH, random_graph
from passwright.scheduler.steps import inference_step, training_step

PREFIX = "random:"
#: The family of all of them, which stands on one side of a split.
FAMILY = "random"
USUAL_BATCH = 512
#: A graph of asked size has so many calls, or up to a quarter more.
_SPREAD = 1.25
#: Elements that no value of a graph may exceed: 256 MiB in float32.
_ELEMENTS = 2**26


@dataclass(frozen=True)
class RandomName:
    """The seed of a random graph, and how many calls it has (None: 8 to 34, as in tests)."""

    seed: int
    calls: int | None = None

    def __str__(self) -> str:
        return f"{PREFIX}{self.seed}" + (f"?calls={self.calls}" if self.calls else "")

    @classmethod
    def parse(cls, text: str) -> RandomName:
        """Reads what `str` gives. Raises WorkloadError."""
        found = re.fullmatch(rf"{PREFIX}(\d+)(?:\?calls=([1-9]\d*))?", text)
        if found is None:
            raise WorkloadError(
                f"{text!r} names no random graph; they look like random:17 or random:17?calls=60"
            )
        return cls(int(found[1]), int(found[2]) if found[2] else None)


def is_random_name(name: str) -> bool:
    """The name is meant to be that of a random graph."""
    return name.startswith(PREFIX)


def build_random(
    name: str,
    *,
    batch: int | None = None,
    seed: int = 0,
    device: str | torch.device = "cpu",
    train: bool = False,
) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """The module and the inputs of a random graph; arguments as of `Workload.build`.

    Numbers are float32. Inputs without rows are parameters, or buffers where the graph writes them;
    in training the others require a gradient where the graph's do. `seed` draws the rows.

    Raises:
        WorkloadError: the name is no such name, or the graph of this seed is no workload: not every
            graph holds at other sizes, differentiates, and leaves its inputs alone.
    """
    known, rows = RandomName.parse(name), USUAL_BATCH if batch is None else batch
    graph, small = _scaled(known, rows)
    module, inputs = _filled(graph, small, rows, seed, train)
    try:
        with quiet():
            (training_step if train else inference_step)(module, inputs)()
    except Exception as error:  # fake tensors take a few calls that torch refuses
        raise WorkloadError(f"{name} does not run: {error}") from error
    module, inputs = _filled(graph, small, rows, seed, train)  # state as it was before the run
    target = torch.device(device)
    moved = (x.detach().to(target).requires_grad_(x.requires_grad) for x in inputs)
    return module.to(target).train(train), tuple(moved)


def random_names(
    count: int, *, batch: int = USUAL_BATCH, train: bool = False, first: int = 0, calls: int = 0
) -> list[str]:
    """The next `count` names, from seed `first` on, of random graphs that are workloads as asked.

    About half of all graphs are not. `calls`: their size; 0 is the usual one.
    """
    names: list[str] = []
    seed = first
    while len(names) < count:
        name = str(RandomName(seed, calls or None))
        seed += 1
        try:
            build_random(name, batch=batch, train=train)
        except WorkloadError:
            continue
        names.append(name)
    return names


@functools.lru_cache(maxsize=8)
def _scaled(name: RandomName, rows: int) -> tuple[fx.Graph, tuple[Tensor, ...]]:
    """The graph with that many rows, and the small inputs that it was grown with."""
    how = {"calls": (name.calls, round(name.calls * _SPREAD))} if name.calls else {}
    grown = random_graph(name.seed, **how)
    if grown.traits.aten or grown.traits.dynamic:
        raise WorkloadError(f"{name} is in ATen-IR, or of symbolic size: no workload")
    for node in grown.module.graph.nodes:
        if is_region_change(node) or is_random(node):
            raise WorkloadError(
                f"{name} has {node.name}, which sets a mode or draws random numbers"
            )
        if node.op.startswith("call") and not node.all_input_nodes:
            raise WorkloadError(f"{name} has {node.name}, which makes a tensor on a fixed device")
    try:
        with quiet():
            graph = _Scaled(grown.module.graph, rows).module().graph
    except Impossible as error:
        raise WorkloadError(f"{name} does not hold for {rows} rows: {error}") from error
    view = GraphView(graph)
    for node in graph.nodes:
        value = node.meta.get(view.dialect.value)
        if isinstance(value, Tensor) and value.numel() > _ELEMENTS:
            raise WorkloadError(f"{name} has a value of {value.numel()} elements")
    return graph, tuple(grown.inputs[0])


class _Scaled(Copy):
    """The graph with other rows, in float32."""

    def __init__(self, graph: fx.Graph, rows: int) -> None:
        super().__init__(graph)
        self.rows = rows

    def placeholder(self, node: fx.Node, value: Tensor) -> fx.Node:
        shape = [self._scaled(size) for size in value.shape]
        dtype = torch.float32 if value.is_floating_point() else value.dtype
        return self.s.input(*shape, dtype=dtype, requires_grad=value.requires_grad)

    def arguments(self, node: fx.Node) -> tuple[tuple[Any, ...], dict[str, Any]]:
        args, kwargs = super().arguments(node)
        if node.target is operator.getitem and isinstance(args[1], int):
            return args, kwargs  # which piece, not how many rows
        found = fx.node.map_aggregate((args, kwargs), self._scaled)
        return tuple(found[0]), dict(found[1])

    def _scaled(self, value: Any) -> Any:
        if value is torch.float64:
            return torch.float32
        return self.rows if type(value) is int and value == BATCH else value


def _filled(
    graph: fx.Graph, small: tuple[Tensor, ...], rows: int, seed: int, train: bool
) -> tuple[fx.GraphModule, tuple[Tensor, ...]]:
    """A module with parameters and buffers of its own, and its inputs. Raises WorkloadError."""
    view = GraphView(graph)
    stream = torch.Generator().manual_seed(seed)
    root, made = nn.Module(), fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    inputs: list[Tensor] = []
    for node, old in zip(graph.find_nodes(op="placeholder"), small, strict=True):
        written = bool(view.storages([node]) & view.written)
        if tuple(view.shape(node)) != tuple(old.shape):
            if written:
                raise WorkloadError(f"{node.name} is an input, and is written")
            value = _rows(old, rows, stream)
            inputs.append(value.requires_grad_(old.requires_grad and train))
            copies[node] = made.placeholder(node.name)
    for node, old in zip(graph.find_nodes(op="placeholder"), small, strict=True):
        if node in copies:
            continue
        value = (old.detach().float() if old.is_floating_point() else old.detach()).clone()
        if view.storages([node]) & view.written or not old.is_floating_point():
            if old.requires_grad:
                raise WorkloadError(f"{node.name} is a parameter, and is written")
            root.register_buffer(node.name, value)
        else:
            root.register_parameter(node.name, nn.Parameter(value, old.requires_grad))
        copies[node] = made.get_attr(node.name)
    for node in graph.nodes:
        if node.op != "placeholder":
            copies[node] = made.node_copy(node, lambda source: copies[source])
            copies[node].meta.clear()
    return fx.GraphModule(root, made, "RandomGraph"), tuple(inputs)


def _rows(old: Tensor, rows: int, stream: torch.Generator) -> Tensor:
    """More rows of a small input: other numbers, or rows of integers that are drawn from its own,
    which keep within their tables."""
    value = old.detach()
    for dim, size in enumerate(old.shape):
        if size == BATCH:
            value = value.index_select(dim, torch.randint(0, size, (rows,), generator=stream))
    if not old.is_floating_point():
        return value
    return torch.randn(value.shape, generator=stream)

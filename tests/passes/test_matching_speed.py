"""Finding candidates takes time in proportion to the graph, whatever ops it is made of."""

from __future__ import annotations

import operator
import time

import pytest
import torch
import torch.nn.functional as F
from torch import fx

from passwright.passes import ops
from passwright.passes.graph import GraphView
from passwright.passes.matching import Rewriter
from passwright.passes.ops import Op
from passwright.passes.sketch import Sketch
from passwright.passes.table import default_table

ROWS, FIELDS, WIDTH, BRANCHES = 8, 12, 16, 6
WIDE = FIELDS * WIDTH
#: Twice the nodes may take this many times the time; in proportion would be 2.
GROWTH = 2.6
#: Seconds of processor time for 10,000 nodes.
LIMIT = 5.0
CHAIN = pytest.mark.parametrize("chain", [False, True], ids=["side by side", "in a chain"])
#: No capture of Torch-IR holds it.
_ATEN_ALONE = {ops.EmbeddingGradient}


class Model:
    """A graph of as many nodes as wanted, in blocks that each look like a recommendation model.

    Side by side, the groups of like ops grow with the graph. In a `chain` a residual stream runs
    through all blocks, and every value has most of the graph before it or behind it.
    """

    def __init__(self, nodes: int, *, chain: bool) -> None:
        self.s = Sketch()
        self.chain = chain
        self.stream: fx.Node | None = None
        self.columns = self.s.input(ROWS, FIELDS)
        self.tables = [self.s.input(100, WIDTH, requires_grad=True) for _ in range(FIELDS)]
        self.ends: list[fx.Node] = []
        while len(self.s.graph.nodes) < nodes:
            self._block()
        self.s.output(*self.ends)

    def _weight(self, *shape: int) -> fx.Node:
        return self.s.input(*shape, requires_grad=True)

    def _block(self) -> None:
        fields = self._fields()
        joined = self.s.call(torch.cat, fields, -1)
        if self.stream is not None:
            joined = self.s.call(torch.add, self.stream, joined)
        experts = self._experts(joined)
        self._gates(joined, experts)
        self._pairs(fields)
        self._attention(self.s.call(torch.stack, fields, 1))
        self._lookups()
        x = self._rest(joined)
        self.stream = x if self.chain else None

    def _fields(self) -> list[fx.Node]:
        fields = []
        for number, table in enumerate(self.tables):
            index = self.s.call("long", self.s.call("select", self.columns, 1, number))
            fields.append(self.s.call(F.embedding, index, table))
        return fields

    def _experts(self, x: fx.Node) -> list[fx.Node]:
        """Towers with batch norms that update their statistics and counters, and with dropouts."""
        return [self._expert(x) for _ in range(BRANCHES)]

    def _expert(self, x: fx.Node) -> fx.Node:
        s = self.s
        hidden = s.call(F.linear, x, self._weight(24, WIDE), self._weight(24))
        s.call("add_", s.input(dtype=torch.int64), 1)
        mean, var = s.input(24), s.input(24)
        scale, shift = self._weight(24), self._weight(24)
        hidden = s.call(F.batch_norm, hidden, mean, var, scale, shift, True, 0.1, 1e-5)
        hidden = s.call(F.relu, hidden, inplace=True)
        hidden = s.call(F.dropout, hidden, 0.1, True)
        hidden = s.call(F.linear, hidden, self._weight(8, 24))
        hidden = s.call(F.layer_norm, hidden, [8], self._weight(8), self._weight(8))
        return s.call(torch.tanh, s.call(F.dropout, hidden, 0.1, False))

    def _gates(self, x: fx.Node, experts: list[fx.Node]) -> None:
        stacked = self.s.call(torch.stack, experts, 1)
        for _ in range(3):
            gate = self.s.call(F.linear, x, self._weight(BRANCHES, WIDE))
            gate = self.s.call("unsqueeze", self.s.call(torch.softmax, gate, -1), 1)
            mixed = self.s.call("squeeze", self.s.call(torch.matmul, gate, stacked), 1)
            mixed = self.s.call(operator.iadd, mixed, experts[0])
            self.ends.append(mixed)

    def _pairs(self, fields: list[fx.Node]) -> None:
        """All products of two fields, and their sums."""
        products = [
            self.s.call(torch.mul, fields[i], fields[j]) for i in range(FIELDS) for j in range(i)
        ]
        self.ends.append(self.s.call(torch.sum, self.s.call(torch.stack, products, 1), 1))
        self.ends += [self.s.call("mean", product, -1, True) for product in products[:10]]

    def _attention(self, x: fx.Node) -> None:
        s = self.s
        query, key, value = (s.call(F.linear, x, self._weight(WIDTH, WIDTH)) for _ in range(3))
        heads = [s.call("permute", s.call("view", v, ROWS, FIELDS, 2, 8), 0, 2, 1, 3)
                 for v in (query, key, value)]  # fmt: skip
        self.ends.append(s.call(F.scaled_dot_product_attention, *heads))
        scores = s.call(torch.matmul, query, s.call("transpose", key, 1, 2))
        self.ends.append(s.call(torch.bmm, s.call(torch.softmax, scores, -1), value))
        self.ends.append(s.call(torch.einsum, "bij,kj->bik", x, self._weight(4, WIDTH)))
        several = s.call(
            F.multi_head_attention_forward,
            *([s.call("transpose", x, 0, 1)] * 3),
            *(WIDTH, 2, self._weight(3 * WIDTH, WIDTH), self._weight(3 * WIDTH), None, None, False),
            *(0.0, self._weight(WIDTH, WIDTH), self._weight(WIDTH)),
        )
        self.ends.append(s.call(operator.getitem, several, 0))
        convolved = [s.call(F.conv1d, x, self._weight(4, FIELDS, 1)) for _ in range(2)]
        self.ends += [s.call(torch.flatten, c, 1) for c in convolved]

    def _lookups(self) -> None:
        s = self.s
        index = s.call("long", s.call(torch.narrow, self.columns, 1, 0, 4))
        self.ends += [
            s.call(F.embedding_bag, index, table, mode="sum") for table in self.tables[:3]
        ]
        rows = s.call("long", s.call("select", self.columns, 1, 0))
        self.ends.append(s.call(torch.index_add, s.input(100, 4), 0, rows, s.input(ROWS, 4)))

    def _rest(self, x: fx.Node) -> fx.Node:
        """Cuts and joins, broadcasts and repeats, and a stretch without gradients."""
        s = self.s
        several = s.call(torch.split, x, WIDTH, -1)
        pieces = [s.call(operator.getitem, several, i) for i in range(FIELDS)]
        self.ends.append(s.call(torch.cat, [s.call(torch.sigmoid, p) for p in pieces], -1))
        unbound = s.call(torch.unbind, s.call("view", x, ROWS, FIELDS, WIDTH), 1)
        slices = [s.call(operator.getitem, unbound, i) for i in range(FIELDS)]
        self.ends.append(s.call(torch.stack, [s.call(torch.abs, p) for p in slices], 1))
        column = s.call(torch.narrow, x, 1, 0, 1)
        wide = s.call("expand", column, ROWS, WIDE)
        tiled = s.call("repeat", column, 1, WIDE)
        for other in (wide, tiled):
            x = s.call(torch.add, x, other)
        s.call(torch._C._set_grad_enabled, False)
        self.ends.append(s.call(torch.sin, s.call("clone", x)))
        s.call(torch._C._set_grad_enabled, True)
        self.ends.append(x)
        return x


def seconds(*models: Model) -> list[float]:
    """Processor time of finding all candidates of all patterns in each graph.

    The best of a few rounds, in which the graphs take turns: other work on the machine slows down
    what happens to run beside it.
    """
    found: list[list[float]] = [[] for _ in models]
    for _ in range(5):
        for model, times in zip(models, found, strict=True):
            view = GraphView(model.s.graph)
            start = time.process_time()
            assert Rewriter(view, default_table()).candidates()
            times.append(time.process_time() - start)
    return [min(times) for times in found]


def _kinds() -> set[type[Op]]:
    return {kind for kind in vars(ops).values() if isinstance(kind, type) and issubclass(kind, Op)}


def test_the_graph_has_every_kind_of_op() -> None:
    view = GraphView(Model(100, chain=False).s.graph)
    seen = {type(view.read(node)) for node in view.nodes()}
    assert {kind.__name__ for kind in _kinds() - seen - {Op} - _ATEN_ALONE} == set()


@CHAIN
def test_twice_the_nodes_take_about_twice_the_time(chain: bool) -> None:
    small, large = seconds(Model(1000, chain=chain), Model(2000, chain=chain))
    assert large < GROWTH * small


@pytest.mark.slow
@pytest.mark.timeout(300)
@CHAIN
def test_ten_thousand_nodes(chain: bool) -> None:
    small, large = seconds(Model(5000, chain=chain), Model(10_000, chain=chain))
    assert large < LIMIT
    assert large < GROWTH * small

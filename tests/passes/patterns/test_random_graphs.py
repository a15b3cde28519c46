"""Random graphs of splits, slices and cats, built without Dynamo so that many fit into a test."""

from __future__ import annotations

import copy
import operator
import random
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, fx

from passwright.passes.dialect import Dialect
from passwright.passes.graph import GraphView
from passwright.passes.matching import Rewriter
from passwright.passes.patterns.cats import FlattenNestedCats, SplitCatIntoCats, SplitOfCat
from passwright.passes.patterns.interleave import InterleavePieces
from passwright.passes.patterns.slices import (
    CatOfColumns,
    MergeSlices,
    SelectOfCat,
    SliceOfCat,
    SliceOfPiece,
    StackOfSelects,
)
from passwright.passes.patterns.split_cat import (
    CatOfPieces,
    MergeConsecutivePieces,
    MergeSharedPieces,
)
from passwright.passes.patterns.splits import (
    LonePieceToSlice,
    MergeNestedSplits,
    PiecesToSlices,
    RemoveSinglePieceSplit,
)
from passwright.passes.table import PatternTable
from passwright.passes.testing import Rewritten, random_inputs, text

aten = torch.ops.aten


class RandomGraph:
    """Grows a graph on two (4, 24) inputs by one random op at a time.

    `wild` adds writes in place, stretches without gradients and readers of strides.
    """

    def __init__(self, s: Any, seed: int, *, wild: bool = False) -> None:
        self.s, self.random = s, random.Random(seed)
        self.aten = s.key == Dialect.ATEN.value
        self.wild = wild and not self.aten
        self.values: list[fx.Node] = [
            s.input(4, 24, requires_grad=grad) for grad in (True, seed % 4 > 0)
        ]
        self.families: list[list[fx.Node]] = []

    def build(self, steps: int) -> fx.GraphModule:
        """The graph with this many random ops, of which one or more values are returned."""
        choices: list[Callable[[], None]] = [self.split] * 5 + [self.cat] * 7 + [self.slice] * 2
        choices += [self.relay, self.relay, self.pointwise, self.column, self.columns]
        if self.wild:
            choices += [self.write, self.toggle_grad, self.view]
        for _ in range(steps):
            self.random.choice(choices)()
        if self.wild:
            self.call(torch._C._set_grad_enabled, True)
        count = min(len(self.values), self.random.choice([1, 1, 2, 4]))
        outputs = self.random.sample(self.values[-12:], min(count, len(self.values[-12:])))
        if self.random.random() < 0.7:
            # A barrier: nobody sees the strides of what flows into the sum.
            outputs = [self.call(*self.sum(node)) for node in outputs] + outputs[:1]
        self.s.output(*outputs)
        return self.s.module()

    # ---- one op each

    def split(self) -> None:
        node = self.any()
        dim = self.dim(node)
        size = self.shape(node)[dim]
        width = self.random.choice([1, 2, 3, 4, 6, 8, 12])
        if self.aten:
            target, args = aten.split_with_sizes.default, (node, self.sizes(size), dim)
        else:
            target, args = self.random.choice(
                [
                    (torch.split, (node, self.sizes(size), dim)),
                    (torch.split, (node, width, dim)),
                    ("chunk", (node, width, dim - 2)),
                    ("split", (node, width, dim)),
                ]
            )
        several = self.call(target, *args)
        count = len(several.meta[self.s.key])
        pieces = [self.call(operator.getitem, several, i) for i in range(count)]
        if self.random.random() < 0.3:
            pieces = self.random.sample(pieces, self.random.randint(1, len(pieces)))
        self.values += pieces
        self.families.append(pieces)

    def slice(self) -> None:
        node = self.any()
        dim = self.dim(node)
        size = self.shape(node)[dim]
        cuts = sorted(self.random.choices(range(size + 1), k=self.random.choice([2, 2, 4])))
        parts = []
        for start, stop in pairwise(cuts):
            if self.aten:
                parts.append(self.call(aten.slice.Tensor, node, dim, start, stop))
            elif self.random.random() < 0.5:
                index = (slice(None),) * dim + (slice(start, stop),)
                parts.append(self.call(operator.getitem, node, index))
            else:
                parts.append(self.call("narrow", node, dim, start, stop - start))
        self.values += parts
        self.families.append(parts)

    def cat(self) -> None:
        recent = self.families[-self.random.choice([1, 1, 2, 8]) :]
        family = list(self.random.choice(recent)) if recent else [self.any()]
        kind = self.random.choice(["all", "run", "reverse", "shuffle", "grid", "twice", "mixed"])
        if kind == "run":
            start = self.random.randrange(len(family))
            family = family[start : start + self.random.randint(1, 4)]
        elif kind == "reverse":
            family.reverse()
        elif kind == "shuffle":
            self.random.shuffle(family)
        elif kind == "grid":
            columns = self.random.choice([2, 3, 4])
            family = [node for c in range(columns) for node in family[c::columns]]
        elif kind == "twice":
            family += family[: self.random.randint(1, 3)]
        elif kind == "mixed":
            family = [*self.random.sample(family, min(len(family), 3)), self.any(), self.any()]
            self.random.shuffle(family)
        dim = self.random.choice([0, 1, 1])
        other = self.shape(family[0])[1 - dim]
        family = [node for node in family if self.shape(node)[1 - dim] == other]
        if sum(self.shape(node)[0] * self.shape(node)[1] for node in family) > 1500:
            return
        if self.aten:
            self.values.append(self.call(aten.cat.default, family, dim))
        else:
            target = self.random.choice([torch.cat, torch.concat, torch.concatenate])
            self.values.append(self.call(target, family, dim=dim - self.random.choice([0, 2])))
        self.families.append([self.values[-1], *self.values[-3:-1]])

    def relay(self) -> None:
        """A value cut into equal pieces and joined in another order."""
        node = self.any()
        dim = self.dim(node)
        size = self.shape(node)[dim]
        counts = [count for count in (2, 3, 4, 6, 8, 12) if size and size % count == 0]
        if not counts:
            return
        count = self.random.choice(counts)
        width = size // count
        target: Any = aten.split.Tensor if self.aten else torch.split
        several = self.call(target, node, width, dim)
        pieces = [self.call(operator.getitem, several, i) for i in range(count)]
        columns = self.random.choice([c for c in range(1, count + 1) if count % c == 0])
        order = [i for c in range(columns) for i in range(c, count, columns)]
        if self.random.random() < 0.4:
            self.random.shuffle(order)
        joined = aten.cat.default if self.aten else torch.cat
        self.values.append(self.call(joined, [pieces[i] for i in order], dim))

    def pointwise(self) -> None:
        node = self.any()
        target: Any = aten.relu.default if self.aten else torch.relu
        self.values.append(self.call(target, node))

    def column(self) -> None:
        """A select whose dim is put back."""
        node = self.any()
        dim = self.dim(node)
        if self.shape(node)[dim]:
            index = self.random.randrange(self.shape(node)[dim])
            self.values.append(self.put_back(self.take(node, dim, index), dim))

    def columns(self) -> None:
        """A stack of selects, most often consecutive."""
        node = self.any()
        dim = self.dim(node)
        size = self.shape(node)[dim]
        if not size:
            return
        start = self.random.randrange(size)
        indices = list(range(start, min(size, start + self.random.randint(1, 4))))
        if self.random.random() < 0.3:
            self.random.shuffle(indices)
        taken = [self.take(node, dim, index) for index in indices]
        target = self.random.choice([0, 1, dim])
        if self.aten:
            parts = [self.put_back(part, target) for part in taken]
            self.values.append(self.call(aten.cat.default, parts, target))
        else:
            self.values.append(self.call(torch.stack, taken, target))

    def write(self) -> None:
        """In-place, on a fresh tensor or on what a cat made."""
        node = self.random.choice([self.call(torch.relu, self.any()), *self.fresh()[-2:]])
        self.values.append(self.call("mul_", node, 2))
        self.values.append(node)

    def toggle_grad(self) -> None:
        self.call(torch._C._set_grad_enabled, self.random.random() < 0.5)

    def view(self) -> None:
        node = self.random.choice([*self.fresh(), self.values[0]])
        self.values.append(self.call("view", node, *self.shape(node)))

    # ---- helpers

    def call(self, target: Any, *args: Any, **kwargs: Any) -> fx.Node:
        return self.s.call(target, *args, **kwargs)

    def take(self, node: fx.Node, dim: int, index: int) -> fx.Node:
        target = aten.select.int if self.aten else torch.select
        return self.call(target, node, dim, index)

    def put_back(self, node: fx.Node, dim: int) -> fx.Node:
        target = aten.unsqueeze.default if self.aten else torch.unsqueeze
        return self.call(target, node, dim)

    def sum(self, node: fx.Node) -> tuple[Any, ...]:
        if self.aten:
            return (aten.sum.default, node)
        return (torch.sum, node)

    def any(self) -> fx.Node:
        """A value, more likely a late one."""
        return self.random.choice(self.values[-self.random.choice([1, 1, 4, 16, 64]) :])

    def fresh(self) -> list[fx.Node]:
        """Results of cats."""
        return [node for node in self.values if "cat" in node.name]

    def shape(self, node: fx.Node) -> tuple[int, ...]:
        value: Tensor = node.meta[self.s.key]
        return tuple(value.shape)

    def dim(self, node: fx.Node) -> int:
        return self.random.choice([0, 1, 1])

    def sizes(self, total: int) -> list[int]:
        """Random parts of `total`, often equal."""
        if self.random.random() < 0.5:
            width = self.random.choice([w for w in (1, 2, 3, 4, 6, 8, 12) if total % w == 0] or [1])
            return [width] * (total // width) or [0]
        sizes: list[int] = []
        while sum(sizes) < total:
            sizes.append(
                min(total - sum(sizes), self.random.randint(self.random.choice([0, 1]), 8))
            )
        return sizes or [total]


PATTERNS = (
    CatOfColumns(),
    CatOfPieces(),
    FlattenNestedCats(),
    InterleavePieces(),
    LonePieceToSlice(),
    MergeConsecutivePieces(),
    MergeNestedSplits(),
    MergeSharedPieces(),
    MergeSlices(),
    PiecesToSlices(),
    RemoveSinglePieceSplit(),
    SelectOfCat(),
    SliceOfCat(),
    SliceOfPiece(),
    SplitCatIntoCats(),
    SplitOfCat(),
    StackOfSelects(),
)


@pytest.mark.parametrize("wild", [False, True])
@pytest.mark.parametrize("block", range(3))
def test_random_graphs_keep_their_meaning(sketch: Any, block: int, wild: bool) -> None:
    applied = 0
    for seed in range(block * 5, block * 5 + 5):
        module, draw = accepted(sketch, seed, wild)
        applied += rewrite_at_random(module, draw)
    assert applied > 5


def accepted(sketch: Any, seed: int, wild: bool) -> tuple[fx.GraphModule, random.Random]:
    """A random graph that torch accepts: autograd forbids some writes to views."""
    dialect = Dialect.ATEN if seed % 3 == 0 else Dialect.TORCH
    for attempt in range(20):
        graph = RandomGraph(sketch(dialect), seed + 1000 * attempt, wild=wild)
        try:
            module = graph.build(12)
            compare(module, module)
        except RuntimeError:
            continue
        return module, graph.random
    raise AssertionError("no graph that runs")


def rewrite_at_random(module: fx.GraphModule, draw: random.Random) -> int:
    """Applies candidates in random order until none is left; returns how many were applied."""
    original = copy.deepcopy(module)
    rewriter = Rewriter(GraphView(module.graph), PatternTable(PATTERNS))
    applied = 0
    while candidates := rewriter.candidates():
        assert applied < 200, f"still candidates: {candidates[0].label}"
        rewriter.apply(draw.choice(candidates))
        applied += 1
    rewriter.editor.finish()
    module.recompile()
    compare(original, module)
    return applied


def compare(original: fx.GraphModule, module: fx.GraphModule) -> None:
    """Same values, bit for bit, and gradients."""
    # Whole numbers, so that sums come out the same in whatever order they are added.
    real = random_inputs(original.graph)
    inputs = [(4 * x.detach()).round().requires_grad_(x.requires_grad) for x in real]
    Rewritten(original, module, inputs, text(original.graph), text(module.graph)).check()

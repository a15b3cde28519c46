"""Random chains of stack, unbind, split, cat, select, reshape, permute, pointwise ops and writes.

All patterns of these families are applied in random order until none is left. Functions are exact
on every element, so values must be equal to the bit.
"""

from __future__ import annotations

import copy
import math
import operator
import random
from collections import Counter, defaultdict
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, fx

from passwright.passes.errors import IllegalRewrite
from passwright.passes.graph import GraphView
from passwright.passes.matching import Rewriter
from passwright.passes.patterns import functionalize, hoist, reshapes, stack_unbind
from passwright.passes.spec import parts_of, spec_of
from passwright.passes.table import PatternTable, patterns_of
from passwright.passes.testing import Rewritten, random_inputs, text

PATTERNS = [
    pattern
    for module in (functionalize, hoist, reshapes, stack_unbind)
    for pattern in patterns_of(module)
]
REFUSED = "refused"
_ELEMENTS = 600
_IMPOSSIBLE = (RuntimeError, IndexError, ValueError, TypeError)


class Growth:
    """Adds random ops to a sketch; what torch refuses is left out."""

    def __init__(self, sketch: Any, seed: int) -> None:
        self.s, self.random = sketch, random.Random(seed)
        self.writes, self.toggles = seed % 3 == 0, seed % 3 == 1
        self.values: list[fx.Node] = []

    def grow(self) -> None:
        pick = self.random.choice
        for _ in range(pick([1, 1, 2, 3])):
            shape = [pick([1, 2, 2, 3, 4, 4, 6]) for _ in range(pick([1, 2, 3, 3, 4]))]
            grad = self.random.random() < 0.8
            self.values.append(self.s.input(*shape, dtype=torch.float64, requires_grad=grad))
        kinds = [self.rejoin] * 5 + [self.reshape] * 3 + [self.permute] * 3 + [self.part]
        kinds += [self.pointwise] * 2 + [self.write] * (2 if self.writes else 0)
        kinds += [self.toggle_grad] if self.toggles else []
        for _ in range(self.random.randint(8, 20)):
            recent = self.values[-6:] if self.random.random() < 0.7 else self.values
            x = pick(recent)
            if math.prod(self.shape(x)) <= _ELEMENTS:
                try:
                    pick(kinds)(x)
                except _IMPOSSIBLE:
                    continue
        if self.toggles:
            self.s.call(torch._C._set_grad_enabled, True)
        ends = [value for value in self.values if not value.users]
        others = [v for v in self.values if self.random.random() < 0.05 and v.op != "placeholder"]
        outputs = [value for value in ends if self.random.random() < 0.9] or self.values[-1:]
        self.s.output(*outputs, *others)

    # ---- one op each, on x

    def rejoin(self, x: fx.Node) -> None:
        """Cuts x up, and puts (some of) it together again, perhaps to be cut once more."""
        parts = self.cut(x)
        for _ in range(self.random.choice([1, 1, 2])):
            x = self.join(parts)
            parts = self.cut(x)

    def reshape(self, x: fx.Node) -> None:
        rank = len(self.shape(x))
        sizes = self.factors(math.prod(self.shape(x)))
        one = (slice(None),) * min(rank, 1) + (None,)
        target, args = self.random.choice(
            [
                ("flatten", ()),
                (torch.flatten, (self.random.randrange(max(rank, 1)),)),
                ("unsqueeze", (self.random.randint(-rank - 1, rank),)),
                ("squeeze", ()),
                (operator.getitem, (one,)),
                *[("view", tuple(sizes)), ("reshape", tuple(sizes))] * 3,
                ("view", self.shape(x)),
            ]
        )
        self.call(target, x, *args)

    def permute(self, x: fx.Node) -> None:
        dims = list(range(len(self.shape(x))))
        if self.random.random() < 0.5:
            self.call("transpose", x, self.random.choice(dims), self.random.choice(dims))
        else:
            self.random.shuffle(dims)
            self.call(torch.permute, x, sorted(dims) if self.random.random() < 0.1 else dims)

    def part(self, x: fx.Node) -> None:
        dim = self.random.randrange(len(self.shape(x)))
        start = self.random.randrange(self.shape(x)[dim])
        if self.random.random() < 0.5:
            self.call(torch.select, x, dim, start)
        else:
            self.call("narrow", x, dim, start, self.random.randint(1, self.shape(x)[dim] - start))

    def pointwise(self, x: fx.Node) -> None:
        if self.random.random() < 0.5:
            self.call(self.random.choice([torch.relu, torch.neg, "abs"]), x)
        else:
            self.call(self.random.choice([torch.add, torch.mul]), x, self.random.choice([x, 2]))

    def write(self, x: fx.Node) -> None:
        fresh = self.call(torch.add, x, 1) if self.random.random() < 0.8 else x
        if self.random.random() < 0.2:
            self.call(torch.mul, fresh, 2)
        if self.random.random() < 0.5:
            self.call(F.relu, fresh, inplace=True)
        else:
            self.call(self.random.choice(["abs_", "neg_"]), fresh)

    def toggle_grad(self, _: fx.Node) -> None:
        self.s.call(torch._C._set_grad_enabled, self.random.random() < 0.5)

    # ---- helpers

    def cut(self, x: fx.Node) -> list[fx.Node]:
        """Slices or pieces of x: all, a run, shuffled or repeated, perhaps through a function."""
        dim = self.random.randrange(len(self.shape(x)))
        size = self.shape(x)[dim]
        kind = self.random.choice(["unbind", "split", "chunk", "select"])
        if kind == "select":
            parts = [self.call("select", x, dim, i) for i in range(size)]
        else:
            width = self.random.randint(1, size)
            args = {"unbind": (dim,), "split": (width, dim), "chunk": (width, dim)}[kind]
            node = self.s.call(kind, x, *args)
            count = len(node.meta[self.s.key])
            parts = [self.call(operator.getitem, node, i) for i in range(count)]
        order = self.random.choice(["all"] * 6 + ["run"] * 3 + ["shuffled", "repeated"])
        if order == "run":
            start = self.random.randrange(len(parts))
            parts = parts[start : self.random.randint(start, len(parts)) + 1]
        elif order == "shuffled":
            self.random.shuffle(parts)
        elif order == "repeated":
            parts = self.random.choices(parts, k=len(parts))
        if self.random.random() < 0.2:
            function = self.random.choice([torch.relu, torch.neg, torch.abs])
            parts = [self.call(function, part) for part in parts]
        return parts

    def join(self, parts: list[fx.Node]) -> fx.Node:
        rank = len(self.shape(parts[0]))
        if self.random.random() < 0.15:
            parts = [*parts, self.random.choice(self.values)]
        kind = self.random.random()
        if kind < 0.5:
            return self.call(torch.stack, parts, dim=self.random.randint(-rank - 1, rank))
        if kind < 0.6:
            dim = self.random.randint(0, rank)
            return self.call(torch.cat, [self.call("unsqueeze", p, dim) for p in parts], dim=dim)
        return self.call(torch.cat, parts, dim=self.random.randrange(-rank, rank))

    def call(self, target: Any, *args: Any, **kwargs: Any) -> fx.Node:
        try:
            node: fx.Node = self.s.call(target, *args, **kwargs)
        except _IMPOSSIBLE:
            self.s.graph.erase_node(next(reversed(self.s.graph.nodes)))
            raise
        self.values.append(node)
        return node

    def factors(self, number: int) -> list[int]:
        """Random sizes with this product."""
        sizes = []
        while number > 1 and self.random.random() < 0.8:
            sizes.append(self.random.choice([d for d in range(1, number + 1) if number % d == 0]))
            number //= sizes[-1]
        return [*sizes, number]

    def shape(self, node: fx.Node) -> tuple[int, ...]:
        return tuple(node.meta[self.s.key].shape)


def apply_all(module: fx.GraphModule, seed: int) -> tuple[GraphView, Counter[str]]:
    """Applies candidates in random order, with or without the clean-up of a step."""
    view = GraphView(module.graph)
    rewriter = Rewriter(view, PatternTable(PATTERNS))
    chance, refused = random.Random(seed), set()
    done: Counter[str] = Counter()
    for _ in range(200):
        left = [c for c in rewriter.candidates() if c.order not in refused]
        if not left:
            break
        candidate = chance.choice(left)
        try:
            rewriter.apply(candidate)
            done[candidate.pattern.name()] += 1
        except IllegalRewrite:
            refused.add(candidate.order)
            done[REFUSED] += 1
    else:
        raise AssertionError(f"still candidates: {left[0].label}")
    rewriter.editor.finish()
    module.graph.lint()
    module.recompile()
    return view, done


def memory(values: Any) -> list[int]:
    """For each tensor, the first one in the same memory."""
    seen = [v.untyped_storage().data_ptr() for v in values if isinstance(v, Tensor)]
    return [seen.index(pointer) for pointer in seen]


def can_train(module: fx.GraphModule, inputs: list[Tensor]) -> bool:
    """The graph does not overwrite what its gradients need, nor an input that has one."""
    leaves = [v.detach().clone().requires_grad_(v.requires_grad) for v in inputs]
    try:
        ends = [end.sum() for end in copy.deepcopy(module)(*leaves) if end.requires_grad]
        if ends:
            torch.stack(ends).sum().backward()  # type: ignore[no-untyped-call]
    except RuntimeError:
        return False
    return True


def check_specs(view: GraphView, inputs: list[Tensor]) -> None:
    """What the view knows of every value is true: strides, and who shares memory with whom."""
    numbers, kept = defaultdict(set), {}
    for node in view.graph.nodes:
        if node.op == "output":
            continue
        if node.op == "placeholder":
            kept[node] = inputs[len(kept)].detach()
        elif node.target is not torch._C._set_grad_enabled:
            args, kwargs = fx.node.map_arg((node.args, node.kwargs), lambda n: kept[n])
            target = getattr(args[0], node.target) if node.op == "call_method" else node.target
            kept[node] = target(*(args[1:] if node.op == "call_method" else args), **kwargs)
        real_specs = parts_of(spec_of(kept.get(node)))
        for known, real in zip(parts_of(view.any_spec(node)), real_specs, strict=True):
            assert known.shape == real.shape, node.format_node()
            assert known.same_strides(real), node.format_node()
            numbers[known.storage].add(real.storage)
    assert all(len(real) == 1 for real in numbers.values())
    assert len(set().union(*numbers.values())) == len(numbers)


@pytest.mark.parametrize("seeds", [range(start, start + 12) for start in (0, 12, 24)], ids=str)
def test_random_graphs(sketch: Any, seeds: range) -> None:
    done: Counter[str] = Counter()
    for seed in seeds:
        s = sketch()
        Growth(s, seed).grow()
        module, inputs = s.module(), random_inputs(s.graph)
        original, before = copy.deepcopy(module), text(module.graph)
        try:
            expected = original(*(value.detach().clone() for value in inputs))
        except RuntimeError:
            continue  # fake tensors allow a few views that torch refuses
        view, steps = apply_all(module, seed)
        done += steps
        check_specs(view, [value.detach().clone() for value in inputs])
        result = Rewritten(original, module, inputs, before, text(module.graph))
        trains = can_train(original, inputs)
        if not trains:
            result.inputs = [value.detach() for value in inputs]
        result.check(gradients=trains)
        actual = module(*(value.detach().clone() for value in inputs))
        assert memory(expected) == memory(actual)
    assert done.total() > 10
    assert done[REFUSED] <= 1

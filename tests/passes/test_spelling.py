"""One op, however it is spelled: function, method, operator, keyword, dim, either dialect."""

from __future__ import annotations

import dataclasses
import operator
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import fx

from passwright.passes.binding import TABLE
from passwright.passes.graph import GraphView
from passwright.passes.ops import (
    Binary,
    Cat,
    Embedding,
    InplaceUnary,
    LayerNorm,
    Linear,
    Op,
    Permute,
    Piece,
    Reshape,
    Select,
    Slice,
    Split,
    Stack,
    Unary,
    Unbind,
)

aten = torch.ops.aten
get = operator.getitem
Spelling = tuple[Any, tuple[Any, ...], dict[str, Any]]


def sp(target: Any, *args: Any, **kwargs: Any) -> Spelling:
    """A call; `Arg` objects stand for values of the graph."""
    return target, args, kwargs


class Arg:
    """A value of the graph, made by a function of the sketch."""

    def __init__(self, name: str, *calls: Spelling) -> None:
        self.name = name
        self.calls = calls

    def __repr__(self) -> str:
        return self.name


INPUTS: dict[str, dict[str, Any]] = {
    "x": {"shape": (4, 10)},
    "y": {"shape": (4, 10)},
    "z": {"shape": (4, 3, 10)},
    "one": {"shape": (4, 1, 10)},
    "w": {"shape": (6, 10)},
    "b": {"shape": (6,)},
    "scale": {"shape": (10,)},
    "shift": {"shape": (10,)},
    "i": {"shape": (4, 3), "dtype": torch.int64},
    "table": {"shape": (9, 10)},
}
x, y, z, one, w, b, scale, shift, i, table = map(Arg, INPUTS)
wt = Arg("wt", sp(aten.t.default, w))
parts = Arg("parts", sp(torch.split, x, 5, 1))
xs, ys = (Arg(f"{v}1", sp("unsqueeze", v, 1)) for v in (x, y))
xf, yf = (Arg(f"{v}1", sp(torch.unsqueeze, v, -2)) for v in (x, y))
xa, ya = (Arg(f"{v}1", sp(aten.unsqueeze.default, v, 1)) for v in (x, y))
all_ = slice(None)

#: Expected op (field values; names stand for nodes) and its spellings.
CASES: list[tuple[type[Op], tuple[Any, ...], list[Spelling]]] = [
    (
        Split,
        (x, (3, 3, 4), 1),
        [
            sp(torch.split, x, [3, 3, 4], 1),
            sp(torch.split, x, (3, 3, 4), -1),
            sp(torch.split, x, split_size_or_sections=[3, 3, 4], dim=1),
            sp(torch.split, tensor=x, split_size_or_sections=[3, 3, 4], dim=-1),
            sp("split", x, [3, 3, 4], 1),
            sp("split", x, [3, 3, 4], dim=-1),
            sp("split", x, split_size=[3, 3, 4], dim=1),
            sp("split_with_sizes", x, [3, 3, 4], 1),
            sp("split_with_sizes", x, split_sizes=[3, 3, 4], dim=-1),
            sp(torch.split_with_sizes, x, [3, 3, 4], 1),
            sp(torch.tensor_split, x, (3, 6), 1),
            sp(torch.tensor_split, x, indices=(3, 6), dim=1),
            sp("tensor_split", x, (3, 6), -1),
            sp(aten.split.sizes, x, [3, 3, 4], 1),
            sp(aten.split_with_sizes.default, x, [3, 3, 4], -1),
        ],
    ),
    (
        Split,
        (x, (4, 4, 2), 1),
        [
            sp(torch.split, x, 4, 1),
            sp(torch.split, x, 4, dim=-1),
            sp("split", x, 4, 1),
            sp("split", x, split_size=4, dim=1),
            sp(torch.chunk, x, 3, 1),
            sp(torch.chunk, x, chunks=3, dim=-1),
            sp(torch.chunk, input=x, chunks=3, dim=1),
            sp("chunk", x, 3, -1),
            sp("chunk", x, 3, dim=1),
            sp(aten.split.Tensor, x, 4, 1),
            sp(aten.split.Tensor, x, 4, -1),
            sp(aten.chunk.default, x, 3, 1),
        ],
    ),
    (Split, (x, (4,), 0), [sp(torch.split, x, 4), sp("chunk", x, 1), sp("split", x, [4])]),
    (
        Unbind,
        (z, 1, 3),
        [
            sp(torch.unbind, z, 1),
            sp(torch.unbind, z, dim=-2),
            sp("unbind", z, 1),
            sp("unbind", z, dim=1),
            sp(aten.unbind.int, z, -2),
        ],
    ),
    (Unbind, (z, 0, 4), [sp(torch.unbind, z), sp("unbind", z), sp(aten.unbind.int, z)]),
    (Piece, (parts, 1), [sp(get, parts, 1), sp(get, parts, -1)]),
    (
        Cat,
        ((x, y, x), 1),
        [
            sp(torch.cat, [x, y, x], 1),
            sp(torch.cat, (x, y, x), dim=-1),
            sp(torch.cat, tensors=[x, y, x], dim=1),
            sp(torch.cat, [x, y, x], axis=1),
            sp(torch.concat, [x, y, x], 1),
            sp(torch.concat, tensors=(x, y, x), dim=-1),
            sp(torch.concatenate, [x, y, x], axis=1),
            sp(torch.concatenate, [x, y, x], 1),
            sp(aten.cat.default, [x, y, x], 1),
            sp(aten.cat.default, [x, y, x], -1),
            sp(aten.concat.default, [x, y, x], 1),
            sp(aten.concatenate.default, [x, y, x], 1),
        ],
    ),
    (
        Stack,
        ((x, y), 1),
        [
            sp(torch.stack, [x, y], 1),
            sp(torch.stack, (x, y), dim=-2),
            sp(torch.stack, tensors=[x, y], dim=1),
            sp(aten.stack.default, [x, y], 1),
            sp(aten.stack.default, [x, y], -2),
            sp(torch.cat, [xs, ys], 1),
            sp(torch.cat, [xf, ys], -2),
            sp(aten.cat.default, [xa, ya], 1),
        ],
    ),
    (
        Reshape,
        (z, (4, 30)),
        [
            sp(torch.reshape, z, (4, 30)),
            sp(torch.reshape, z, [4, -1]),
            sp(torch.reshape, input=z, shape=(4, 30)),
            sp("reshape", z, 4, 30),
            sp("reshape", z, (4, -1)),
            sp("reshape", z, shape=(4, 30)),
            sp("view", z, 4, 30),
            sp("view", z, (4, 30)),
            sp("view", z, torch.Size([4, 30])),
            sp("view", z, -1, 30),
            sp("view", z, size=(4, 30)),
            sp(torch.flatten, z, 1),
            sp(torch.flatten, z, start_dim=-2),
            sp(torch.flatten, z, 1, -1),
            sp("flatten", z, 1),
            sp("flatten", z, start_dim=1, end_dim=2),
            sp(aten.view.default, z, [4, 30]),
            sp(aten.reshape.default, z, [4, -1]),
            sp(aten._unsafe_view.default, z, [4, 30]),
            sp(aten.flatten.using_ints, z, 1),
        ],
    ),
    (
        Reshape,
        (x, (4, 5, 2)),
        [
            sp(torch.unflatten, x, 1, (5, 2)),
            sp(torch.unflatten, x, dim=-1, sizes=[5, -1]),
            sp("unflatten", x, 1, (5, 2)),
            sp("unflatten", x, dim=1, sizes=(5, 2)),
            sp(aten.unflatten.int, x, 1, [5, 2]),
            sp("view", x, 4, 5, 2),
        ],
    ),
    (
        Reshape,
        (x, (4, 1, 10)),
        [
            sp(torch.unsqueeze, x, 1),
            sp(torch.unsqueeze, x, dim=-2),
            sp("unsqueeze", x, 1),
            sp("unsqueeze", x, dim=1),
            sp(aten.unsqueeze.default, x, -2),
            sp(get, x, (all_, None)),
            sp(get, x, (all_, None, all_)),
            sp(get, x, (all_, None, Ellipsis)),
            sp("view_as", x, one),
            sp("reshape_as", x, one),
        ],
    ),
    (
        Reshape,
        (one, (4, 10)),
        [
            sp(torch.squeeze, one, 1),
            sp(torch.squeeze, one),
            sp(torch.squeeze, one, dim=-2),
            sp("squeeze", one, 1),
            sp("squeeze", one),
            sp("squeeze", one, (1, 2)),
            sp(aten.squeeze.default, one),
            sp(aten.squeeze.dim, one, 1),
            sp(aten.squeeze.dims, one, [1]),
            sp("view_as", one, x),
        ],
    ),
    (
        Permute,
        (z, (1, 0, 2)),
        [
            sp(torch.permute, z, (1, 0, 2)),
            sp(torch.permute, z, dims=[-2, 0, -1]),
            sp("permute", z, 1, 0, 2),
            sp("permute", z, (1, 0, 2)),
            sp("permute", z, dims=(1, 0, 2)),
            sp(torch.transpose, z, 0, 1),
            sp(torch.transpose, z, dim0=1, dim1=-3),
            sp("transpose", z, 1, 0),
            sp("transpose", z, dim0=0, dim1=1),
            sp(torch.swapaxes, z, 0, 1),
            sp(torch.swapaxes, z, axis0=0, axis1=1),
            sp(torch.swapdims, z, 0, 1),
            sp("swapaxes", z, 0, -2),
            sp("swapdims", z, dim0=0, dim1=1),
            sp(torch.movedim, z, 0, 1),
            sp(torch.movedim, z, (0, 1), (-2, 0)),
            sp(torch.moveaxis, z, source=1, destination=0),
            sp("movedim", z, 1, 0),
            sp("moveaxis", z, (0,), (1,)),
            sp(aten.permute.default, z, [1, 0, 2]),
            sp(aten.transpose.int, z, 0, 1),
        ],
    ),
    (
        Permute,
        (x, (1, 0)),
        [
            sp(torch.t, x),
            sp("t", x),
            sp(aten.t.default, x),
            sp(torch.transpose, x, 0, 1),
            sp(getattr, x, "T"),
            sp(getattr, x, "mT"),
            sp(torch.ops.aten.mT, x),
        ],
    ),
    (Permute, (z, (0, 2, 1)), [sp(getattr, z, "mT"), sp("transpose", z, 1, 2)]),
    (
        Slice,
        (x, 1, 2, 5),
        [
            sp(get, x, (all_, slice(2, 5))),
            sp(get, x, (all_, slice(2, 5, 1))),
            sp(get, x, (Ellipsis, slice(2, 5))),
            sp(get, x, (all_, slice(-8, -5))),
            sp(get, x, (Ellipsis, all_, slice(2, -5))),
            sp(torch.narrow, x, 1, 2, 3),
            sp(torch.narrow, x, dim=-1, start=2, length=3),
            sp(torch.narrow, x, 1, -8, 3),
            sp("narrow", x, 1, 2, 3),
            sp("narrow", x, dim=1, start=2, length=3),
            sp(aten.slice.Tensor, x, 1, 2, 5),
            sp(aten.slice.Tensor, x, -1, -8, 5),
            sp(aten.narrow.default, x, 1, 2, 3),
        ],
    ),
    (
        Slice,
        (x, 0, 1, 4),
        [
            sp(get, x, slice(1, None)),
            sp(get, x, (slice(1, 100), all_)),
            sp(aten.slice.Tensor, x, 0, 1, 9223372036854775807),
            sp(aten.slice.Tensor, x, 0, 1),
        ],
    ),
    (
        Select,
        (x, 1, 3),
        [
            sp(get, x, (all_, 3)),
            sp(get, x, (Ellipsis, -7)),
            sp(torch.select, x, 1, 3),
            sp(torch.select, x, dim=-1, index=3),
            sp("select", x, 1, 3),
            sp("select", x, dim=1, index=-7),
            sp(aten.select.int, x, 1, -7),
        ],
    ),
    (
        Select,
        (x, 0, 2),
        [sp(get, x, 2), sp(get, x, -2), sp(get, x, (2, all_)), sp("select", x, 0, 2)],
    ),
    (
        Linear,
        (x, w, b),
        [
            sp(F.linear, x, w, b),
            sp(F.linear, x, w, bias=b),
            sp(F.linear, input=x, weight=w, bias=b),
            sp(torch._C._nn.linear, x, w, b),
            sp(aten.linear.default, x, w, b),
            sp(aten.addmm.default, b, x, wt),
            sp(aten.addmm.default, b, x, wt, beta=1, alpha=1),
        ],
    ),
    (
        Linear,
        (x, w, None),
        [
            sp(F.linear, x, w),
            sp(F.linear, x, w, None),
            sp(F.linear, x, weight=w, bias=None),
            sp(aten.linear.default, x, w),
            sp(aten.mm.default, x, wt),
            sp(aten.mm.default, x, Arg("wt", sp(aten.permute.default, w, [1, 0]))),
        ],
    ),
    (
        LayerNorm,
        (x, (10,), scale, shift, 1e-6),
        [
            sp(F.layer_norm, x, [10], scale, shift, 1e-6),
            sp(F.layer_norm, x, (10,), weight=scale, bias=shift, eps=1e-6),
            sp(
                F.layer_norm,
                input=x,
                normalized_shape=torch.Size([10]),
                weight=scale,
                bias=shift,
                eps=1e-6,
            ),
            sp(torch.layer_norm, x, [10], scale, shift, 1e-6),
            sp(torch.layer_norm, x, [10], scale, shift, eps=1e-6, cudnn_enable=False),
            sp(aten.layer_norm.default, x, [10], scale, shift, 1e-6),
        ],
    ),
    (
        LayerNorm,
        (x, (10,), None, None, 1e-5),
        [
            sp(F.layer_norm, x, [10]),
            sp(F.layer_norm, x, [10], None, None, 1e-5),
            sp(torch.layer_norm, x, [10]),
            sp(aten.layer_norm.default, x, [10]),
        ],
    ),
    (
        Embedding,
        (i, table, None),
        [
            sp(F.embedding, i, table),
            sp(F.embedding, input=i, weight=table, padding_idx=None),
            sp(F.embedding, i, table, None, None, 2.0, False, False),
            sp(torch.embedding, table, i),
            sp(torch.embedding, weight=table, indices=i),
            sp(aten.embedding.default, table, i),
            sp(aten.embedding.default, table, i, -1),
        ],
    ),
    (
        Embedding,
        (i, table, 8),
        [
            sp(F.embedding, i, table, 8),
            sp(F.embedding, i, table, padding_idx=-1),
            sp(torch.embedding, table, i, 8),
            sp(aten.embedding.default, table, i, 8),
        ],
    ),
    (
        Unary,
        ("clamp", x, (("min", 0), ("max", 1))),
        [
            sp(torch.clamp, x, 0, 1),
            sp(torch.clamp, x, min=0, max=1),
            sp(torch.clip, x, 0, max=1),
            sp("clamp", x, 0, 1),
            sp("clamp", x, max=1, min=0),
            sp("clip", x, 0, 1),
            sp(aten.clamp.default, x, 0, 1),
        ],
    ),
    (
        Unary,
        ("gelu", x, (("approximate", "tanh"),)),
        [sp(F.gelu, x, approximate="tanh"), sp(aten.gelu.default, x, approximate="tanh")],
    ),
    (
        Unary,
        ("leaky_relu", x, (("negative_slope", 0.2),)),
        [
            sp(F.leaky_relu, x, 0.2),
            sp(F.leaky_relu, x, 0.2, False),
            sp(F.leaky_relu, x, negative_slope=0.2, inplace=False),
        ],
    ),
    (
        InplaceUnary,
        ("relu", x, ()),
        [
            sp(F.relu, x, True),
            sp(F.relu, x, inplace=True),
            sp("relu_", x),
            sp(torch.relu_, x),
        ],
    ),
    (
        InplaceUnary,
        ("clamp", x, (("min", 0), ("max", None))),
        [sp("clamp_", x, 0), sp("clamp_", x, min=0), sp(torch.clamp_, x, 0)],
    ),
    (
        Binary,
        ("add", x, y, (("alpha", 2),)),
        [
            sp(torch.add, x, y, alpha=2),
            sp(torch.add, input=x, other=y, alpha=2),
            sp("add", x, y, alpha=2),
            sp(aten.add.Tensor, x, y, alpha=2),
        ],
    ),
    (
        Binary,
        ("div", x, y, (("rounding_mode", "floor"),)),
        [
            sp(torch.div, x, y, rounding_mode="floor"),
            sp("div", x, y, rounding_mode="floor"),
            sp(torch.divide, x, y, rounding_mode="floor"),
            sp("divide", x, other=y, rounding_mode="floor"),
        ],
    ),
    (
        Binary,
        ("mul", x, 3, ()),
        [
            sp(torch.mul, x, 3),
            sp("mul", x, 3),
            sp("mul", x, other=3),
            sp(operator.mul, x, 3),
            sp("multiply", x, 3),
            sp(torch.multiply, x, 3),
            sp(aten.mul.Tensor, x, 3),
        ],
    ),
    (Binary, ("sub", 2.5, x, (("alpha", 1),)), [sp(operator.sub, 2.5, x)]),
]


def plain(function: str, targets: list[Any]) -> tuple[type[Op], tuple[Any, ...], list[Spelling]]:
    """All spellings of a unary or binary function with its arguments at their defaults."""
    if function in ("add", "sub", "mul", "div", "maximum", "minimum"):
        spellings = [sp(target, x, y) for target in targets]
        named = [t for t in targets if getattr(torch, getattr(t, "__name__", "?"), None) is t]
        spellings += [sp(target, input=x, other=y) for target in named]
        return Binary, (function, x, y, ...), spellings
    inplace = all(getattr(t, "__name__", str(t)).endswith("_") for t in targets)
    bound = (0,) if function == "clamp" else ()
    spellings = [sp(target, x, *bound) for target in targets]
    return InplaceUnary if inplace else Unary, (function, x, ...), spellings


def by_function() -> list[tuple[type[Op], tuple[Any, ...], list[Spelling]]]:
    """Unary and binary functions, with the targets that the table has for each."""
    groups: dict[tuple[str, bool], list[Any]] = {}
    for key, (_, reader) in TABLE.items():
        names = [
            c.cell_contents for c in reader.__closure__ or () if isinstance(c.cell_contents, str)
        ]
        if len(names) == 1:
            target = key[1] if isinstance(key, tuple) else key
            groups.setdefault((names[0], "_inplace" in reader.__qualname__), []).append(target)
    return [plain(function, targets) for (function, _), targets in groups.items()]


ALL = CASES + by_function()


class Bench:
    """A sketch with all inputs, on which spellings become nodes."""

    def __init__(self, s: Any) -> None:
        self.s = s
        self.values = {
            name: s.input(*given["shape"], dtype=given.get("dtype", torch.float32))
            for name, given in INPUTS.items()
        }

    def value(self, item: Any) -> Any:
        if isinstance(item, Arg):
            return self.call(item.calls[0]) if item.calls else self.values[item.name]
        if type(item) in (list, tuple):
            return type(item)(map(self.value, item))
        return item

    def call(self, spelling: Spelling) -> fx.Node:
        target, args, kwargs = spelling
        args, kwargs = self.value(args), {key: self.value(v) for key, v in kwargs.items()}
        return self.s.call(target, *args, **kwargs)


def described(op: Op | None) -> list[Any]:
    """Class and fields of an op except `node`; nodes by what they are, not by name."""
    if op is None:
        return []

    def shown(value: Any) -> Any:
        if isinstance(value, fx.Node):
            return value.name if value.op == "placeholder" else "computed"
        if isinstance(value, tuple):
            return tuple(map(shown, value))
        return value

    fields = [shown(getattr(op, f.name)) for f in dataclasses.fields(op) if f.name != "node"]
    return [type(op), *fields]


def expected(kind: type[Op], fields: tuple[Any, ...], bench: Bench) -> list[Any]:
    def shown(value: Any) -> Any:
        if isinstance(value, Arg):
            return bench.values[value.name].name if value.name in bench.values else "computed"
        if isinstance(value, tuple):
            return tuple(map(shown, value))
        return value

    return [kind, *map(shown, fields)]


@pytest.mark.parametrize(
    ("kind", "fields", "spellings"), ALL, ids=[f"{k.__name__}-{f}" for k, f, _ in ALL]
)
def test_every_spelling_is_read_as_the_same_op(
    sketch: Any, kind: type[Op], fields: tuple[Any, ...], spellings: list[Spelling]
) -> None:
    wrong, found = [], []
    for spelling in spellings:
        bench = Bench(sketch())
        node = bench.call(spelling)
        op = GraphView(bench.s.graph).read(node)
        found.append(described(op))
        assert op is None or op.node is node
        wanted = expected(kind, fields, bench)
        got = found[-1][: wanted.index(...)] if ... in wanted else found[-1]
        if got != [item for item in wanted if item is not ...]:
            wrong.append((spelling, found[-1]))
    assert not wrong
    assert all(op == found[0] for op in found)


def test_every_spelling_of_the_table_is_tried() -> None:
    tried = set()
    for _, _, spellings in ALL:
        for target, _, _ in spellings:
            tried.add(("method", target) if isinstance(target, str) else target)
    assert not set(TABLE) - tried


def name_of(target: Any) -> str:
    """The same in every process, as the names of tests must be."""
    return str(getattr(target, "__name__", target))


NOT_READ = [
    sp(torch.split, x, [3, 3, 4], Arg("dim", sp("item", i))),
    sp(torch.add, x, y, out=y),
    sp(torch.cat, [x, y], out=y),
    sp(torch.tanh, x, out=y),
    sp(torch.add, x, 2, y),
    sp(torch.cat, [x, y], 1, dim=0),
    sp(torch.add, x, y, other=x),
    sp(torch.clamp, x, x, y),
    sp(torch.cat, [x, Arg("xd", sp("double", x))]),
    sp(get, x, (all_, slice(0, 6, 2))),
    sp(get, x, (slice(0, 2), slice(0, 2))),
    sp(get, x, [0, 1]),
    sp(get, x, (all_, i)),
    sp(get, x, True),
    sp(get, x, (None, 0)),
    sp(get, x, ()),
    sp("view", x, torch.int32),
    sp("tensor_split", x, (6, 3), 1),
    sp(F.embedding, i, table, None, 1.0),
    sp(F.embedding, i, table, scale_grad_by_freq=True),
    sp(F.embedding, i, table, sparse=True),
    sp(torch.embedding, table, i, sparse=True),
    sp(aten.addmm.default, b, x, wt, beta=2),
    sp(aten.addmm.default, b, x, wt, alpha=0.5),
    sp(aten.mm.default, x, Arg("product", sp(torch.mul, wt, 2))),
    sp(operator.add, [1], [2]),
    sp(torch.matmul, x, wt),
    sp(torch.sum, x),
    sp(getattr, x, "shape"),
    sp(getattr, x, "real"),
]


@pytest.mark.parametrize("spelling", NOT_READ, ids=lambda s: name_of(s[0]))
def test_other_calls_are_left_alone(sketch: Any, spelling: Spelling) -> None:
    bench = Bench(sketch())
    target, args, kwargs = spelling
    try:
        node = bench.call(spelling)
    except Exception:  # what fake tensors cannot run: only the reading matters
        node = list(bench.s.graph.nodes)[-1]
        node.meta[bench.s.key] = bench.values["x"].meta[bench.s.key]
    assert node.target == target or args or kwargs
    assert GraphView(bench.s.graph).read(node) is None


def test_reading_never_raises(sketch: Any) -> None:
    """Whatever a call looks like: wrong types, nodes in place of numbers, unknown values."""
    draw = random.Random(0)
    bench = Bench(sketch())
    graph, key = bench.s.graph, bench.s.key
    scalar = graph.call_function(int, (bench.values["i"],))
    bare = graph.call_function(torch.sin, (bench.values["x"],))
    values = list(bench.values.values())
    pool: list[Callable[[], Any]] = [
        *(lambda v=v: v for v in (None, True, 0, 1, -1, 7, 10**20, 0.5, "tanh", ..., 1j)),
        lambda: draw.choice(values),
        lambda: draw.choice(values),
        lambda: scalar,
        lambda: bare,
        lambda: torch.float32,
        lambda: torch.Size([4, 10]),
        lambda: slice(draw.choice([None, 0, scalar]), draw.choice([None, 2, -1]), None),
        lambda: [draw.choice(pool[:16])() for _ in range(draw.randrange(4))],
        lambda: tuple(draw.choice(pool[:16])() for _ in range(draw.randrange(4))),
        lambda: {"a": draw.choice(values)},
    ]
    results = [node.meta[key] for node in (*values, bench.call(sp(torch.split, x, 5, 1)))]
    empty = torch.empty(0, 4, device="meta")
    read = 0
    for target, (signature, _) in TABLE.items():
        names = [*signature.names, *signature.aliases, "dim", "axis", "self", "out", "nonsense"]
        for _ in range(40):
            args = tuple(draw.choice(pool)() for _ in range(draw.randrange(5)))
            args = (draw.choice(values), *args) if draw.random() < 0.7 else args
            kwargs = {draw.choice(names): draw.choice(pool)() for _ in range(draw.randrange(3))}
            if isinstance(target, tuple):
                node = graph.call_method(target[1], args, kwargs)
            else:
                node = graph.call_function(target, args, kwargs)
            node.meta[key] = draw.choice([None, *results, empty, (empty, empty), 3])
    view = GraphView(graph)
    raised = []
    for node in graph.nodes:
        try:
            read += view.read(node) is not None
        except Exception as error:
            raised.append(f"{node.format_node()}: {error!r}")
    assert not raised
    assert read > 100

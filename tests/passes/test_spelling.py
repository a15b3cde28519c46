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
from spellings import (
    INPUTS,
    Arg,
    Spelling,
    all_,
    aten,
    b,
    get,
    i,
    sp,
    table,
    wt,
    x,
    y,
)
from spellings_compute import COMPUTE
from spellings_lookups import LOOKUPS
from spellings_lookups import NOT_READ as NOT_READ_LOOKUPS
from spellings_movement import MOVEMENT
from spellings_norms import NORMS
from spellings_products import PRODUCTS
from torch import fx

from passwright.passes.binding import TABLE
from passwright.passes.graph import GraphView
from passwright.passes.ops import Binary, InplaceBinary, InplaceUnary, Op, Unary


def plain(function: str, targets: list[Any]) -> tuple[type[Op], tuple[Any, ...], list[Spelling]]:
    """All spellings of a unary or binary function with its arguments at their defaults."""
    if function in ("add", "sub", "mul", "div", "maximum", "minimum"):
        spellings = [sp(target, x, y) for target in targets]
        if any(getattr(t, "__name__", str(t)) == function + "_" for t in targets):
            return InplaceBinary, (function, x, y, ...), spellings
        named = [t for t in targets if getattr(torch, getattr(t, "__name__", "?"), None) is t]
        spellings += [sp(target, input=x, other=y) for target in named]
        return Binary, (function, x, y, ...), spellings
    inplace = all(getattr(t, "__name__", str(t)).endswith("_") for t in targets)
    bound = {"clamp": (0,), "pow": (2,)}.get(function, ())
    spellings = [sp(target, x, *bound) for target in targets]
    return InplaceUnary if inplace else Unary, (function, x, ...), spellings


def by_function() -> list[tuple[type[Op], tuple[Any, ...], list[Spelling]]]:
    """Unary and binary functions, with the targets that the table has for each."""
    groups: dict[tuple[str, bool], list[Any]] = {}
    for key, (_, reader) in TABLE.items():
        names = [
            c.cell_contents for c in reader.__closure__ or () if isinstance(c.cell_contents, str)
        ]
        if len(names) == 1 and "_reduce" not in reader.__qualname__:
            target = key[1] if isinstance(key, tuple) else key
            groups.setdefault((names[0], "_inplace" in reader.__qualname__), []).append(target)
    return [plain(function, targets) for (function, _), targets in groups.items()]


ALL = MOVEMENT + COMPUTE + LOOKUPS + PRODUCTS + NORMS + by_function()


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
    sp(operator.add, [1], [2]),
    sp(torch.matmul, x, Arg("vector", sp("select", y, 0, 0))),
    sp(torch.sum, x, dtype=torch.float64),
    sp(torch.einsum, "...j,kj->...k", x, y),
    sp(torch.einsum, "ij,kj", x, y),
    sp("to", x, torch.int64, copy=True),
    sp("to", x, torch.int64, memory_format=torch.channels_last),
    sp("float", x, memory_format=torch.contiguous_format),
    sp("repeat", x, Arg("count", sp("item", i)), 1),
    sp(torch.pow, x, y),
    sp(torch.pow, 2, x),
    sp(getattr, x, "shape"),
    sp(getattr, x, "real"),
    *NOT_READ_LOOKUPS,
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

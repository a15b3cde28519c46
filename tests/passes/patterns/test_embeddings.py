"""Embedding look-ups side by side: into one cat or stack, and in one table."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from passwright.passes.dialect import Dialect
from passwright.passes.patterns.embeddings import EmbeddingsOfOneTable, GatherEmbeddings
from passwright.passes.testing import rewrite

aten = torch.ops.aten
#: How the offsets of joined tables read in the graph.
LIFT = "aten.lift_fresh_copy.default"
GATHER, ONE_TABLE = GatherEmbeddings(), EmbeddingsOfOneTable()


def index(s: Any, *shape: int, dtype: torch.dtype = torch.int64) -> Any:
    """Numbers from 0 to 3."""
    return s.input(*shape, dtype=dtype)


def table(s: Any, rows: int, width: int = 2, grad: bool = True, **kwargs: Any) -> Any:
    return s.input(rows, width, requires_grad=grad, **kwargs)


def lookups(s: Any, *rows: int, shape: tuple[int, ...] = (5,), width: int = 2) -> list[Any]:
    """One look-up in a table of its own for each number of rows."""
    return [s.call(F.embedding, index(s, *shape), table(s, count, width)) for count in rows]


def matches(s: Any) -> list[tuple[tuple[str, object], ...]]:
    view = s.view()
    ops = [view.read(node) for node in view.nodes()]
    return [
        m.parameters for op in ops if type(op) in GATHER.anchors for m in GATHER.matches(view, op)
    ]


# ---- into one cat or stack


@pytest.mark.parametrize(
    ("shape", "join", "dim", "moves"),
    [
        ((5,), torch.cat, -1, ["reshape"]),
        ((5,), torch.cat, 0, []),
        ((5,), torch.stack, 0, []),
        ((5,), torch.stack, -2, []),
        ((5, 1), torch.cat, 2, ["reshape"]),
        ((5, 1), torch.cat, 1, []),
        ((5, 3), torch.cat, -2, []),
        ((5, 3), torch.stack, 1, []),
        ((5, 3), torch.stack, 2, []),
    ],
)
def test_the_joined_rows_lie_as_the_cat_wants_them(
    sketch: Any, applied: Any, shape: Any, join: Any, dim: int, moves: list[str]
) -> None:
    s = sketch()
    s.output(s.call(join, lookups(s, 4, 5, 6, shape=shape), dim))
    result = applied(s, GATHER)
    assert [label.split(" @ ")[0] for label in result.labels] == [
        "gather_embeddings{first=0,members=3}"
    ]
    # Indices together, the offsets of all tables, tables together, one look-up.
    stacked = join is torch.stack or bool(moves)
    rank = len(shape) + stacked
    last = bool(moves) or dim % (len(shape) + 1 + (join is torch.stack)) == rank - 1
    assert sorted(result.calls) == sorted(
        [
            "stack" if stacked else "cat",
            LIFT,
            *([] if last else ["reshape"]),
            "add",
            "cat",
            "embedding",
            *moves,
        ]
    )
    assert result.bitwise


@pytest.mark.parametrize("join", ["cat", "stack"])
def test_aten(sketch: Any, applied: Any, join: str) -> None:
    s = sketch(Dialect.ATEN)
    rows = [s.call(aten.embedding.default, s.input(4, 2), index(s, 5)) for _ in range(3)]
    if join == "stack":
        rows = [s.call(aten.unsqueeze.default, row, 1) for row in rows]
    s.output(s.call(aten.cat.default, rows, 1))
    result = applied(s, GATHER)
    assert result.count("aten.embedding.default") == 1


def test_stack_spelled_as_cat(sketch: Any, applied: Any) -> None:
    s = sketch()
    rows = [s.call("unsqueeze", row, 1) for row in lookups(s, 4, 4, 5)]
    s.output(s.call("flatten", s.call(torch.concat, rows, dim=1), start_dim=1))
    calls = applied(s, GATHER).calls
    assert sorted(calls) == [".flatten", "add", LIFT, "cat", "embedding", "stack"]


def test_reshaped_rows(sketch: Any, applied: Any) -> None:
    """The places may be reshaped on the way to the cat: the indices then are, instead."""
    for change, shape, dim in (
        ("squeeze", (5, 1), 1),
        ("unsqueeze", (5,), 1),
        ("flatten", (5, 3), 0),
    ):
        s = sketch()
        rows = lookups(s, 4, 5, 6, shape=shape)
        last = 0 if change == "flatten" else 1
        cut = [s.call(change, row, *((0, 1) if change == "flatten" else (last,))) for row in rows]
        s.output(s.call(torch.cat, cut, dim), s.call(torch.tanh, rows[1]), cut[2])
        result = applied(s, GATHER)
        assert result.count("embedding") == 1, change


def test_index_parts_of_unequal_length(sketch: Any, applied: Any) -> None:
    s = sketch()
    rows = lookups(s, 4, shape=(5, 1)) + lookups(s, 6, shape=(5, 3))
    s.output(s.call(torch.cat, rows, 1), s.call(torch.tanh, rows[1]))
    result = applied(s, GATHER)
    assert result.count("embedding") == 1
    assert result.count("split") == 1


def test_runs_among_other_inputs(sketch: Any, applied: Any) -> None:
    """A run of look-ups of one width is one match; what stands between stays where it is."""
    for join, dim in (torch.cat, -1), (torch.stack, 1):
        s = sketch()
        dense = [s.input(5, 2, requires_grad=True) for _ in range(2)]
        first, second = lookups(s, 4, 5), lookups(s, 6, 7, 8)
        s.output(s.call(join, [dense[0], *first, dense[1], *second], dim))
        assert matches(s) == [
            (("first", 1), ("members", 2)),
            (("first", 4), ("members", 3)),
        ]
        result = applied(s, GATHER)
        assert result.count("embedding") == 2


def test_unequal_widths_are_runs_of_their_own(sketch: Any, applied: Any) -> None:
    s = sketch()
    rows = [*lookups(s, 4, 5), *lookups(s, 4, 5, width=3), *lookups(s, 4, width=1)]
    s.output(s.call(torch.cat, rows, -1))
    assert len(applied(s, GATHER).labels) == 2


def test_a_table_used_twice_is_joined_once(sketch: Any, applied: Any) -> None:
    s = sketch()
    one, two = table(s, 4), table(s, 5)
    rows = [s.call(F.embedding, index(s, 5), weight) for weight in (one, two, one)]
    s.output(s.call(torch.cat, rows, -1))
    result = applied(s, GATHER)
    joined = [line for line in result.after if " = cat(" in line]
    assert len(joined) == 1
    assert joined[0].count(",") == 2  # two tables and the dim


@pytest.mark.parametrize("join", [torch.cat, torch.stack])
def test_other_users_take_views(sketch: Any, applied: Any, join: Any) -> None:
    """Inner users, early users and the outside all see what they saw, and one look-up is left."""
    s = sketch()
    first, second = s.call(F.embedding, index(s, 5), table(s, 4)), None
    early = s.call(torch.tanh, first)
    second = s.call(F.embedding, index(s, 5), table(s, 6))
    s.output(early, s.call(join, [first, second], 1), second)
    result = applied(s, GATHER)
    assert result.count("embedding") == 1
    assert result.count("clone") == 2  # for the early user's strides, and for the output


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param({}, {"padding_idx": 0}, id="padding in one"),
        pytest.param({"padding_idx": 0}, {"padding_idx": 0}, id="a padding row in each table"),
        pytest.param({}, {"scale_grad_by_freq": True}, id="scaled gradient"),
        pytest.param({}, {"max_norm": 1.0}, id="renormalised table"),
        pytest.param({"sparse": True}, {"sparse": True}, id="sparse gradient"),
        pytest.param({}, {"index": torch.int32}, id="index type"),
        pytest.param({}, {"grad": False}, id="gradient in one"),
    ],
)
def test_near_misses(sketch: Any, first: dict[str, Any], second: dict[str, Any]) -> None:
    s = sketch()
    rows = []
    for case in first, second:
        case = dict(case)
        places = index(s, 5, dtype=case.pop("index", torch.int64))
        weight = table(s, 4, grad=case.pop("grad", "max_norm" not in case))
        rows.append(s.call(F.embedding, places, weight, **case))
    s.output(s.call(torch.cat, rows, -1))
    assert matches(s) == []


def test_stack_behind_the_width_is_left_alone(sketch: Any) -> None:
    s = sketch()
    s.output(s.call(torch.stack, lookups(s, 4, 5), -1))
    assert matches(s) == []


def test_one_lookup_alone_or_twice_is_left_alone(sketch: Any) -> None:
    s = sketch()
    (row,) = lookups(s, 4)
    s.output(s.call(torch.cat, [row, row, s.input(5, 2)], -1))
    assert matches(s) == []


def test_padding_in_one_table(sketch: Any, applied: Any) -> None:
    """One table has one padding row, whose gradient stays zero."""
    s = sketch()
    weight = table(s, 4)
    rows = [s.call(F.embedding, index(s, 9), weight, padding_idx=-3) for _ in range(3)]
    s.output(s.call(torch.cat, rows, -1))
    result = applied(s, GATHER)
    assert len(result.labels) == 1
    weight_at = [value.dtype.is_floating_point for value in result.inputs].index(True)
    inputs = copy.deepcopy(result.inputs)
    result.module(*inputs)[0].sum().backward()
    gradient = inputs[weight_at].grad
    assert not gradient[1].any()
    assert gradient.any()


def test_rows_beyond_the_index_type(sketch: Any) -> None:
    for dtype, fits in (torch.int32, False), (torch.int64, True):
        s = sketch()
        rows = [s.call(F.embedding, index(s, 5, dtype=dtype), table(s, 2**30)) for _ in range(3)]
        s.output(s.call(torch.cat, rows, -1))
        assert bool(matches(s)) is fits


def test_writes_and_grad_modes(sketch: Any, applied: Any) -> None:
    for what in "table", "index", "other table", "grad":
        s = sketch()
        weights = [s.input(4, 2) for _ in range(3)]
        places = [index(s, 5) for _ in range(2)]
        rows = [s.call(F.embedding, *pair) for pair in zip(places, weights, strict=False)]
        if what == "grad":
            s.call(torch._C._set_grad_enabled, False)
        else:
            written = {"table": weights[0], "index": places[1], "other table": weights[2]}[what]
            s.call("zero_", written)
        joined = s.call(torch.cat, rows, -1)
        if what == "grad":
            s.call(torch._C._set_grad_enabled, True)
        s.output(joined)
        assert len(matches(s)) == (what == "other table"), what
        applied(s, GATHER)


def test_types(sketch: Any, applied: Any) -> None:
    for dtype in torch.bfloat16, torch.float64:
        for index_type in torch.int32, torch.int64:
            s = sketch()
            rows = [
                s.call(F.embedding, index(s, 5, dtype=index_type), table(s, 4, dtype=dtype))
                for _ in range(2)
            ]
            s.output(s.call(torch.cat, rows, 1))
            assert len(applied(s, GATHER).labels) == 1


# ---- in one table


@pytest.mark.parametrize("dialect", list(Dialect))
@pytest.mark.parametrize("padding", [None, 1])
def test_one_table(sketch: Any, applied: Any, dialect: Dialect, padding: int | None) -> None:
    s = sketch(dialect)
    weight, shape = s.input(4, 2, requires_grad=dialect is Dialect.TORCH), (5, 3)
    if dialect is Dialect.TORCH:
        rows = [s.call(F.embedding, index(s, *shape), weight, padding) for _ in range(3)]
        s.output(*(s.call(torch.neg, row) for row in rows))
    else:
        given = -1 if padding is None else padding
        rows = [s.call(aten.embedding.default, weight, index(s, *shape), given) for _ in range(3)]
        s.output(*(s.call(aten.neg.default, row) for row in rows))
    result = applied(s, ONE_TABLE)
    assert [label.split(" @ ")[0] for label in result.labels] == [
        "embeddings_of_one_table{members=3}"
    ]
    assert sum("embedding" in name for name in result.calls) == 1
    assert result.bitwise


def test_one_table_near_misses(sketch: Any, groups: Any) -> None:
    def found(second: Any) -> list[int]:
        s = sketch()
        weight, places = table(s, 4), index(s, 5)
        rows = [s.call(F.embedding, places, weight), second(s, weight, places)]
        s.output(*rows)
        return groups(s, ONE_TABLE)  # type: ignore[no-any-return]

    assert found(lambda s, w, _: s.call(F.embedding, index(s, 5), w)) == [2]
    assert found(lambda s, *_: s.call(F.embedding, index(s, 5), table(s, 4))) == []
    assert found(lambda s, w, _: s.call(F.embedding, index(s, 5), w, padding_idx=2)) == []
    assert found(lambda s, w, _: s.call(F.embedding, index(s, 4), w)) == []
    assert found(lambda s, w, _: s.call(F.embedding, index(s, 5, dtype=torch.int32), w)) == []
    assert found(lambda s, w, i: s.call(F.embedding, i, w)) == []


def test_one_table_written_between(sketch: Any, applied: Any, groups: Any) -> None:
    s = sketch()
    weight, places = s.input(4, 2), [index(s, 5) for _ in range(3)]
    rows = [s.call(F.embedding, places[0], weight)]
    s.call("mul_", weight, 2)
    rows += [s.call(F.embedding, place, weight) for place in places[1:]]
    s.output(*rows)
    assert groups(s, ONE_TABLE) == [2]
    applied(s, ONE_TABLE)


# ---- captured


class Fields(nn.Module):
    """Look-ups of columns of one input, joined with dense columns as recommendation models do."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(rows, 4) for rows in (5, 6, 7))
        self.history = nn.Embedding(5, 4, padding_idx=0)

    def forward(self, x: Tensor, dense: Tensor) -> list[Tensor]:
        columns = [field(x[:, i].long()) for i, field in enumerate(self.tables)]
        wide = torch.cat([*columns, dense], -1)
        pooled = torch.stack(columns, 1).sum(1)
        past = [torch.tanh(self.history(x[:, i].long())) for i in range(3)]
        return [wide, pooled, *past]


@pytest.mark.parametrize("dynamic", [False, True])
def test_modules(dynamic: bool) -> None:
    model, inputs = Fields(), [torch.randint(0, 5, (6, 3)), torch.randn(6, 2)]
    result = rewrite(model, inputs, GATHER, ONE_TABLE, dynamic=dynamic)
    assert result.count("embedding") == 2
    result.check()


def test_autocast_region() -> None:
    class Cast(Fields):
        def forward(self, x: Tensor, dense: Tensor) -> list[Tensor]:
            with torch.autocast("cpu", torch.bfloat16):
                return super().forward(x, dense)

    inputs = [torch.randint(0, 5, (6, 3)), torch.randn(6, 2)]
    result = rewrite(Cast(), inputs, GATHER, ONE_TABLE)
    assert result.count("embedding") == 2
    result.check()

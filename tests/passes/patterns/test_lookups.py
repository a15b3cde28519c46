"""Look-ups with users of their own: in many tables, by one index, of unequal shapes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from passwright.passes.dialect import Dialect
from passwright.passes.patterns.lookups import (
    EmbeddingsOfManyTables,
    UnequalEmbeddingsOfOneTable,
    WidenEmbeddings,
)
from passwright.passes.testing import rewrite

aten = torch.ops.aten
MANY, WIDEN, UNEQUAL = EmbeddingsOfManyTables(), WidenEmbeddings(), UnequalEmbeddingsOfOneTable()
LIFT = "aten.lift_fresh_copy.default"


def index(s: Any, *shape: int, dtype: torch.dtype = torch.int64) -> Any:
    """Numbers from 0 to 3."""
    return s.input(*shape, dtype=dtype)


def table(s: Any, rows: int = 4, width: int = 2, grad: bool = True, **kwargs: Any) -> Any:
    return s.input(rows, width, requires_grad=grad, **kwargs)


def observed(s: Any, *rows: Any) -> None:
    s.output(*(s.call(torch.tanh, row) for row in rows))


# ---- many tables


def test_many_tables(sketch: Any, applied: Any) -> None:
    s = sketch()
    rows = [s.call(F.embedding, index(s, 5, 3), table(s, count)) for count in (4, 6, 5)]
    s.output(*(s.call(torch.cat, [row]) for row in rows))
    result = applied(s, MANY)
    assert result.labels[0].startswith("embeddings_of_many_tables{members=3} @ ")
    joined = ["stack", LIFT, "reshape", "add", "cat", "embedding", "unbind"]
    assert sorted(result.calls) == sorted([*joined, *["getitem"] * 3, *["cat"] * 3])
    assert len([line for line in result.diffs[0] if line.startswith("- ")]) == 3
    assert result.bitwise


def test_many_tables_aten(sketch: Any, applied: Any) -> None:
    s = sketch(Dialect.ATEN)
    rows = [s.call(aten.embedding.default, s.input(n, 2), index(s, 5)) for n in (4, 6)]
    s.output(*(s.call(aten.tanh.default, row) for row in rows))
    result = applied(s, MANY)
    assert result.count("aten.embedding.default") == 1
    assert result.count("aten.add.Tensor") == 1


def test_a_table_used_twice_is_joined_once(sketch: Any, applied: Any) -> None:
    s = sketch()
    one, two = table(s, 4), table(s, 6)
    observed(s, *(s.call(F.embedding, index(s, 5), weight) for weight in (one, two, one)))
    result = applied(s, MANY)
    (joined,) = [line for line in result.after if " = cat(" in line]
    assert joined.count(",") == 2  # two tables and the dim


@pytest.mark.parametrize(
    ("change", "found"),
    [
        pytest.param({}, [2], id="like"),
        pytest.param({"rows": 9}, [2], id="rows"),
        pytest.param({"width": 3}, [], id="width"),
        pytest.param({"dtype": torch.float64}, [], id="type"),
        pytest.param({"grad": False}, [], id="gradient"),
        pytest.param({"shape": (5, 1)}, [], id="shape"),
        pytest.param({"index": torch.int32}, [], id="index type"),
        pytest.param({"padding_idx": 1}, [], id="padding"),
        pytest.param({"sparse": True}, [], id="sparse"),
        pytest.param({"rows": 2**23}, [], id="a large table"),
    ],
)
def test_many_tables_near_misses(
    sketch: Any, groups: Any, change: dict[str, Any], found: list[int]
) -> None:
    change = dict(change)
    s = sketch()
    places = index(s, *change.pop("shape", (5,)), dtype=change.pop("index", torch.int64))
    given = {name: change.pop(name) for name in ("padding_idx", "sparse") if name in change}
    other = s.call(F.embedding, places, table(s, **change), **given)
    observed(s, s.call(F.embedding, index(s, 5), table(s)), other)
    assert groups(s, MANY) == found


def test_one_table_is_no_case(sketch: Any, groups: Any) -> None:
    s = sketch()
    weight = table(s)
    observed(s, *(s.call(F.embedding, index(s, 5), weight) for _ in range(2)))
    assert groups(s, MANY) == []


def test_rows_beyond_the_index_type(sketch: Any, groups: Any) -> None:
    """Many tables that are small each."""
    for dtype, fits in (torch.int64, True), (torch.uint8, False):
        s = sketch()
        rows = [s.call(F.embedding, index(s, 5), s.input(200, 1)) for _ in range(2)]
        for row in rows:
            row.args[0].meta["example_value"] = row.args[0].meta["example_value"].to(dtype)
        observed(s, *rows)
        assert bool(groups(s, MANY)) is fits


def test_written_between(sketch: Any, applied: Any, groups: Any) -> None:
    s = sketch()
    weights = [s.input(4, 2) for _ in range(3)]
    rows = [s.call(F.embedding, index(s, 5), weights[0])]
    s.call("mul_", weights[1], 2)
    rows += [s.call(F.embedding, index(s, 5), weight) for weight in weights[1:]]
    observed(s, *rows)
    assert sorted(groups(s, MANY)) in ([2], [3])
    applied(s, MANY)


def test_users_see_their_strides(sketch: Any, applied: Any) -> None:
    s = sketch()
    rows = [s.call(F.embedding, index(s, 5), table(s, count)) for count in (4, 6)]
    s.output(rows[0], s.call("view", rows[1], 10))
    applied(s, MANY)


# ---- one index


@pytest.mark.parametrize("padding", [None, 1])
def test_widen(sketch: Any, applied: Any, padding: int | None) -> None:
    s = sketch()
    places = index(s, 5, 3)
    rows = [s.call(F.embedding, places, table(s, 4, width), padding) for width in (2, 3, 1)]
    s.output(*(s.call(torch.cat, [row]) for row in rows))
    result = applied(s, WIDEN)
    assert result.labels[0].startswith("widen_embeddings{members=3} @ ")
    looked_up = ["cat", "embedding", "split", *["getitem"] * 3]
    assert result.calls == [*looked_up, *["cat"] * 3]
    assert result.bitwise


def test_widen_the_same_table_twice(sketch: Any, applied: Any) -> None:
    s = sketch()
    places, one, two = index(s, 5), table(s), table(s)
    observed(s, *(s.call(F.embedding, places, weight) for weight in (one, two, one)))
    assert applied(s, WIDEN).count("embedding") == 1


def test_widen_aten(sketch: Any, applied: Any) -> None:
    s = sketch(Dialect.ATEN)
    places = index(s, 5)
    rows = [s.call(aten.embedding.default, s.input(4, 2), places) for _ in range(2)]
    s.output(*(s.call(aten.tanh.default, row) for row in rows))
    assert applied(s, WIDEN).count("aten.embedding.default") == 1


def test_widen_near_misses(sketch: Any, groups: Any) -> None:
    def found(second: Any) -> list[int]:
        s = sketch()
        places = index(s, 5)
        observed(s, s.call(F.embedding, places, table(s)), second(s, places))
        return groups(s, WIDEN)  # type: ignore[no-any-return]

    assert found(lambda s, i: s.call(F.embedding, i, table(s))) == [2]
    assert found(lambda s, _: s.call(F.embedding, index(s, 5), table(s))) == []
    assert found(lambda s, i: s.call(F.embedding, i, table(s, rows=5))) == []
    assert found(lambda s, i: s.call(F.embedding, i, table(s), padding_idx=0)) == []
    assert found(lambda s, i: s.call(F.embedding, i, table(s, dtype=torch.float64))) == []


# ---- one table, indices of unequal shapes


@pytest.mark.parametrize("padding", [None, 0])
def test_unequal(sketch: Any, applied: Any, padding: int | None) -> None:
    s = sketch()
    weight = table(s)
    shapes = ((5,), (5, 7), (5, 2, 3))
    observed(s, *(s.call(F.embedding, index(s, *shape), weight, padding) for shape in shapes))
    result = applied(s, UNEQUAL)
    assert result.labels[0].startswith("unequal_embeddings_of_one_table{members=3} @ ")
    assert result.count("embedding") == 1
    assert result.count("split") == 1
    assert result.bitwise


def test_unequal_near_misses(sketch: Any, groups: Any) -> None:
    def found(second: Any) -> list[int]:
        s = sketch()
        weight, places = table(s), index(s, 5)
        observed(s, s.call(F.embedding, places, weight), second(s, weight, places))
        return groups(s, UNEQUAL)  # type: ignore[no-any-return]

    assert found(lambda s, w, _: s.call(F.embedding, index(s, 5, 2), w)) == [2]
    assert found(lambda s, w, _: s.call(F.embedding, index(s, 5), w)) == []
    assert found(lambda s, w, i: s.call(F.embedding, i, w)) == []
    assert found(lambda s, w, _: s.call(F.embedding, index(s, 4, 2), w)) == []
    assert found(lambda s, w, _: s.call(F.embedding, index(s, 5, 0), w)) == []
    assert found(lambda s, w, _: s.call(F.embedding, index(s, 5, 2), w, padding_idx=1)) == []
    assert found(lambda s, *_: s.call(F.embedding, index(s, 5, 2), table(s))) == []
    assert found(lambda s, w, _: s.call(F.embedding, index(s, 5, 2, dtype=torch.int32), w)) == []


# ---- captured


class Fields(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(rows, 4) for rows in (5, 6, 7))
        self.twins = nn.ModuleList(nn.Embedding(5, width) for width in (4, 2))
        self.items = nn.Embedding(5, 4, padding_idx=0)

    def forward(self, x: Tensor, history: Tensor) -> list[Tensor]:
        apart = [torch.tanh(field(x[:, i])) * i for i, field in enumerate(self.tables)]
        first = x[:, 0]
        twins = [torch.tanh(field(first)) for field in self.twins]
        past = torch.tanh(self.items(history)).sum(1) + self.items(x[:, 1]).exp()
        return [*apart, *twins, past]


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("pattern", [MANY, WIDEN, UNEQUAL], ids=lambda p: p.name())
def test_modules(pattern: Any, dynamic: bool) -> None:
    inputs = [torch.randint(0, 5, (6, 3)), torch.randint(0, 5, (6, 8))]
    for value in inputs if dynamic else ():
        torch._dynamo.mark_dynamic(value, 0)
    result = rewrite(Fields(), inputs, pattern, dynamic=None)
    assert result.labels
    result.check()

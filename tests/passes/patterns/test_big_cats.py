"""Cats of very many parts."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import fx

from passwright.passes.dialect import Dialect
from passwright.passes.matching import Rewriter
from passwright.passes.ops import Cat
from passwright.passes.patterns import big_cats
from passwright.passes.patterns.big_cats import PARTS, CatInGroups, group_sizes
from passwright.passes.patterns.cats import FlattenNestedCats
from passwright.passes.patterns.split_cat import CatOfPieces
from passwright.passes.table import PatternTable

GROUPS, FLATTEN = CatInGroups(), FlattenNestedCats()
aten = torch.ops.aten


@pytest.fixture
def anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(big_cats, "DEVICES", frozenset({"cpu", "cuda"}))


def sines(s: Any, count: int) -> list[fx.Node]:
    sin = torch.sin if s.key == "example_value" else aten.sin.default
    return [s.call(sin, s.input(2, 1 + i % 3, requires_grad=True)) for i in range(count)]


def test_group_sizes() -> None:
    assert group_sizes(9) == [5, 4]
    assert group_sizes(26) == [7, 7, 6, 6]
    for count in range(PARTS + 1, 700):
        sizes = group_sizes(count)
        assert sum(sizes) == count
        assert max(sizes) <= PARTS
        assert max(sizes) - min(sizes) < 2
        assert len(sizes) == -(-count // PARTS)


@pytest.mark.usefixtures("anywhere")
def test_before_and_after(sketch: Any, applied: Any) -> None:
    s = sketch()
    s.output(s.call(torch.cat, [s.input(2, 3) for _ in range(9)], dim=-1))
    result = applied(s, GROUPS)
    assert [label.split(" @ ")[0] for label in result.labels] == ["cat_in_groups{parts=8}"]
    assert result.after == [
        "pw0_cat = cat([x0, x1, x2, x3, x4], dim=1)",
        "pw1_cat = cat([x5, x6, x7, x8], dim=1)",
        "pw2_cat = cat([pw0_cat, pw1_cat], dim=1)",
        "return (pw2_cat)",
    ]


@pytest.mark.usefixtures("anywhere")
@pytest.mark.parametrize("dialect", list(Dialect))
@pytest.mark.parametrize("count", [9, 26, 64, 65, 200])
def test_clean_ups_leave_the_groups(sketch: Any, applied: Any, count: int, dialect: Any) -> None:
    s = sketch(dialect)
    cat = torch.cat if dialect is Dialect.TORCH else aten.cat.default
    s.output(s.call(cat, sines(s, count), 1))
    result = applied(s, GROUPS, FLATTEN, CatOfPieces())
    assert len(result.labels) == 1
    view = Rewriter(s.view(), PatternTable([])).view
    sizes = [len(op.inputs) for op in view.ops(Cat)]
    assert max(sizes) <= PARTS
    assert sum(sizes) - len(sizes) + 1 == count


@pytest.mark.usefixtures("anywhere")
def test_small_cats_stay_whole(sketch: Any, applied: Any) -> None:
    s = sketch()
    s.output(s.call(torch.cat, sines(s, PARTS), 1))
    assert applied(s, GROUPS).labels == []


@pytest.mark.usefixtures("anywhere")
@pytest.mark.parametrize("sizes", [(7, 1), (8, 1), (4, 4), (6, 4), (5, 5, 1)])
def test_other_nested_cats_are_flattened(sketch: Any, applied: Any, sizes: tuple[int, ...]) -> None:
    s = sketch()
    inner = [sines(s, size) for size in sizes]
    parts = [s.call(torch.cat, part, 1) if len(part) > 1 else part[0] for part in inner]
    s.output(s.call(torch.cat, parts, 1))
    assert applied(s, FLATTEN).count("cat") == 1


@pytest.mark.usefixtures("anywhere")
def test_a_group_of_another_dim(sketch: Any, applied: Any) -> None:
    s = sketch()
    rows = [[s.input(1, 2) for _ in range(5)] for _ in range(2)]
    parts = [s.call(torch.cat, row, 0) for row in rows]
    s.output(s.call(torch.cat, parts, 0), s.call(torch.cat, parts, 1))
    assert applied(s, FLATTEN).count("cat") >= 2


def test_elsewhere_than_on_cuda(sketch: Any, applied: Any) -> None:
    s = sketch()
    s.output(s.call(torch.cat, sines(s, 20), 1))
    assert applied(s, GROUPS).labels == []
    s = sketch()
    parts = [s.call(torch.cat, sines(s, 5), 1) for _ in range(2)]
    s.output(s.call(torch.cat, parts, 1))
    assert applied(s, FLATTEN).count("cat") == 1


def test_on_cuda(sketch: Any) -> None:
    s = sketch()
    s.output(s.call(torch.cat, [s.input(2, 3, device="cuda") for _ in range(20)], 1))
    assert len(Rewriter(s.view(), PatternTable([GROUPS])).candidates()) == 1


@pytest.mark.usefixtures("anywhere")
def test_a_written_cat(sketch: Any, applied: Any) -> None:
    s = sketch()
    y = s.call(torch.cat, [s.input(2, 3) for _ in range(9)], 1)
    s.call("add_", y, 1)
    s.output(y)
    assert applied(s, GROUPS).labels == []

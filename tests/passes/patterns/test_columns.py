"""Columns of one tensor that are converted and put together again."""

from __future__ import annotations

import operator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from passwright.passes.dialect import Dialect
from passwright.passes.patterns.columns import ConvertBelowJoin
from passwright.passes.patterns.embeddings import GatherEmbeddings
from passwright.passes.patterns.slices import CatOfColumns
from passwright.passes.patterns.split_cat import CatOfPieces
from passwright.passes.testing import rewrite

aten = torch.ops.aten
CONVERT = ConvertBelowJoin()


def columns(s: Any, x: Any, count: int, start: int = 0) -> list[Any]:
    """x[:, i:i+1] for each i."""
    every = slice(None)
    cuts = [(every, slice(i, i + 1)) for i in range(start, start + count)]
    return [s.call(operator.getitem, x, cut) for cut in cuts]


def test_cat_of_slices(sketch: Any, applied: Any) -> None:
    s = sketch()
    parts = [s.call("long", part) for part in columns(s, s.input(5, 6), 3, 1)]
    s.output(s.call(torch.cat, parts, 1))
    result = applied(s, CONVERT, CatOfPieces())
    assert [call for call in result.calls if call != "clone"] == ["narrow", ".to"]
    assert result.bitwise


def test_stack_of_selects(sketch: Any, applied: Any) -> None:
    s = sketch()
    x = s.input(5, 3, requires_grad=True)
    cuts = [s.call("select", x, 1, i) for i in range(3)]
    parts = [s.call("to", cut, torch.float64) for cut in cuts]
    s.output(s.call(torch.stack, parts, 1))
    assert applied(s, CONVERT, CatOfColumns()).calls == [".to"]


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_stack_along_any_dim(sketch: Any, applied: Any, dim: int) -> None:
    s = sketch()
    parts = [s.call("double", part) for part in columns(s, s.input(5, 3), 3)]
    s.output(s.call(torch.stack, parts, dim))
    assert applied(s, CONVERT).calls == [*["getitem"] * 3, "stack", ".to"]


def test_aten(sketch: Any, applied: Any) -> None:
    s = sketch(Dialect.ATEN)
    x = s.input(5, 3)
    cuts = [s.call(aten.select.int, x, 1, i) for i in range(3)]
    parts = [s.call(aten._to_copy.default, cut, dtype=torch.int64) for cut in cuts]
    rows = [s.call(aten.unsqueeze.default, part, 1) for part in parts]
    s.output(s.call(aten.cat.default, rows, 1))
    result = applied(s, CONVERT, CatOfColumns())
    assert result.count("aten._to_copy.default") == 1


def test_near_misses(sketch: Any, applied: Any) -> None:
    def left(change: str) -> bool:
        s = sketch()
        x, y = s.input(5, 4), s.input(5, 4)
        cuts = (
            columns(s, x, 2) if change != "other tensor" else [*columns(s, x, 1), *columns(s, y, 1)]
        )
        if change == "order":
            cuts.reverse()
        if change == "one not converted":
            parts = [s.call("long", cuts[0]), s.call("floor", cuts[1])]
        elif change == "other type":
            parts = [s.call("double", cuts[0]), s.call("half", cuts[1])]
        else:
            parts = [s.call("long", cut) for cut in cuts]
        if change == "written":
            s.call("zero_", x)
        joined = s.call(torch.cat, parts, 0 if change == "other dim" else 1)
        s.output(joined, *(parts[:1] if change == "other user" else []))
        return not applied(s, CONVERT).labels

    assert not left("nothing")
    for change in (
        "other tensor",
        "order",
        "one not converted",
        "other type",
        "written",
        "other dim",
        "other user",
    ):
        assert left(change), change


class Fields(nn.Module):
    """Indices as float columns of one input, as deepctr-torch has them."""

    def __init__(self, kept: bool) -> None:
        super().__init__()
        self.kept = kept
        self.tables = nn.ModuleList(nn.Embedding(rows, 4) for rows in (5, 6, 7, 5))

    def forward(self, x: Tensor) -> Tensor:
        if self.kept:
            rows = [t(x[:, i : i + 1].long()) for i, t in enumerate(self.tables)]
        else:
            rows = [t(x[:, i].long()).unsqueeze(1) for i, t in enumerate(self.tables)]
        return torch.cat(rows, 1)


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("dynamic", [False, True])
def test_indices_become_a_slice(kept: bool, dynamic: bool) -> None:
    x = torch.randint(0, 5, (6, 9)).float()
    if dynamic:
        torch._dynamo.mark_dynamic(x, 0)
    clean = (CONVERT, CatOfPieces(), CatOfColumns())
    result = rewrite(Fields(kept), [x], GatherEmbeddings(), *clean, dynamic=None)
    assert result.count(".to") == 1
    assert result.count(".long") == 0
    assert result.count("narrow") == 1
    assert result.count("embedding") == 1
    result.check()

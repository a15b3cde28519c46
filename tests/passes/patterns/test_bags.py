"""Bags of embeddings: side by side, as sums of look-ups, and the other way round."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from passwright.passes.patterns.bags import BagAsSum, BatchBags, SumAsBag
from passwright.passes.testing import rewrite

BATCH, AS_SUM, AS_BAG = BatchBags(), BagAsSum(), SumAsBag()
LIFT = "aten.lift_fresh_copy.default"


def index(s: Any, *shape: int, dtype: torch.dtype = torch.int64) -> Any:
    """Numbers from 0 to 3."""
    return s.input(*shape, dtype=dtype)


def table(s: Any, rows: int = 4, width: int = 2, **kwargs: Any) -> Any:
    return s.input(rows, width, requires_grad=True, **kwargs)


def matches(s: Any, pattern: Any) -> int:
    view = s.view()
    ops = [view.read(node) for node in view.nodes()]
    return sum(len(list(pattern.matches(view, op))) for op in ops if type(op) in pattern.anchors)


# ---- side by side


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_of_many_tables(sketch: Any, applied: Any, mode: str) -> None:
    s = sketch()
    rows = [s.call(F.embedding_bag, index(s, 5, 3), table(s, n), mode=mode) for n in (4, 6, 5)]
    s.output(*(s.call(torch.cat, [row]) for row in rows))
    result = applied(s, BATCH)
    assert result.labels[0].startswith("batch_bags{members=3} @ ")
    joined = ["stack", LIFT, "reshape", "add", "cat", "reshape", "embedding_bag", "reshape"]
    assert sorted(result.calls) == sorted([*joined, "unbind", *["getitem"] * 3, *["cat"] * 3])


def test_sample_weights(sketch: Any, applied: Any) -> None:
    s = sketch()
    rows = []
    for rows_of_table in (4, 6):
        weights = s.input(5, 3, requires_grad=True)
        given = {"mode": "sum", "per_sample_weights": weights}
        rows.append(s.call(F.embedding_bag, index(s, 5, 3), table(s, rows_of_table), **given))
    s.output(*rows)
    assert applied(s, BATCH).count("embedding_bag") == 1


def test_one_table_with_padding(sketch: Any, applied: Any) -> None:
    s = sketch()
    weight = table(s)
    s.output(*(s.call(F.embedding_bag, index(s, 5, 3), weight, padding_idx=1) for _ in range(2)))
    result = applied(s, BATCH)
    assert result.count("embedding_bag") == 1
    assert result.count("cat") == result.count(LIFT) == 0


class Flat(nn.Module):
    """Flat indices with offsets, of other lengths in each field."""

    def __init__(self, mode: str, weighted: bool) -> None:
        super().__init__()
        self.weighted = weighted
        self.bags = nn.ModuleList(nn.EmbeddingBag(rows, 4, mode=mode) for rows in (5, 9, 7))

    def forward(self, *given: Tensor) -> list[Tensor]:
        fields = [given[i : i + 3] for i in range(0, len(given), 3)]
        return [
            torch.tanh(bag(places, offsets, weights if self.weighted else None))
            for bag, (places, offsets, weights) in zip(self.bags, fields, strict=True)
        ]


@pytest.mark.parametrize(("mode", "weighted"), [("mean", False), ("sum", True), ("max", False)])
def test_offsets(mode: str, weighted: bool) -> None:
    inputs = []
    for length in (6, 9, 4):
        offsets = torch.tensor([0, 2, 2, 3])
        inputs += [torch.randint(0, 5, (length,)), offsets, torch.randn(length)]
    result = rewrite(Flat(mode, weighted), inputs, BATCH)
    assert result.count("embedding_bag") == 1
    result.check()


def test_batch_near_misses(sketch: Any, groups: Any) -> None:
    def found(second: Any) -> list[int]:
        s = sketch()
        s.output(s.call(F.embedding_bag, index(s, 5, 3), table(s)), second(s))
        return groups(s, BATCH)  # type: ignore[no-any-return]

    bag = F.embedding_bag
    assert found(lambda s: s.call(bag, index(s, 5, 3), table(s, 9))) == [2]
    assert found(lambda s: s.call(bag, index(s, 5, 3), table(s), mode="sum")) == []
    assert found(lambda s: s.call(bag, index(s, 5, 3), table(s, width=3))) == []
    assert found(lambda s: s.call(bag, index(s, 5, 3), table(s, dtype=torch.float64))) == []
    assert found(lambda s: s.call(bag, index(s, 5, 4), table(s))) == []
    assert found(lambda s: s.call(bag, index(s, 5, 3), table(s), padding_idx=0)) == []
    assert found(lambda s: s.call(bag, index(s, 5, 3), table(s), sparse=True)) == []
    assert found(lambda s: s.call(bag, index(s, 5, 3, dtype=torch.int32), table(s))) == []
    assert found(lambda s: s.call(bag, index(s, 15), table(s), index(s, 5))) == []


@pytest.mark.parametrize("pattern", [BATCH, AS_SUM], ids=lambda p: p.name())
def test_dynamic_batch(pattern: Any) -> None:
    class Bags(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bags = nn.ModuleList(nn.EmbeddingBag(rows, 4) for rows in (5, 9))

        def forward(self, x: Tensor) -> list[Tensor]:
            fields = x.split(3, 1)
            return [torch.tanh(bag(places)) for bag, places in zip(self.bags, fields, strict=True)]

    x = torch.randint(0, 5, (6, 6))
    torch._dynamo.mark_dynamic(x, 0)
    result = rewrite(Bags(), [x], pattern, dynamic=None)
    assert result.count("embedding_bag") == (pattern is BATCH)
    result.check()


# ---- as a sum


@pytest.mark.parametrize("mode", ["sum", "mean"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_as_sum(sketch: Any, applied: Any, mode: str, dtype: torch.dtype) -> None:
    s = sketch()
    s.output(s.call(F.embedding_bag, index(s, 5, 3), table(s, dtype=dtype), mode=mode))
    assert applied(s, AS_SUM).calls == ["embedding", mode]


def test_weighted_as_sum(sketch: Any, applied: Any) -> None:
    s = sketch()
    given = {"mode": "sum", "per_sample_weights": s.input(5, 3, requires_grad=True)}
    s.output(s.call(F.embedding_bag, index(s, 5, 3), table(s), **given))
    assert applied(s, AS_SUM).calls == ["embedding", "unsqueeze", "mul", "sum"]


def test_as_sum_refuses(sketch: Any) -> None:
    def found(*shape: int, autocast: bool = False, **given: Any) -> bool:
        s = sketch()
        dtype = given.pop("dtype", torch.float32)
        if given.pop("weighted", False):
            given |= {"mode": "sum", "per_sample_weights": s.input(*shape, dtype=dtype)}
        offsets = index(s, 4) if len(shape) == 1 else None
        s.output(s.call(F.embedding_bag, index(s, *shape), table(s, dtype=dtype), offsets, **given))
        with torch.autocast("cpu", enabled=autocast):
            return matches(s, AS_SUM) == 1

    assert found(5, 3)
    assert found(5, 3, weighted=True)
    assert found(5, 3, dtype=torch.bfloat16)
    assert not found(5, 3, dtype=torch.bfloat16, weighted=True)
    assert not found(5, 3, mode="max")
    assert not found(5, 3, padding_idx=1)
    assert not found(15)
    assert not found(5, 3, autocast=True)


# ---- a sum as a bag


@pytest.mark.parametrize("mode", ["sum", "mean"])
@pytest.mark.parametrize("keepdim", [True, False])
def test_as_bag(sketch: Any, applied: Any, mode: str, keepdim: bool) -> None:
    s = sketch()
    rows = s.call(F.embedding, index(s, 5, 3), table(s))
    s.output(s.call(mode, rows, 1, keepdim))
    assert applied(s, AS_BAG).calls == ["embedding_bag", *(["unsqueeze"] if keepdim else [])]


def test_as_bag_refuses(sketch: Any) -> None:
    def found(change: str) -> bool:
        s = sketch()
        shape = (5, 3, 2) if change == "rank" else (5, 0) if change == "empty" else (5, 3)
        padding = 1 if change == "padding" else None
        rows = s.call(F.embedding, index(s, *shape), table(s), padding)
        summed = s.call("amax" if change == "max" else "sum", rows, 2 if change == "dim" else 1)
        s.output(summed, *([rows] if change == "other user" else []))
        with torch.autocast("cpu", enabled=change == "autocast"):
            return matches(s, AS_BAG) == 1

    assert found("nothing")
    for change in ("rank", "empty", "padding", "max", "dim", "other user", "autocast"):
        assert not found(change), change

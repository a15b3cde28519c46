"""Linears of cats, and sums of Linears."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from passwright.passes.dialect import Dialect
from passwright.passes.patterns import LinearOfCat, LinearsAdded
from passwright.passes.testing import rewrite

OF_CAT, ADDED = LinearOfCat(), LinearsAdded()


def observed(s: Any, *values: Any) -> None:
    """Outputs through an op, so that nobody sees the strides of the values themselves."""
    s.output(*(s.call(torch.cat, [value]) for value in values))


class Attention(nn.Module):
    """The target beside each step of a history."""

    def __init__(self, flat: bool, order: str) -> None:
        super().__init__()
        self.linear, self.flat, self.order = nn.Linear(4 * len(order), 5), flat, order

    def forward(self, target: Tensor, history: Tensor) -> Tensor:
        q = target.unsqueeze(1).expand(-1, history.shape[1], -1)
        parts = {"q": q, "k": history, "d": q - history, "p": q * history}
        x = torch.cat([parts[name] for name in self.order], -1)
        return torch.relu(self.linear(x.view(-1, x.shape[-1]) if self.flat else x))


@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("order", ["qkdp", "kqdp", "kdpq", "qkq", "kq"])
def test_target_attention(flat: bool, order: str) -> None:
    inputs = [torch.randn(3, 4, requires_grad=True), torch.randn(3, 7, 4, requires_grad=True)]
    result = rewrite(Attention(flat, order), inputs, OF_CAT)
    times = order.count("q")
    assert [label.split(" @ ")[0] for label in result.labels] == [
        f"linear_of_cat{{expanded={times}}}"
    ]
    assert (result.count("linear"), result.count("add")) == (1 + times, times)
    result.check()


def test_dynamic_batch() -> None:
    inputs = [torch.randn(6, 4, requires_grad=True), torch.randn(6, 7, 4, requires_grad=True)]
    for value in inputs:
        torch._dynamo.mark_dynamic(value, 0)
    result = rewrite(Attention(True, "qkdp"), inputs, OF_CAT, dynamic=None)
    assert len(result.labels) == 1
    result.check()


@pytest.mark.parametrize(
    "how",
    ["all expanded", "none expanded", "columns expanded", "another dim", "seen", "written"],
)
def test_other_cats_stay(sketch: Any, applied: Any, how: str) -> None:
    s = sketch()
    q, k, w = (s.input(*shape) for shape in ((3, 1, 4), (3, 7, 4), (5, 8)))
    q = s.call(torch.relu, q)
    if how == "columns expanded":
        wide = s.call("expand", s.input(3, 7, 1), 3, 7, 4)
    elif how == "none expanded":
        wide = k
    else:
        wide = s.call("expand", q, 3, 7, 4)
    other = wide if how == "all expanded" else k
    if how == "another dim":
        w = s.input(5, 4)
    joined = s.call(torch.cat, [wide, other], 1 if how == "another dim" else 2)
    if how == "written":
        s.call("add_", q, 1)
    result = s.call(F.linear, joined, w)
    observed(s, result, *([joined] if how == "seen" else []))
    assert applied(s, OF_CAT).labels == []


@pytest.mark.parametrize("shown", [True, False])
def test_cat_under_autocast(sketch: Any, shown: bool) -> None:
    """Where it is the caller's, the graph's types tell of it, and nobody foretells them."""
    s = sketch()
    q, k, w = (s.input(*shape) for shape in ((3, 1, 4), (3, 7, 4), (5, 8)))
    joined = s.call(torch.cat, [s.call("expand", q, 3, 7, 4), k], 2)
    if shown:
        cast = s.call(torch.amp.autocast_mode._enter_autocast, "cpu", torch.bfloat16, True, True)
    with torch.autocast("cpu", torch.bfloat16):
        result = s.call(F.linear, joined, w)
    if shown:
        s.call(torch.amp.autocast_mode._exit_autocast, cast)
    observed(s, result)
    view = s.view()
    assert len(list(OF_CAT.matches(view, view.read(result)))) == shown


# ---- sums of Linears


@pytest.mark.parametrize("dialect", list(Dialect))
@pytest.mark.parametrize("biases", [(True, True), (True, False), (False, True), (False, False)])
def test_sum_of_two(dialect: Dialect, biases: tuple[bool, bool]) -> None:
    first, second = nn.Linear(4, 5, bias=biases[0]), nn.Linear(3, 5, bias=biases[1])

    def fn(x: Tensor, y: Tensor) -> Tensor:
        return torch.relu(first(x) + second(y))

    inputs = [torch.randn(6, 4, requires_grad=True), torch.randn(6, 3, requires_grad=True)]
    result = rewrite(fn, inputs, ADDED, dialect=dialect)
    assert len(result.labels) == 1
    gemms = [name for name in result.calls if "linear" in name or "mm" in name]
    assert len(gemms) == 1
    result.check()


class Cell(nn.Module):
    """An LSTM cell, unrolled."""

    def __init__(self) -> None:
        super().__init__()
        self.input, self.hidden = nn.Linear(4, 12), nn.Linear(3, 12, bias=False)

    def forward(self, x: Tensor, h: Tensor, c: Tensor) -> Tensor:
        for step in x.unbind(1):
            i, f, g, o = (self.input(step) + self.hidden(h)).chunk(4, 1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
        return h


def test_gates_of_an_unrolled_cell() -> None:
    inputs = [torch.randn(6, 3, 4), torch.randn(6, 3), torch.randn(6, 3)]
    result = rewrite(Cell(), [value.requires_grad_() for value in inputs], ADDED)
    assert (len(result.labels), result.count("linear")) == (3, 3)
    result.check()


@pytest.mark.parametrize(
    "how", ["seen", "alpha", "sub", "broadcast", "bias", "types", "twice", "written", "write"]
)
def test_other_sums_stay(sketch: Any, applied: Any, how: str) -> None:
    s = sketch()
    x, y = s.call(torch.relu, s.input(6, 4)), s.input(1 if how == "broadcast" else 6, 3)
    v, w = s.input(5, 4), s.input(5, 3)
    first = s.call(F.linear, x, v, s.input(1) if how == "bias" else None)
    second = first if how == "twice" else s.call(F.linear, y, w)
    if how == "types":
        second = s.call(F.linear, *(s.input(*n, dtype=torch.float64) for n in ((6, 3), (5, 3))))
    if how in ("written", "write"):
        s.call("add_", first if how == "written" else x, 1)
    function = torch.sub if how == "sub" else torch.add
    total = s.call(function, first, second, **({"alpha": 2} if how == "alpha" else {}))
    observed(s, total, *([first] if how == "seen" else []))
    assert applied(s, ADDED).labels == []


def test_sum_under_autocast(sketch: Any) -> None:
    s = sketch()
    operands = [s.input(*shape) for shape in ((6, 4), (5, 4), (5,), (6, 3), (5, 3), (5,))]
    cast = s.call(torch.amp.autocast_mode._enter_autocast, "cpu", torch.bfloat16, True, True)
    total = s.call(torch.add, s.call(F.linear, *operands[:3]), s.call(F.linear, *operands[3:]))
    s.call(torch.amp.autocast_mode._exit_autocast, cast)
    observed(s, total)
    view = s.view()
    assert len(list(ADDED.matches(view, view.read(total)))) == 1

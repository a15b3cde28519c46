"""Ops that change nothing."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from passwright.passes.dialect import Dialect
from passwright.passes.patterns.functionalize import OutOfPlace
from passwright.passes.patterns.identities import RemoveIdentity
from passwright.passes.testing import rewrite

IDENTITY = RemoveIdentity()


@pytest.mark.parametrize(
    "same",
    [
        lambda x: F.dropout(x, 0, True),
        lambda x: F.dropout(x, 0.5, False),
        lambda x: x.float(),
        lambda x: x.to(torch.float32),
        lambda x: x.contiguous(),
        lambda x: x.type_as(x),
    ],
)
def test_is_removed(same: Any) -> None:
    x = torch.randn(3, 4, requires_grad=True)
    result = rewrite(lambda x: torch.exp(same(torch.tanh(x))), [x], IDENTITY)
    assert result.after == ["tanh = tanh(l_x_)", "exp = exp(tanh)", "return (exp)"]
    result.check()


@pytest.mark.parametrize(
    "other",
    [
        lambda x: F.dropout(x, 0.5, True),
        lambda x: x.double(),
        lambda x: x.mT.contiguous(),
        lambda x: x.to(torch.float32, copy=True),
    ],
)
def test_what_changes_something_stays(other: Any) -> None:
    x = torch.randn(3, 4, requires_grad=True)
    result = rewrite(lambda x: torch.exp(other(torch.tanh(x))), [x], IDENTITY)
    assert result.after == result.before


def test_an_input_does_not_become_an_output() -> None:
    result = rewrite(lambda x: F.dropout(x, 0, True), [torch.randn(3)], IDENTITY)
    assert result.count("dropout") == 1


def test_two_outputs_stay_two() -> None:
    def fn(x: torch.Tensor) -> Any:
        y = torch.tanh(x)
        return y, F.dropout(y, 0, True)

    result = rewrite(fn, [torch.randn(3)], IDENTITY)
    assert result.count("dropout") == 1


def test_a_written_value_keeps_its_copy() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        y = torch.tanh(x)
        z = F.dropout(y, 0, True)
        y.add_(1)
        return torch.exp(z) + y

    result = rewrite(fn, [torch.randn(3)], IDENTITY)
    assert result.count("dropout") == 1


def test_what_is_seen_outside_is_not_copied_instead() -> None:
    """Compiled, a dropout that is off copies; a clone in its place would gain nothing."""

    def fn(x: torch.Tensor) -> torch.Tensor:
        return F.dropout(x, 0.5, False).mT

    result = rewrite(fn, [torch.randn(3, 4)], IDENTITY)
    assert result.after == result.before


def test_in_aten() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return torch.exp(torch.tanh(x).contiguous())

    result = rewrite(fn, [torch.randn(3)], IDENTITY, dialect=Dialect.ATEN)
    assert result.calls == ["aten.tanh.default", "aten.exp.default"]


def test_frees_an_in_place_op_before_it() -> None:
    """`Linear-ReLU(inplace)-Dropout(0)` as public models have it."""

    def fn(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return F.dropout(F.relu(F.linear(x, w), inplace=True), 0, True) * 2

    inputs = [torch.randn(3, 4), torch.randn(5, 4, requires_grad=True)]
    result = rewrite(fn, inputs, IDENTITY, OutOfPlace())
    assert result.calls == ["linear", "relu", "mul"]
    result.check()


def test_contiguous_behind_attention_stays() -> None:
    """Which kernel runs, and so how its result lies in memory, is decided later."""

    def fn(q: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, q, q).contiguous() * 2

    result = rewrite(fn, [torch.randn(2, 3, 5, 4)], IDENTITY)
    assert result.count(".contiguous") == 1

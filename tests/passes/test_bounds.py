"""Proofs that all numbers of a value are finite."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from passwright.passes.bounds import bound

CASES = [
    (lambda s, b: s.call("float", b), 1.0),
    (lambda s, b: s.call(torch.mul, s.call("float", b), -1e4), 1e4),
    (lambda s, b: s.call(torch.sub, 1.0, s.call("float", b)), 2.0),
    (lambda s, b: s.call(torch.add, s.call("float", b), s.call("float", b), alpha=3), 4.0),
    (lambda s, b: s.call(torch.neg, s.call("unsqueeze", s.call("float", b), 0)), 1.0),
    (lambda s, b: s.call(torch.maximum, s.call("float", b), s.call("half", b)), 1.0),
    (lambda s, b: s.call("masked_fill", s.call("float", b), b, -5.0), 5.0),
    (lambda s, b: s.call(torch.where, b, s.call("float", b), -7), 7.0),
    (lambda s, b: s.call("masked_fill", s.call("float", b), b, -math.inf), None),
    (lambda s, b: s.call(torch.where, b, s.call("float", b), math.inf), None),
    (lambda s, b: s.call(torch.mul, s.call("float", b), math.nan), None),
    (lambda s, b: s.call(torch.div, s.call("float", b), 3), None),
    (lambda s, b: s.call(torch.exp, s.call("float", b)), None),
    (lambda s, b: s.call(torch.mul, s.call("half", b), 6e4), None),
    (lambda s, b: s.call(torch.add, s.call("float", b), s.input(3)), None),
    (lambda s, b: s.call(torch.abs, s.call("view_as", s.input(3), b)), None),
]


@pytest.mark.parametrize(("make", "expected"), CASES)
def test_bound(sketch: Any, make: Any, expected: float | None) -> None:
    s = sketch()
    value = make(s, s.input(3, dtype=torch.bool))
    s.output(value)
    assert bound(s.view(), value) == expected


def test_numbers() -> None:
    assert bound(None, -3) == 3.0  # type: ignore[arg-type]
    assert bound(None, math.inf) is None  # type: ignore[arg-type]
    assert bound(None, "x") is None  # type: ignore[arg-type]


def test_written_value(sketch: Any) -> None:
    s = sketch()
    value = s.call("float", s.input(3, dtype=torch.bool))
    s.call("fill_", value, math.inf)
    s.output(value)
    assert bound(s.view(), value) is None

"""Products so small that a sum of products does as well."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from passwright.passes.dialect import Dialect
from passwright.passes.patterns.small_matmuls import SmallMatmulAsPointwise

SMALL = SmallMatmulAsPointwise()
aten = torch.ops.aten


def test_before_and_after(sketch: Any, applied: Any) -> None:
    s = sketch()
    x, y = s.input(50, 4, requires_grad=True), s.input(4, 3, requires_grad=True)
    s.output(s.call(torch.matmul, x, y))
    result = applied(s, SMALL)
    assert result.after == [
        "pw0_unsqueeze = unsqueeze(x0, 2)",
        "pw1_unsqueeze = unsqueeze(x1, 0)",
        "pw2_mul = mul(pw0_unsqueeze, pw1_unsqueeze)",
        "pw3_sum = sum(pw2_mul, [1], False)",
        "return (pw3_sum)",
    ]


def test_outer_product(sketch: Any, applied: Any) -> None:
    s = sketch()
    x, y = s.input(5, 40, 1, requires_grad=True), s.input(5, 1, 60, requires_grad=True)
    s.output(s.call(torch.bmm, x, y))
    assert applied(s, SMALL).after == ["pw0_mul = mul(x0, x1)", "return (pw0_mul)"]


@pytest.mark.parametrize(
    ("left", "right", "small"),
    [
        ((50, 4), (4, 3), True),
        ((50, 32), (32, 32), True),
        ((50, 33), (33, 2), False),
        ((50, 4), (4, 100), True),
        ((50, 5), (5, 100), False),
        ((7, 32, 8), (7, 8, 32), True),
        ((7, 33, 8), (7, 8, 32), False),
        ((7, 33, 4), (7, 4, 33), True),
        ((50, 0), (0, 3), False),
        ((1, 5, 4), (7, 4, 5), False),
        ((5, 4), (7, 4, 5), False),
        ((2, 3, 5, 4), (2, 3, 4, 5), False),
    ],
)
def test_sizes(sketch: Any, applied: Any, left: Any, right: Any, small: bool) -> None:
    s = sketch()
    x, y = s.input(*left, requires_grad=True), s.input(*right, requires_grad=True)
    s.output(s.call(torch.matmul, x, y))
    result = applied(s, SMALL)
    assert len(result.labels) == small


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_types(sketch: Any, applied: Any, dtype: torch.dtype) -> None:
    """In half precision products are not rounded before they are added up."""
    s = sketch()
    s.output(s.call(torch.matmul, s.input(50, 32, dtype=dtype), s.input(32, 3, dtype=dtype)))
    result = applied(s, SMALL, gradients=False)
    assert result.count("sum") == 1
    assert result.count(".to") == (0 if dtype is torch.float64 else 3)


def test_integers_and_writes(sketch: Any, applied: Any) -> None:
    s = sketch()
    x, y = (s.input(4, 4, dtype=torch.int64) for _ in range(2))
    z = s.call(torch.matmul, s.input(4, 4), s.input(4, 4))
    s.call("add_", z, 1)
    s.output(s.call(torch.matmul, x, y), z)
    assert applied(s, SMALL).labels == []


def test_transposed_operands(sketch: Any, applied: Any) -> None:
    s = sketch()
    x, y = s.input(4, 50), s.input(4, 3, stride=(1, 4))
    s.output(s.call(torch.matmul, s.call(torch.t, x), y))
    assert len(applied(s, SMALL).labels) == 1


def test_batches_in_aten_ir(sketch: Any, applied: Any) -> None:
    s = sketch(Dialect.ATEN)
    s.output(s.call(aten.bmm.default, s.input(7, 5, 4), s.input(7, 4, 6)))
    assert applied(s, SMALL).count("aten.sum.dim_IntList") == 1


def test_autocast(sketch: Any, applied: Any) -> None:
    s = sketch()
    cast = s.call(torch.amp.autocast_mode._enter_autocast, "cpu", torch.bfloat16, True, None)
    y = s.call(torch.matmul, s.input(5, 4), s.input(4, 6))
    s.call(torch.amp.autocast_mode._exit_autocast, cast)
    s.output(y)
    assert applied(s, SMALL).labels == []

"""Products whose sizes are rounded up."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import fx

from passwright.passes.dialect import Dialect
from passwright.passes.matching import Rewriter
from passwright.passes.patterns import padding
from passwright.passes.table import PatternTable

aten = torch.ops.aten


class PadLinearOfCat(padding.PadLinearOfCat):
    devices = frozenset({"cpu"})


class PadLinearOutputs(padding.PadLinearOutputs):
    devices = frozenset({"cpu"})


INPUTS, OUTPUTS = PadLinearOfCat(), PadLinearOutputs()


def linear(s: Any, widths: tuple[int, ...] = (7, 6), out: int = 16, **more: Any) -> fx.Node:
    """A Linear of a cat, returned in a way that shows no strides."""
    rows, bias = more.pop("rows", (3,)), more.pop("bias", True)
    # There is no gradient of fake tensors on a device that is not there.
    grad = more.get("device", "cpu") == "cpu" and more.get("dtype") is not torch.int64
    parts = [s.input(*rows, width, requires_grad=grad, **more) for width in widths]
    w, b = s.input(out, sum(widths), **more), s.input(out, **more) if bias else None
    if s.key == "example_value":
        return s.call(F.linear, s.call(torch.cat, parts, -1), w, b)
    cat, turned = s.call(aten.cat.default, parts, 1), s.call(aten.t.default, w)
    target, args = (aten.addmm.default, (b,)) if bias else (aten.mm.default, ())
    return s.call(target, *args, cat, turned)


def test_inputs(sketch: Any, applied: Any) -> None:
    s = sketch()
    s.output(linear(s))
    result = applied(s, INPUTS)
    assert [label.split(" @ ")[0] for label in result.labels] == ["pad_linear_of_cat{zeros=3}"]
    assert result.after == [
        "pw0_new_zeros = .new_zeros(x0, (3, 3))",
        "pw1_new_zeros = .new_zeros(x2, (16, 3))",
        "pw2_cat = cat([x2, pw1_new_zeros], dim=1)",
        "pw3_cat = cat([x0, x1, pw0_new_zeros], dim=1)",
        "pw4_linear = linear(pw3_cat, pw2_cat, x3)",
        "return (pw4_linear)",
    ]


def test_outputs(sketch: Any, applied: Any) -> None:
    s = sketch()
    s.output(s.call(torch.sum, linear(s, (8,), out=13), [0]))
    result = applied(s, OUTPUTS)
    assert [label.split(" @ ")[0] for label in result.labels] == ["pad_linear_outputs{zeros=3}"]
    assert result.count("narrow") == 1
    assert result.count("cat") == 3  # of the input, the weight, the bias


@pytest.mark.parametrize("dialect", list(Dialect))
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("pattern", [INPUTS, OUTPUTS])
def test_kinds(sketch: Any, applied: Any, dialect: Dialect, bias: bool, pattern: Any) -> None:
    s = sketch(dialect)
    s.output(linear(s, (7, 6), out=9, bias=bias))
    # Once padded, it is no candidate any more.
    assert len(applied(s, pattern).labels) == 1


def test_both_and_higher_ranks(sketch: Any, applied: Any) -> None:
    s = sketch()
    s.output(linear(s, (7, 6), out=9, rows=(2, 3)))
    assert len(applied(s, INPUTS, OUTPUTS).labels) == 2


@pytest.mark.parametrize(
    "case",
    [
        pytest.param({"widths": (10, 6)}, id="aligned"),
        pytest.param({"widths": (4, 3)}, id="few inputs"),
        pytest.param({"out": 7}, id="few outputs"),
        pytest.param({"dtype": torch.int64, "bias": False}, id="type"),
    ],
)
def test_refusals(sketch: Any, applied: Any, case: dict[str, Any]) -> None:
    s = sketch()
    s.output(linear(s, **case))
    assert applied(s, INPUTS).labels == []


def test_who_else_reads_the_cat(sketch: Any, applied: Any) -> None:
    s = sketch()
    y = linear(s)
    s.output(y, s.call(torch.sin, y.args[0]))
    assert applied(s, INPUTS).labels == []


def test_a_cat_of_rows(sketch: Any, applied: Any) -> None:
    s = sketch()
    x = s.call(torch.cat, [s.input(3, 13), s.input(2, 13)], 0)
    s.output(s.call(F.linear, x, s.input(16, 13)))
    assert applied(s, INPUTS).labels == []


def test_writes_between(sketch: Any, applied: Any) -> None:
    s = sketch()
    x, w = [s.input(3, 7), s.input(3, 6)], s.input(16, 13)
    y = s.call(torch.cat, x, 1)
    s.call("add_", x[0], 1)
    s.output(s.call(F.linear, y, w))
    assert applied(s, INPUTS).labels == []


def test_on_cuda_alone(sketch: Any) -> None:
    patterns = [padding.PadLinearOfCat(), padding.PadLinearOutputs()]
    for device, found in ("cpu", 0), ("cuda", 2):
        s = sketch()
        s.output(linear(s, out=9, device=device))
        assert len(Rewriter(s.view(), PatternTable(patterns)).candidates()) == found

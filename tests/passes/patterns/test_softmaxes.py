"""Softmaxes and reductions side by side."""

from __future__ import annotations

import operator
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from passwright.passes.dialect import Dialect
from passwright.passes.patterns.reductions import BatchReductions
from passwright.passes.patterns.softmaxes import BatchSoftmaxes
from passwright.passes.patterns.stack_unbind import StackOfPieces
from passwright.passes.testing import rewrite

aten = torch.ops.aten
SOFTMAX, REDUCE = BatchSoftmaxes(), BatchReductions()


def inputs(s: Any, *shape: int, count: int = 2, **kwargs: Any) -> list[Any]:
    return [s.input(*shape, requires_grad=True, **kwargs) for _ in range(count)]


def test_softmax(sketch: Any, applied: Any) -> None:
    s = sketch()
    x = inputs(s, 4, 6, count=3)
    values = [s.call(torch.softmax, x[0], -1), s.call(F.softmax, x[1], dim=1)]
    s.output(*(s.call(torch.tanh, v) for v in [*values, s.call("softmax", x[2], 1)]))
    result = applied(s, SOFTMAX)
    assert result.after[:3] == [
        "pw0_stack = stack([x0, x1, x2], dim=0)",
        "pw1_softmax = softmax(pw0_stack, 2)",
        "pw2_unbind = unbind(pw1_softmax, 0)",
    ]
    assert [label.split(" @ ")[0] for label in result.labels] == ["batch_softmaxes{members=3}"]
    assert len([line for line in result.diffs[0] if line.startswith("- ")]) == 3


def test_log_softmax(sketch: Any, applied: Any) -> None:
    s = sketch()
    s.output(*(s.call(torch.tanh, s.call(F.log_softmax, x, 0)) for x in inputs(s, 4, 6)))
    result = applied(s, SOFTMAX)
    assert result.count("log_softmax") == 1
    assert result.after[1] == "pw1_log_softmax = log_softmax(pw0_stack, 1)"


@pytest.mark.parametrize("log", [False, True])
def test_softmax_in_aten_ir(sketch: Any, applied: Any, log: bool) -> None:
    target = aten._log_softmax.default if log else aten._softmax.default
    s = sketch(Dialect.ATEN)
    values = [s.call(target, s.input(4, 6), 1, False) for _ in range(2)]
    s.output(*(s.call(aten.tanh.default, value) for value in values))
    assert applied(s, SOFTMAX).count(f"aten.{target._opname}.default") == 1


def test_softmax_to_another_type_in_aten_ir(sketch: Any, groups: Any) -> None:
    """`half_to_float` is an argument that only CUDA takes."""
    for half, expected in (False, [2]), (True, []):
        s = sketch(Dialect.ATEN)
        x = [s.input(4, 6, dtype=torch.float16, device="cuda" if half else "cpu") for _ in range(2)]
        s.output(*(s.call(aten._softmax.default, v, 1, half) for v in x))
        assert groups(s, SOFTMAX) == expected


@pytest.mark.parametrize(
    "other",
    [
        pytest.param({"dim": 0}, id="dim"),
        pytest.param({"shape": (4, 5)}, id="width"),
        pytest.param({"shape": (1, 4, 6), "dim": 2}, id="rank"),
        pytest.param({"dtype": torch.float64}, id="dtype"),
        pytest.param({"target": torch.log_softmax}, id="log"),
        pytest.param({"grad": False}, id="gradient"),
    ],
)
def test_softmax_near_misses(sketch: Any, groups: Any, other: dict[str, Any]) -> None:
    for change, expected in ({}, [2]), (other, []):
        s = sketch()
        values = []
        for case in {}, change:
            dtype, grad = case.get("dtype", torch.float32), case.get("grad", True)
            x = s.input(*case.get("shape", (4, 6)), dtype=dtype, requires_grad=grad)
            values.append(s.call(case.get("target", torch.softmax), x, case.get("dim", 1)))
        s.output(*values)
        assert groups(s, SOFTMAX) == expected


def test_one_input_or_no_dims(sketch: Any, groups: Any) -> None:
    s = sketch()
    x = s.input(4, 6)
    s.output(*(s.call(torch.softmax, x, 1) for _ in range(2)))
    assert groups(s, SOFTMAX) == []
    s = sketch()
    s.output(*(s.call(torch.softmax, v, 0) for v in inputs(s)))
    assert groups(s, SOFTMAX) == []


def test_writes(sketch: Any, groups: Any) -> None:
    for pattern, call in (SOFTMAX, (torch.softmax, 1)), (REDUCE, (torch.sum, 1)):
        s = sketch()
        x, y = inputs(s, 4, 6)
        z = s.call(torch.neg, y)
        s.call("add_", z, 1)
        s.output(*(s.call(call[0], v, call[1]) for v in (x, z)))
        assert groups(s, pattern) == [2]
        s = sketch()
        x, y = (s.call(torch.neg, v) for v in inputs(s, 4, 6))
        first = s.call(call[0], x, call[1])
        s.call("add_", x, 1)
        s.output(first, s.call(call[0], y, call[1]))
        assert groups(s, pattern) == []


def test_softmax_of_pieces(sketch: Any, applied: Any) -> None:
    """Gates of one wide Linear: nothing is copied."""
    s = sketch()
    x = s.input(4, 12, requires_grad=True)
    pieces = s.call(torch.split, x, 6, 1)
    gates = [s.call(torch.softmax, s.call(operator.getitem, pieces, i), 1) for i in range(2)]
    s.output(*(s.call(F.layer_norm, gate, [6]) for gate in gates))
    result = applied(s, SOFTMAX, StackOfPieces())
    assert result.count("stack") == 0
    assert result.count("softmax") == 1


def test_softmax_under_autocast() -> None:
    def run(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        with torch.autocast("cpu", torch.bfloat16):
            return [torch.softmax(x @ x, 1), torch.softmax(y @ y, 1)]

    result = rewrite(run, [torch.randn(4, 4), torch.randn(4, 4)], SOFTMAX)
    assert result.count("softmax") == 1
    result.check()


# ---- reductions


@pytest.mark.parametrize("function", ["sum", "mean", "amax", "amin"])
@pytest.mark.parametrize("dialect", Dialect)
def test_reductions(sketch: Any, applied: Any, function: str, dialect: Dialect) -> None:
    packet = getattr(aten, function)
    overload = {"sum": "dim_IntList", "mean": "dim"}.get(function, "default")
    torch_ir = dialect is Dialect.TORCH
    target = getattr(torch, function) if torch_ir else getattr(packet, overload)
    for shape, dims, keep in ((4, 6), [1], False), ((4, 3, 6), [-1, 0], True), ((4,), [0], False):
        s = sketch(dialect)
        x = [s.input(*shape, requires_grad=torch_ir) for _ in range(3)]
        s.output(*(s.call(target, value, dims, keep) for value in x))
        result = applied(s, REDUCE)
        assert result.labels[0].startswith("batch_reductions{members=3} @ ")
        name = function if torch_ir else f"aten.{function}.{overload}"
        assert result.count(name) == 1


def test_reduction_to_a_number(sketch: Any, applied: Any) -> None:
    s = sketch()
    s.output(*(s.call("sum", x) for x in inputs(s, 4, 6)))
    result = applied(s, REDUCE)
    assert "pw1_sum = sum(pw0_stack, [1, 2], False)" in result.after


@pytest.mark.parametrize(
    "other",
    [
        pytest.param({"function": torch.mean}, id="function"),
        pytest.param({"args": (0, False)}, id="dim"),
        pytest.param({"args": (1, True)}, id="keepdim"),
        pytest.param({"args": ()}, id="all dims"),
        pytest.param({"shape": (4, 7)}, id="shape"),
        pytest.param({"dtype": torch.float64}, id="dtype"),
        pytest.param({"grad": False}, id="gradient"),
    ],
)
def test_reduction_near_misses(sketch: Any, groups: Any, other: dict[str, Any]) -> None:
    for change, expected in ({}, [2]), (other, []):
        s = sketch()
        values = []
        for case in {}, change:
            dtype, grad = case.get("dtype", torch.float32), case.get("grad", True)
            x = s.input(*case.get("shape", (4, 6)), dtype=dtype, requires_grad=grad)
            values.append(s.call(case.get("function", torch.sum), x, *case.get("args", (1, False))))
        s.output(*values)
        assert groups(s, REDUCE) == expected


def test_reductions_that_stay(sketch: Any, groups: Any) -> None:
    """Without dims, of one value, in another type, under autocast."""
    s = sketch()
    s.output(*(s.call(torch.sum, x) for x in inputs(s)))
    assert groups(s, REDUCE) == []
    s = sketch()
    x = s.input(4, 6)
    s.output(s.call(torch.sum, x, 1), s.call(torch.sum, x, 1))
    assert groups(s, REDUCE) == []
    s = sketch()
    s.output(*(s.call(torch.sum, x, 1, dtype=torch.float64) for x in inputs(s, 4, 6)))
    assert groups(s, REDUCE) == []
    s = sketch()
    x = inputs(s, 4, 6)
    cast = s.call(torch.amp.autocast_mode._enter_autocast, "cpu", torch.bfloat16, True, True)
    values = [s.call(torch.sum, value, 1) for value in x]
    s.call(torch.amp.autocast_mode._exit_autocast, cast)
    s.output(*values)
    assert groups(s, REDUCE) == []


def test_dynamic_batch() -> None:
    values = [torch.randn(4, 6), torch.randn(4, 6)]
    for value in values:
        torch._dynamo.mark_dynamic(value, 0)

    def run(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        return [torch.softmax(v, 1).amax(1) for v in (x + y, x - y)]

    result = rewrite(run, values, SOFTMAX, REDUCE, dynamic=None)
    assert result.count("softmax") == result.count("amax") == 1
    result.check()

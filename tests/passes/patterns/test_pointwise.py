"""Pointwise ops side by side."""

from __future__ import annotations

import operator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from passwright.passes.dialect import Dialect
from passwright.passes.patterns.pointwise import BatchBinaries, BatchUnaries
from passwright.passes.testing import rewrite

aten = torch.ops.aten
UNARIES, BINARIES = BatchUnaries(), BatchBinaries()
WIDTHS = (1, 3, 5, 9, 17, 33)


def barrier(s: Any, *values: Any) -> None:
    """Outputs that no stride shows through."""
    s.output(*(s.call(torch.cat, [value, value]) for value in values))


# ---- one operand


@pytest.mark.parametrize("dialect", list(Dialect))
def test_unaries(sketch: Any, applied: Any, dialect: Dialect) -> None:
    s = sketch(dialect)
    tanh, cat = torch.tanh, torch.cat
    if dialect is Dialect.ATEN:
        tanh, cat = aten.tanh.default, aten.cat.default
    values = [s.call(tanh, s.input(5, 3)) for _ in range(3)]
    s.output(*(s.call(cat, [value, value]) for value in values))
    result = applied(s, UNARIES)
    assert [label.split(" @ ")[0] for label in result.labels] == ["batch_unaries{members=3}"]
    names = [name.removeprefix("aten.").partition(".")[0] for name in result.calls]
    stack = ["stack"] if dialect is Dialect.TORCH else [*["unsqueeze"] * 3, "cat"]
    assert names == [*stack, "tanh", "unbind", *["getitem"] * 3, *["cat"] * 3]


def test_unary_spellings(sketch: Any, applied: Any) -> None:
    s = sketch()
    x = [s.input(5, 3, requires_grad=True) for _ in range(12)]
    tanh = [s.call(f, v) for f, v in zip((torch.tanh, F.tanh, "tanh"), x, strict=False)]
    relu = [s.call(f, x[3]) for f in (torch.relu, "relu")] + [s.call(F.relu, x[4], False)]
    relu += [s.call(F.relu, x[5], inplace=False)]
    neg = [s.call(f, x[6 + i]) for i, f in enumerate((torch.neg, operator.neg, "neg"))]
    clamp = [s.call(torch.clamp, x[9], -1, 1), s.call("clamp", x[10], min=-1, max=1)]
    clamp += [s.call(torch.clip, x[11], max=1, min=-1)]
    barrier(s, *tanh, *relu, *neg, *clamp)
    sizes = sorted(label.split("=")[1][0] for label in applied(s, UNARIES).labels)
    assert sizes == ["3", "3", "3", "4"]


def test_parameters_are_part_of_the_key(sketch: Any, applied: Any, groups: Any) -> None:
    s = sketch()
    x = [s.input(5, 3) for _ in range(6)]
    barrier(
        s,
        s.call(torch.clamp, x[0], min=-1.0),
        s.call(torch.clamp, x[1], max=-1.0),
        s.call(F.gelu, x[2]),
        s.call(F.gelu, x[3], approximate="tanh"),
        s.call(F.leaky_relu, x[4], 0.0),
        s.call(F.leaky_relu, x[5], -0.0),
    )
    assert groups(s, UNARIES) == []


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param({}, {"dtype": torch.float64}, id="dtype"),
        pytest.param({}, {"shape": (3, 5)}, id="shape"),
        pytest.param({}, {"shape": (1, 5, 3)}, id="rank"),
        pytest.param({}, {"requires_grad": True}, id="gradient in one"),
    ],
)
def test_unary_near_misses(sketch: Any, groups: Any, first: Any, second: Any) -> None:
    s = sketch()
    cases = [{"shape": (5, 3), **case} for case in (first, second)]
    barrier(s, *(s.call(torch.tanh, s.input(*case.pop("shape"), **case)) for case in cases))
    assert groups(s, UNARIES) == []


def test_unary_of_one_value_is_no_batch(sketch: Any, groups: Any) -> None:
    s = sketch()
    x = s.input(5, 3)
    barrier(s, s.call(torch.tanh, x), s.call("tanh", x))
    assert groups(s, UNARIES) == []


def test_d11_a_write_between_members(sketch: Any, applied: Any, groups: Any) -> None:
    """t0 = tanh(y); y.add_(1); t1 = tanh(y): never one batch, not even through another value."""
    s = sketch()
    y, z = s.input(5, 3), s.input(5, 3)
    values = [s.call(torch.tanh, y), s.call(torch.tanh, z)]
    s.call("add_", y, 1)
    values += [s.call(torch.tanh, y), s.call(torch.tanh, z)]
    s.call("mul_", y, 2)
    values.append(s.call(torch.tanh, y))
    barrier(s, *values)
    assert groups(s, UNARIES) == [2, 2]
    # The two stacks are memory that nobody writes, so they may meet after all.
    assert applied(s, UNARIES).labels[-1].startswith("batch_unaries{members=2}")


def test_d11_captured() -> None:
    def run(y: Tensor) -> list[Tensor]:
        found = []
        for step in range(3):
            found.append(torch.tanh(y))
            y.add_(step)
        return found

    result = rewrite(run, [torch.randn(3, 4)], UNARIES)
    assert result.after == result.before
    result.check()


def test_members_that_are_overwritten(sketch: Any, groups: Any) -> None:
    s = sketch()
    values = [s.call(torch.sigmoid, s.input(5, 3)) for _ in range(3)]
    s.call("mul_", values[1], 2)
    s.call(operator.setitem, values[2], 0, 1.0)
    barrier(s, *values)
    assert groups(s, UNARIES) == []


def test_no_batch_across_grad_modes(sketch: Any, applied: Any, groups: Any) -> None:
    s = sketch()
    values = [s.call(torch.tanh, s.input(5, 3, requires_grad=True)) for _ in range(2)]
    s.call(torch._C._set_grad_enabled, False)
    values += [s.call(torch.tanh, s.input(5, 3, requires_grad=True)) for _ in range(3)]
    s.call(torch._C._set_grad_enabled, True)
    values += [s.call(torch.tanh, s.input(5, 3, requires_grad=True))]
    barrier(s, *values)
    assert groups(s, UNARIES) == [2, 3]
    applied(s, UNARIES)


def test_chain_forms_levels(sketch: Any, applied: Any, groups: Any) -> None:
    s = sketch()
    x = [s.input(5, 3, requires_grad=True) for _ in range(3)]
    chain = [s.call(torch.tanh, v) for v in x]
    chain = [s.call(torch.tanh, v) for v in chain[:2]] + chain[2:]
    barrier(s, *chain, s.call(torch.tanh, chain[0]))
    assert groups(s, UNARIES) == [3, 2]
    assert applied(s, UNARIES).count("tanh") == 3


def test_outputs_keep_strides_and_own_memory(sketch: Any, applied: Any) -> None:
    s = sketch()
    s.output(*(s.call(torch.tanh, s.input(5, 3)) for _ in range(2)))
    result = applied(s, UNARIES)
    assert result.count("clone") == 2
    a, b = result.module(*result.inputs)
    assert a.untyped_storage().data_ptr() != b.untyped_storage().data_ptr()


def test_transposed_inputs_that_nobody_sees(sketch: Any, applied: Any) -> None:
    s = sketch()
    barrier(s, *(s.call(torch.tanh, s.input(5, 3, stride=(1, 5))) for _ in range(2)))
    assert len(applied(s, UNARIES).labels) == 1


def test_early_user_sinks(sketch: Any, applied: Any) -> None:
    s = sketch()
    x = s.input(5, 3, requires_grad=True)
    early = s.call(torch.sin, s.call(torch.tanh, x))
    late = s.call(torch.exp, x)
    barrier(s, early, s.call(torch.tanh, late))
    calls = applied(s, UNARIES).calls
    assert calls.index("sin") > calls.index("exp")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64, torch.int64, torch.bool])
def test_unary_types(sketch: Any, applied: Any, dtype: torch.dtype) -> None:
    """The result's type is torch's business: integers become float32."""
    s = sketch()
    values = [s.call(torch.sigmoid, s.input(5, 3, dtype=dtype)) for _ in range(3)]
    barrier(s, *values)
    assert len(applied(s, UNARIES).labels) == 1


# ---- two operands


BINARY_CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "add": (torch.add, {}),
    "add alpha=2": (torch.add, {"alpha": 2}),
    "sub alpha=-4": (torch.sub, {"alpha": -4}),
    "method sub": ("sub", {}),
    "operator mul": (operator.mul, {}),
    "div": (torch.div, {}),
    "div floor": (torch.div, {"rounding_mode": "floor"}),
    "maximum": (torch.maximum, {}),
    "minimum": ("minimum", {}),
}


@pytest.mark.parametrize("case", BINARY_CASES)
def test_binaries_are_bitwise(sketch: Any, applied: Any, case: str) -> None:
    """Also at widths that fill no vector register: see `BatchUnaries` for why that matters."""
    target, given = BINARY_CASES[case]
    for dtype in torch.float32, torch.bfloat16, torch.float16, torch.float64:
        s = sketch()
        values = []
        for width in WIDTHS:
            pairs = [[s.input(width, dtype=dtype) for _ in "ab"] for _ in range(3)]
            values += [s.call(target, *pair, **given) for pair in pairs]
        barrier(s, *values)
        result = applied(s, BINARIES)
        assert result.bitwise
        assert len(result.labels) == len(WIDTHS)


@pytest.mark.parametrize("dialect", list(Dialect))
def test_d10_all_arguments_are_kept(sketch: Any, applied: Any, dialect: Dialect) -> None:
    s = sketch(dialect)
    sub, cat = (
        (torch.sub, torch.cat) if dialect is Dialect.TORCH else (aten.sub.Tensor, aten.cat.default)
    )
    values = [s.call(sub, s.input(4, 3), s.input(4, 3), alpha=2) for _ in range(5)]
    values += [s.call(sub, s.input(4, 3), s.input(4, 3)) for _ in range(3)]
    values += [s.call(sub, s.input(4, 3), s.input(4, 3), alpha=-1) for _ in range(2)]
    s.output(*(s.call(cat, [value, value]) for value in values))
    result = applied(s, BINARIES)
    sizes = sorted(label.split("=")[1][0] for label in result.labels)
    assert sizes == ["2", "3", "5"]
    assert sum("alpha=2" in line for line in result.after) == 1
    assert sum("alpha=-1" in line for line in result.after) == 1


def test_binary_spellings(sketch: Any, applied: Any) -> None:
    s = sketch()
    targets = [torch.sub, operator.sub, "sub", torch.subtract, "subtract"]
    pairs = [(s.input(5, 3, requires_grad=True), s.input(5, 3)) for _ in range(8)]
    values = [s.call(f, *pair) for f, pair in zip(targets, pairs, strict=False)]
    values.append(s.call(torch.sub, input=pairs[5][0], other=pairs[5][1]))
    values.append(s.call(torch.sub, pairs[6][0], other=pairs[6][1], alpha=1))
    barrier(s, *values)
    assert applied(s, BINARIES).labels[0].startswith("batch_binaries{members=7}")


def test_alpha_that_rounds_is_left_alone(sketch: Any, groups: Any) -> None:
    s = sketch()
    ops = [s.call(torch.add, s.input(5), s.input(5), alpha=0.3) for _ in range(3)]
    barrier(s, *ops)
    assert groups(s, BINARIES) == []


@pytest.mark.parametrize(
    ("left", "right"),
    [((4, 3), (3,)), ((3,), (4, 3)), ((4, 1), (1, 3)), ((4, 3), ()), ((2, 4, 3), (4, 1)),
     ((1,), (4, 2, 3))],
)  # fmt: skip
@pytest.mark.parametrize("shared", ["none", "left", "right"])
def test_broadcasting(sketch: Any, applied: Any, left: Any, right: Any, shared: str) -> None:
    """Dims meet from the right, so a shorter operand gets its new dims between batch and rest."""
    s = sketch()
    one = {"left": s.input(*left, requires_grad=True), "right": s.input(*right)}
    values = []
    for _ in range(4):
        a = one["left"] if shared == "left" else s.input(*left, requires_grad=True)
        b = one["right"] if shared == "right" else s.input(*right)
        values.append(s.call(torch.mul, a, b))
    barrier(s, *values)
    result = applied(s, BINARIES)
    assert result.count("mul") == 1
    assert result.count("stack") == (2 if shared == "none" else 1)


def test_scalars(sketch: Any, applied: Any) -> None:
    s = sketch()
    x = [s.input(5, 3) for _ in range(10)]
    barrier(
        s,
        *(s.call(torch.mul, v, 2) for v in x[:3]),
        s.call(operator.mul, x[3], 2),
        s.call(operator.mul, x[4], 3),
        *(s.call(operator.sub, 1, v) for v in x[5:7]),
        *(s.call(operator.sub, v, 1) for v in x[7:9]),
        s.call(operator.sub, x[9], 1.0),
    )
    result = applied(s, BINARIES)
    sizes = sorted(label.split("=")[1][0] for label in result.labels)
    assert sizes == ["2", "2", "4"]


def test_types_and_promotion(sketch: Any, applied: Any, groups: Any) -> None:
    single, double, whole = torch.float32, torch.float64, torch.int64

    def sketched(*cases: tuple[torch.dtype, tuple[int, ...], torch.dtype, tuple[int, ...]]) -> Any:
        s = sketch()
        values = [
            s.call(torch.add, s.input(*a, dtype=first), s.input(*b, dtype=second))
            for first, a, second, b in cases
        ]
        barrier(s, *values)
        return s

    s = sketched(*[(single, (5,), double, (5,))] * 2, *[(double, (5,), single, (5,))] * 3)
    assert groups(s, BINARIES) == [2, 3]
    assert len(applied(s, BINARIES).labels) == 2
    # A tensor without dims takes the other's type; stacked it would be a vector and would not.
    assert groups(sketched(*[(single, (5,), double, ())] * 2), BINARIES) == []
    assert groups(sketched(*[(whole, (), single, (5,))] * 2), BINARIES) == []
    assert groups(sketched(*[(single, (5,), single, ())] * 2), BINARIES) == [2]
    assert len(applied(sketched(*[(whole, (5,), single, (5,))] * 2), BINARIES).labels) == 1
    # Index arithmetic and complex numbers are left alone.
    assert groups(sketched(*[(whole, (5,), whole, (5,))] * 2), BINARIES) == []
    assert groups(sketched(*[(torch.complex64, (5,), single, (5,))] * 2), BINARIES) == []


def test_one_operand_twice(sketch: Any, applied: Any) -> None:
    """x * x beside a * b: the places of the operands count, not which values stand there."""
    s = sketch()
    x, a, b = s.input(5, 3), s.input(5, 3), s.input(5, 3)
    barrier(s, s.call(torch.sub, x, x), s.call(torch.sub, a, b), s.call(torch.sub, b, a))
    assert applied(s, BINARIES).labels[0].startswith("batch_binaries{members=3}")


def test_equal_ops_are_no_batch(sketch: Any, groups: Any) -> None:
    s = sketch()
    x, y = s.input(5, 3), s.input(5, 3)
    barrier(s, s.call(torch.add, x, y), s.call(operator.add, x, y))
    assert groups(s, BINARIES) == []


def test_pairwise_products() -> None:
    """The pair loop of factorisation machines: every product at once."""

    def run(x: Tensor) -> Tensor:
        fields = x.unbind(1)
        products = [a * b for i, a in enumerate(fields) for b in fields[:i]]
        return torch.stack(products, 1)

    for dialect, dynamic in (Dialect.TORCH, False), (Dialect.ATEN, False), (Dialect.TORCH, True):
        inputs = [torch.randn(4, 5, 3, requires_grad=dialect is Dialect.TORCH)]
        result = rewrite(run, inputs, BINARIES, dialect=dialect, dynamic=dynamic)
        assert sum("mul" in name for name in result.calls) == 1
        result.check()


def test_dynamic_and_autocast() -> None:
    def run(x: Tensor, y: Tensor, w: Tensor) -> list[Tensor]:
        with torch.autocast("cpu", torch.bfloat16):
            pairs = [(x @ w, y @ w), (y @ w, x @ w)]
            inside = [torch.sigmoid(a) - b.mT.mT * 2 for a, b in pairs]
        return [torch.tanh(value.float()) for value in (*inside, x, y)]

    inputs = [torch.randn(4, 3), torch.randn(4, 3), torch.randn(3, 3)]
    for dynamic in False, True:
        result = rewrite(run, inputs, UNARIES, BINARIES, dynamic=dynamic)
        assert {label.split("{")[0] for label in result.labels} == {
            "batch_unaries",
            "batch_binaries",
        }
        assert result.count("tanh") == result.count("sigmoid") == result.count("sub") == 1
        result.check()

"""Linears side by side: with inputs of their own, with one weight, with one input."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from passwright.passes.dialect import Dialect
from passwright.passes.patterns.linears import BatchLinears, TallLinears, WidenLinears
from passwright.passes.testing import rewrite

aten = torch.ops.aten
BATCH, TALL, WIDEN = BatchLinears(), TallLinears(), WidenLinears()
ALL = (BATCH, TALL, WIDEN)
PIECES = ["getitem", "getitem"]


def weights(s: Any, out: int, width: int, bias: bool = True, **kwargs: Any) -> tuple[Any, Any]:
    weight = s.input(out, width, requires_grad=True, **kwargs)
    return weight, s.input(out, requires_grad=True, **kwargs) if bias else None


def observed(s: Any, *values: Any) -> None:
    """Outputs through an op, so that nobody sees the strides of the values themselves."""
    s.output(*(s.call(torch.cat, [value]) for value in values))


# ---- before and after


def test_batch(sketch: Any, applied: Any) -> None:
    s = sketch()
    x, y, v, w = s.input(5, 3), s.input(5, 3), weights(s, 4, 3), weights(s, 4, 3)
    observed(s, s.call(F.linear, x, *v), s.call(torch._C._nn.linear, y, weight=w[0], bias=w[1]))
    result = applied(s, *ALL)
    assert result.labels[0].startswith("batch_linears{members=2} @ ")
    batch = ["stack", "stack", "stack", "permute", "unsqueeze", "baddbmm", "unbind"]
    assert sorted(result.calls) == sorted([*batch, *PIECES, "cat", "cat"])
    assert len([line for line in result.diffs[0] if line.startswith("- ")]) == 2


def test_batch_without_bias(sketch: Any, applied: Any) -> None:
    s = sketch()
    x, y, v, w = s.input(5, 3), s.input(5, 3), weights(s, 4, 3, False), weights(s, 4, 3, False)
    observed(s, s.call(F.linear, x, *v), s.call(F.linear, y, *w))
    found = applied(s, *ALL).calls
    assert sorted(found) == sorted(
        ["stack", "stack", "permute", "bmm", "unbind", *PIECES, *["cat"] * 2]
    )


def test_widen(sketch: Any, applied: Any) -> None:
    s = sketch()
    x, y = s.input(5, 3), [weights(s, 4, 3), weights(s, 2, 3)]
    observed(s, *(s.call(F.linear, x, *pair) for pair in y))
    assert applied(s, *ALL).calls == ["cat", "cat", "linear", "split", *PIECES, "cat", "cat"]


def test_tall(sketch: Any, applied: Any) -> None:
    s = sketch()
    x, y, w = s.input(2, 5, 3), s.input(2, 5, 3), weights(s, 4, 3)
    observed(s, *(s.call(F.linear, value, *w) for value in (x, y)))
    assert applied(s, *ALL).calls == ["stack", "linear", "unbind", *PIECES, "cat", "cat"]


@pytest.mark.parametrize("bias", [True, False])
def test_aten(sketch: Any, applied: Any, bias: bool) -> None:
    def linear(x: Any, w: Any, b: Any) -> Any:
        turned = s.call(aten.t.default, w)
        return s.call(aten.addmm.default, b, x, turned) if b else s.call(aten.mm.default, x, turned)

    for pattern, shared in (BATCH, (False, False)), (TALL, (False, True)), (WIDEN, (True, False)):
        s = sketch(Dialect.ATEN)
        inputs = [s.input(5, 3) for _ in range(3)]
        pairs = [(s.input(4, 3), s.input(4) if bias else None) for _ in range(3)]
        ops = [linear(inputs[i * (not shared[0])], *pairs[i * (not shared[1])]) for i in range(3)]
        s.output(*(s.call(aten.cat.default, [op, op]) for op in ops))
        found = applied(s, *ALL).calls
        gemms = [name for name in found if "mm" in name]
        expected = ["bmm", "baddbmm"] if pattern is BATCH else ["mm", "addmm"]
        assert gemms == [f"aten.{expected[bias]}.default"], pattern


def test_rows_of_rank_3_and_4(sketch: Any, applied: Any) -> None:
    for lead in (2, 5), (2, 1, 5):
        for pattern in ALL:
            s = sketch()
            x = [s.input(*lead, 3), s.input(*lead, 3)]
            w = [weights(s, 4, 3), weights(s, 4, 3)]
            first = s.call(F.linear, x[0], *w[0])
            second = s.call(F.linear, x[pattern is not WIDEN], *w[pattern is not TALL])
            observed(s, first, second)
            assert len(applied(s, pattern).labels) == 1


# ---- one input


class MMoE(nn.Module):
    """Experts of width 128 and gates of width 8, all on one input."""

    def __init__(self, gate_bias: bool) -> None:
        super().__init__()
        self.experts = nn.ModuleList(nn.Linear(16, 128) for _ in range(8))
        self.gates = nn.ModuleList(nn.Linear(16, 8, bias=gate_bias) for _ in range(3))

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        experts = torch.stack([torch.relu(expert(x)) for expert in self.experts], 1)
        gates = [torch.softmax(gate(x), -1).unsqueeze(1) for gate in self.gates]
        return tuple((gate @ experts).squeeze(1) for gate in gates)


@pytest.mark.parametrize("gate_bias", [True, False])
def test_widen_finds_all_linears_of_one_input(gate_bias: bool) -> None:
    result = rewrite(MMoE(gate_bias), [torch.randn(4, 16)], WIDEN)
    assert [label.split(" @ ")[0] for label in result.labels] == ["widen_linears{members=11}"]
    assert result.count("linear") == 1
    assert result.count(".new_zeros") == (not gate_bias)
    result.check()


def test_widen_gives_one_tensor_of_zeros_to_all_without_bias(sketch: Any, applied: Any) -> None:
    s = sketch()
    x = s.input(5, 3)
    shapes = [(4, False), (2, True), (1, False), (3, True)]
    observed(s, *(s.call(F.linear, x, *weights(s, out, 3, bias)) for out, bias in shapes))
    result = applied(s, WIDEN)
    zeros = [line for line in result.after if " = .new_zeros(" in line]
    assert len(zeros) == 1
    assert zeros[0].endswith(", (5))")


def test_own_inputs_means_distinct_inputs(sketch: Any, applied: Any, groups: Any) -> None:
    """Query, key and value of two inputs: three batches of two, or two wide GEMMs of three."""
    s = sketch()
    x, y = s.input(5, 3), s.input(5, 3)
    observed(s, *(s.call(F.linear, value, *weights(s, 4, 3)) for value in (x, x, x, y, y, y)))
    assert groups(s, BATCH) == [2, 2, 2]
    assert groups(s, WIDEN) == [3, 3]
    assert groups(s, TALL) == []
    # Two wide Linears have inputs of their own.
    result = applied(s, WIDEN, BATCH)
    assert result.count("linear") == 0
    assert result.count("baddbmm") > 0


def test_one_input_is_no_batch(sketch: Any, groups: Any) -> None:
    s = sketch()
    x = s.input(5, 3)
    observed(s, *(s.call(F.linear, x, *weights(s, 4, 3)) for _ in range(3)))
    assert groups(s, BATCH) == []


def test_tied_weights(sketch: Any, applied: Any, groups: Any) -> None:
    s = sketch()
    x = [s.input(5, 3) for _ in range(3)]
    v, w = weights(s, 4, 3), weights(s, 4, 3)
    observed(s, *(s.call(F.linear, a, *b) for a, b in zip(x, (v, v, w), strict=True)))
    assert (groups(s, BATCH), groups(s, TALL)) == ([3], [2])
    applied(s, BATCH)


def test_one_weight_alone_is_tall(sketch: Any, groups: Any) -> None:
    s = sketch()
    w = weights(s, 4, 3)
    observed(s, *(s.call(F.linear, s.input(5, 3), *w) for _ in range(3)))
    assert (groups(s, BATCH), groups(s, TALL)) == ([], [3])


# ---- what must not be batched


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param({}, {"dtype": torch.float64}, id="dtype"),
        pytest.param({}, {"out": 5}, id="width"),
        pytest.param({}, {"rows": 6}, id="rows"),
        pytest.param({}, {"bias": False}, id="bias in one"),
    ],
)
def test_batch_near_misses(sketch: Any, groups: Any, first: Any, second: Any) -> None:
    s = sketch()
    ops = []
    for case in first, second:
        case = {"dtype": torch.float32, "out": 4, "rows": 5, "bias": True, **case}
        x = s.input(case["rows"], 3, dtype=case["dtype"])
        w = weights(s, case["out"], 3, case["bias"], dtype=case["dtype"])
        ops.append(s.call(F.linear, x, *w))
    observed(s, *ops)
    assert [groups(s, pattern) for pattern in ALL] == [[], [], []]


def test_bias_that_broadcasts(sketch: Any, groups: Any) -> None:
    """torch takes a bias of size 1 for all features; a batch could not be told so."""
    for pattern, inputs in (BATCH, 2), (WIDEN, 1):
        s = sketch()
        x = [s.input(5, 3) for _ in range(inputs)]
        ops = [s.call(F.linear, x[-i], s.input(4, 3), s.input(1)) for i in (0, 1)]
        observed(s, *ops)
        assert groups(s, pattern) == []


def test_members_in_other_regions(sketch: Any, applied: Any, groups: Any) -> None:
    for pattern, one in (BATCH, False), (TALL, False), (WIDEN, True):
        for enter in "no_grad", "autocast":
            s = sketch()
            x, y = s.input(5, 3), s.input(5, 3)
            v, w = weights(s, 4, 3), weights(s, 4, 3)
            second = (x if one else y, *(v if pattern is TALL else w))
            outer = [s.call(F.linear, x, *v)]
            if enter == "no_grad":
                s.call(torch._C._set_grad_enabled, False)
            else:
                cast = s.call(
                    torch.amp.autocast_mode._enter_autocast, "cpu", torch.bfloat16, True, True
                )
            inner = [s.call(F.linear, x, *v), s.call(F.linear, *second)]
            if enter == "no_grad":
                s.call(torch._C._set_grad_enabled, True)
            else:
                s.call(torch.amp.autocast_mode._exit_autocast, cast)
            outer.append(s.call(F.linear, *second))
            observed(s, *outer, *inner)
            # The two inside, and no others: the outer two lie in regions of their own.
            assert groups(s, pattern) == [2], (pattern, enter)
            # Gradients of bfloat16 GEMMs agree to bfloat16's precision alone.
            assert len(applied(s, pattern, gradients=enter == "no_grad").labels) == 1


def test_dependent_members_form_levels(sketch: Any, applied: Any, groups: Any) -> None:
    s = sketch()
    values = [s.input(5, 3) for _ in range(3)]
    for _ in range(2):
        values = [s.call(torch.tanh, s.call(F.linear, v, *weights(s, 3, 3))) for v in values]
    s.output(*values)
    assert groups(s, BATCH) == [3, 3]
    assert len(applied(s, BATCH).labels) == 2


def test_write_between_members(sketch: Any, groups: Any) -> None:
    for pattern in ALL:
        for target in "weight", "input":
            s = sketch()
            x, y = s.input(5, 3), s.input(5, 3)
            v, w = s.input(4, 3), s.input(4, 3)
            second = (x if pattern is WIDEN else y, v if pattern is TALL else w)
            first = s.call(F.linear, x, v)
            s.call("add_", second[1] if target == "weight" else x, 1)
            observed(s, first, s.call(F.linear, *second))
            assert groups(s, pattern) == [], (pattern, target)


def test_write_before_all_members(sketch: Any, applied: Any) -> None:
    for pattern in ALL:
        s = sketch()
        x, y, v, w = s.input(5, 3), s.input(5, 3), s.input(4, 3), s.input(4, 3)
        s.call("add_", x, 1)
        s.call("mul_", v, 2)
        second = (x if pattern is WIDEN else y, v if pattern is TALL else w)
        observed(s, s.call(F.linear, x, v), s.call(F.linear, *second))
        assert len(applied(s, pattern).labels) == 1


def test_written_member_is_left_out(sketch: Any, applied: Any, groups: Any) -> None:
    s = sketch()
    x = s.input(5, 3)
    ops = [s.call(F.linear, x, *weights(s, 4, 3)) for _ in range(3)]
    s.call(F.relu, ops[0], inplace=True)
    s.output(*ops)
    assert groups(s, WIDEN) == [2]
    applied(s, WIDEN)


def test_gradient_for_some(sketch: Any, applied: Any, groups: Any) -> None:
    """Members that need no gradient stay apart: outputs keep their requires_grad."""
    s = sketch()
    x = s.input(5, 3)
    frozen = [s.call(F.linear, x, s.input(4, 3), s.input(4)) for _ in range(2)]
    trained = [s.call(F.linear, x, *weights(s, 4, 3)) for _ in range(3)]
    s.output(*frozen, *trained)
    assert groups(s, WIDEN) == [2, 3]
    applied(s, WIDEN)


# ---- observers and users


def test_members_that_are_outputs_keep_strides(sketch: Any, applied: Any) -> None:
    for pattern in ALL:
        s = sketch()
        x, y, v, w = s.input(5, 3), s.input(5, 3), weights(s, 4, 3), weights(s, 4, 3)
        second = (x if pattern is WIDEN else y, *(v if pattern is TALL else w))
        s.output(s.call(F.linear, x, *v), s.call(F.linear, *second))
        result = applied(s, pattern)  # compares strides and sharing
        assert result.count("clone") == 2
        a, b = result.module(*result.inputs)
        assert a.untyped_storage().data_ptr() != b.untyped_storage().data_ptr()


def test_early_users_sink_behind_later_inputs(sketch: Any, applied: Any) -> None:
    s = sketch()
    x, v, w = s.input(5, 3), weights(s, 4, 3), weights(s, 4, 3)
    first = s.call(F.linear, x, *v)
    early = s.call(torch.tanh, first)
    late = s.call(torch.sin, s.call(torch.exp, x))
    observed(s, early, s.call(F.linear, late, *w))
    found = applied(s, BATCH).calls
    assert found.index("tanh") > found.index("sin")


# ---- types and sizes


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_types(sketch: Any, applied: Any, dtype: torch.dtype) -> None:
    for pattern in ALL:
        s = sketch()
        x, y = s.input(5, 3, dtype=dtype), s.input(5, 3, dtype=dtype)
        v, w = weights(s, 4, 3, dtype=dtype), weights(s, 4, 3, dtype=dtype)
        second = (x if pattern is WIDEN else y, *(v if pattern is TALL else w))
        observed(s, s.call(F.linear, x, *v), s.call(F.linear, *second))
        assert len(applied(s, pattern).labels) == 1


class Branches(nn.Module):
    """Own inputs, one input and one weight, on matrices or sequences."""

    def __init__(self) -> None:
        super().__init__()
        self.own = nn.ModuleList(nn.Linear(3, 4) for _ in range(2))
        self.wide = nn.ModuleList(nn.Linear(3, out) for out in (5, 6))
        self.tied = nn.Linear(4, 2)

    def forward(self, x: Tensor, y: Tensor) -> Sequence[Tensor]:
        own = [layer(v) for layer, v in zip(self.own, (x, y), strict=True)]
        both = x + y
        wide = [layer(both) for layer in self.wide]
        return [torch.tanh(v) for v in (*(self.tied(v) for v in own), *wide)]


@pytest.mark.parametrize("shape", [(6, 3), (6, 2, 3)])
def test_dynamic_batch(shape: tuple[int, ...]) -> None:
    inputs = [torch.randn(shape), torch.randn(shape)]
    for value in inputs:
        torch._dynamo.mark_dynamic(value, 0)
    result = rewrite(Branches(), inputs, *ALL, dynamic=None)
    names = [label.split("{")[0] for label in result.labels]
    assert names == ["batch_linears", "tall_linears", "widen_linears"]
    result.check()


def test_two_symbolic_sizes_are_no_batch() -> None:
    """(batch, length, width) as rows of a matrix could not be told apart again."""
    inputs = [torch.randn(6, 2, 3), torch.randn(6, 2, 3)]
    result = rewrite(Branches(), inputs, *ALL, dynamic=True)
    assert [label.split("{")[0] for label in result.labels] == ["tall_linears", "widen_linears"]
    result.check()


def test_autocast_gives_the_same_values() -> None:
    def in_bfloat16(model: nn.Module) -> Callable[..., Any]:
        def run(x: Tensor, y: Tensor) -> Any:
            with torch.autocast("cpu", torch.bfloat16):
                return model(x, y)

        return run

    result = rewrite(in_bfloat16(Branches()), [torch.randn(6, 3), torch.randn(6, 3)], *ALL)
    assert len(result.labels) == 3
    result.check(gradients=False)  # they agree to bfloat16's precision alone
    assert all(out.dtype == torch.bfloat16 for out in result.module(*result.inputs))

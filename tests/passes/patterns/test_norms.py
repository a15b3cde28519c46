"""Layer norms side by side."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from passwright.passes.dialect import Dialect
from passwright.passes.patterns.norms import BatchLayerNorms
from passwright.passes.testing import rewrite

NORMS = BatchLayerNorms()


def norm(s: Any, x: Any, weight: bool = True, bias: bool = True, **kwargs: Any) -> Any:
    """A layer norm over the last dim with parameters of its own."""
    dtype = kwargs.pop("dtype", torch.float32)
    width = x.meta[s.key].shape[-1]
    w = s.input(width, dtype=dtype, requires_grad=True) if weight else None
    b = s.input(width, dtype=dtype, requires_grad=True) if bias else None
    return s.call(F.layer_norm, x, [width], w, b, **kwargs)


@pytest.mark.parametrize(
    ("weight", "bias", "affine"),
    [(True, True, ["mul", "add"]), (True, False, ["mul"]), (False, True, ["add"])],
)
def test_own_parameters(
    sketch: Any, applied: Any, weight: bool, bias: bool, affine: list[str]
) -> None:
    s = sketch()
    s.output(*(s.call(torch.tanh, norm(s, s.input(5, 6), weight, bias)) for _ in range(3)))
    result = applied(s, NORMS)
    assert [label.split(" @ ")[0] for label in result.labels] == ["batch_layer_norms{members=3}"]
    assert [name for name in result.calls if name in ("layer_norm", "mul", "add", "tanh")] == [
        "layer_norm",
        *affine,
        *["tanh"] * 3,
    ]
    assert result.count("stack") == 1 + len(affine)


def test_no_parameters_or_one_pair_for_all_is_bitwise(sketch: Any, applied: Any) -> None:
    for width in 1, 3, 8, 31:
        for tied in False, True:
            s = sketch()
            w, b = (s.input(width), s.input(width)) if tied else (None, None)
            values = [s.input(5, width, requires_grad=True) for _ in range(3)]
            values = [s.call(F.layer_norm, x, [width], w, b) for x in values]
            s.output(*(s.call(torch.neg, value) for value in values))
            result = applied(s, NORMS)
            assert result.calls == ["stack", "layer_norm", "unbind", *["getitem"] * 3, *["neg"] * 3]
            expected, actual = result.original(*result.inputs), result.module(*result.inputs)
            assert all(map(torch.equal, expected, actual))


def test_spellings(sketch: Any, applied: Any) -> None:
    s = sketch()
    w, b = s.input(6, requires_grad=True), s.input(6, requires_grad=True)
    x = [s.input(5, 6) for _ in range(5)]
    values = [
        s.call(F.layer_norm, x[0], (6,), w, b),
        s.call(F.layer_norm, x[1], normalized_shape=[6], weight=b, bias=w, eps=1e-5),
        s.call(F.layer_norm, input=x[2], normalized_shape=(6,), bias=b, weight=w),
        s.call(torch.layer_norm, x[3], [6], b, w),
        s.call(torch.layer_norm, x[4], [6], w, b, 1e-5, True),
    ]
    s.output(*(s.call(torch.tanh, value) for value in values))
    assert applied(s, NORMS).labels[0].startswith("batch_layer_norms{members=5}")


def test_several_normalised_dims(sketch: Any, applied: Any) -> None:
    for shape, normalised in ((2, 3, 4), (3, 4)), ((2, 3, 4), (2, 3, 4)), ((2, 5, 3, 4), (4,)):
        s = sketch()
        values = []
        for _ in range(3):
            w, b = (s.input(*normalised, requires_grad=True) for _ in range(2))
            values.append(s.call(F.layer_norm, s.input(*shape), normalised, w, b))
        s.output(*(s.call(torch.tanh, value) for value in values))
        assert len(applied(s, NORMS).labels) == 1


@pytest.mark.parametrize(
    "other",
    [
        pytest.param({"eps": 1e-6}, id="eps"),
        pytest.param({"weight": False}, id="no weight"),
        pytest.param({"bias": False}, id="no bias"),
        pytest.param({"shape": (5, 4)}, id="width"),
        pytest.param({"shape": (4, 6)}, id="rows"),
        pytest.param({"shape": (1, 5, 6)}, id="rank"),
        pytest.param({"input": torch.float64, "dtype": torch.float64}, id="dtype"),
        pytest.param({"input": torch.bfloat16}, id="dtype of the input"),
    ],
)
def test_near_misses(sketch: Any, groups: Any, other: dict[str, Any]) -> None:
    s = sketch()
    values = []
    for case in {}, other:
        case = dict(case)
        x = s.input(*case.pop("shape", (5, 6)), dtype=case.pop("input", torch.float32))
        values.append(norm(s, x, **case))
    s.output(*values)
    assert groups(s, NORMS) == []


def test_normalised_dims_are_part_of_the_key(sketch: Any, groups: Any) -> None:
    s = sketch()
    s.output(*(s.call(F.layer_norm, s.input(4, 6), dims) for dims in ([6], [4, 6])))
    assert groups(s, NORMS) == []


@pytest.mark.parametrize(
    ("input_type", "parameter_type"),
    [
        (torch.float64, torch.float64),
        (torch.bfloat16, torch.bfloat16),
        (torch.float16, torch.float16),
        (torch.bfloat16, torch.float32),
    ],
)
def test_types(
    sketch: Any, applied: Any, input_type: torch.dtype, parameter_type: torch.dtype
) -> None:
    """In half precision nothing is rounded before the bias is added: torch does not either."""
    s = sketch()
    values = [norm(s, s.input(5, 32, dtype=input_type), dtype=parameter_type) for _ in range(3)]
    s.output(*(s.call(torch.neg, value) for value in values))
    half = input_type.itemsize == 2
    result = applied(s, NORMS, gradients=not half)  # those agree to half precision alone
    assert len(result.labels) == 1
    expected, actual = result.original(*result.inputs), result.module(*result.inputs)
    if half:  # within one unit in the last place
        eps = torch.finfo(input_type).eps
        torch.testing.assert_close(actual, expected, rtol=eps, atol=eps / 16)
    assert {value.dtype for value in actual} == {value.dtype for value in expected}


def test_grad_modes_and_requires_grad(sketch: Any, applied: Any, groups: Any) -> None:
    s = sketch()
    x = [s.input(5, 6) for _ in range(6)]
    trained = [norm(s, value) for value in x[:2]]
    frozen = [s.call(F.layer_norm, value, [6], s.input(6), s.input(6)) for value in x[2:4]]
    s.call(torch._C._set_grad_enabled, False)
    silent = [norm(s, value) for value in x[4:]]
    s.call(torch._C._set_grad_enabled, True)
    s.output(*trained, *frozen, *silent)
    # `frozen` need no gradient, `silent` record none.
    assert groups(s, NORMS) == [2, 2, 2]
    applied(s, NORMS)


def test_write_between_members(sketch: Any, applied: Any, groups: Any) -> None:
    s = sketch()
    x, y, z = s.input(5, 6), s.input(5, 6), s.input(5, 6)
    w = [s.input(6) for _ in range(4)]
    values = [s.call(F.layer_norm, x, [6], w[0])]
    s.call("add_", x, 1)
    s.call("add_", w[2], 1)
    pairs = zip((x, y, z), w[1:], strict=True)
    values += [s.call(F.layer_norm, value, [6], weight) for value, weight in pairs]
    s.output(*values)
    assert groups(s, NORMS) == [3]
    applied(s, NORMS)


def test_levels_outputs_and_early_users(sketch: Any, applied: Any) -> None:
    s = sketch()
    x = [s.input(5, 6) for _ in range(2)]
    lower = [norm(s, value) for value in x]
    early = s.call(torch.tanh, lower[0])
    upper = [norm(s, early), norm(s, s.call(torch.sin, lower[1]))]
    s.output(*lower, *upper)
    result = applied(s, NORMS)
    assert len(result.labels) == 2
    assert result.count("clone") == 4


class Branches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(8) for _ in range(3))
        for parameter in self.parameters():
            nn.init.normal_(parameter)

    def forward(self, x: Tensor) -> Tensor:
        parts = torch.split(x, 8, -1)
        return torch.cat([f(part) for f, part in zip(self.norms, parts, strict=True)], -1)


class CastBranches(Branches):
    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return super().forward(x @ x.mT @ x)


@pytest.mark.parametrize(
    ("kind", "dynamic"), [(Branches, False), (Branches, True), (CastBranches, False)]
)
def test_modules(kind: type[nn.Module], dynamic: bool) -> None:
    x = torch.randn(4, 24)
    if dynamic:
        torch._dynamo.mark_dynamic(x, 0)
    result = rewrite(kind(), [x], NORMS, dynamic=None)
    assert [label.split(" @ ")[0] for label in result.labels] == ["batch_layer_norms{members=3}"]
    assert result.count("layer_norm") == 1
    result.check(gradients=kind is Branches)  # bfloat16's agree to its precision alone


def test_symbolic_eps_is_left_alone() -> None:
    """With dynamic=True Dynamo makes a module's floats inputs of the graph."""
    result = rewrite(Branches(), [torch.randn(4, 24)], NORMS, dynamic=True)
    assert result.count("layer_norm") in (1, 3)
    result.check()


def test_torch_ir_only() -> None:
    """AOTAutograd takes layer norms apart into ops that also return their statistics."""
    assert Dialect.ATEN not in NORMS.levels
    result = rewrite(Branches(), [torch.randn(4, 24)], NORMS, dialect=Dialect.ATEN)
    assert result.after == result.before
    assert result.count("aten.native_layer_norm.default") == 3

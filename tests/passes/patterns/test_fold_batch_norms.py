"""Batch norms of inference that become part of a product."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

from passwright.passes.dialect import Dialect
from passwright.passes.patterns.fold_batch_norms import FoldBatchNorm
from passwright.passes.testing import Rewritten, random_inputs, rewrite, rewrite_graph

FOLD = FoldBatchNorm()


def norm(s: Any, x: fx.Node, affine: str = "wb", **more: Any) -> fx.Node:
    width, dtype = x.meta[s.key].shape[1], more.pop("dtype", torch.float32)
    mean, var, w, b = (s.input(width, dtype=dtype) for _ in range(4))
    given = w if "w" in affine else None, b if "b" in affine else None
    return s.call(F.batch_norm, x, mean, var, *given, **({"training": False} | more))


def applied(s: Any) -> Rewritten:
    module = s.module()
    inputs = [value.abs() for value in random_inputs(module.graph)]
    result = rewrite_graph(module, inputs, FOLD)
    result.check(gradients=False)
    return result


def test_into_the_producer(sketch: Any) -> None:
    s = sketch()
    x, w, b = s.input(5, 4), s.input(6, 4), s.input(6)
    s.output(norm(s, s.call(F.linear, x, w, b)))
    result = applied(s)
    assert [label.split(" @ ")[0] for label in result.labels] == ["fold_batch_norm{into=producer}"]
    assert result.after == [
        "pw0_add = add(x4, 1e-05)",
        "pw1_rsqrt = rsqrt(pw0_add)",
        "pw2_mul = mul(pw1_rsqrt, x5)",
        "pw3_mul = mul(x3, pw2_mul)",
        "pw4_mul = mul(x2, pw2_mul)",
        "pw5_reshape = reshape(pw2_mul, [6, 1])",
        "pw6_mul = mul(x1, pw5_reshape)",
        "pw7_sub = sub(x6, pw3_mul)",
        "pw8_add = add(pw4_mul, pw7_sub)",
        "pw9_linear = linear(x0, pw6_mul, pw8_add)",
        "return (pw9_linear)",
    ]


def test_into_the_user(sketch: Any) -> None:
    s = sketch()
    x, w, b = s.input(5, 4), s.input(6, 4), s.input(6)
    s.output(s.call(F.linear, norm(s, s.call(torch.tanh, x)), w, b))
    result = applied(s)
    assert [label.split(" @ ")[0] for label in result.labels] == ["fold_batch_norm{into=user}"]
    assert result.count("batch_norm") == 0
    assert result.count("linear") == 2  # one of them of one row, of parameters


@pytest.mark.parametrize("affine", ["wb", "w", "b", ""])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("behind", [True, False])
@pytest.mark.parametrize("spatial", [0, 1, 2, 3])
def test_all_kinds(sketch: Any, affine: str, bias: bool, behind: bool, spatial: int) -> None:
    s = sketch()
    x = s.input(2, 4, *[5] * spatial)
    w, b = s.input(6, 4, *[2] * spatial), s.input(6) if bias else None
    call = [F.linear, F.conv1d, F.conv2d, F.conv3d][spatial]
    s.output(s.call(call, norm(s, x, affine), w, b) if behind else norm(
        s, s.call(call, x, w, b), affine
    ))  # fmt: skip
    result = applied(s)
    assert len(result.labels) == 1
    assert result.count("batch_norm") == 0


def test_padding_and_groups(sketch: Any) -> None:
    """Before the norm they change nothing; behind it zeros would be shifted as well."""
    for settings, folded in ({"padding": 1}, 1), ({"groups": 2}, 1), ({}, 2):
        s = sketch()
        width = 4 // settings.get("groups", 1)
        w = [s.input(4, width, 3) for _ in range(2)]
        x = s.call(F.conv1d, s.input(2, 4, 9), w[0], **settings)
        s.output(s.call(F.conv1d, norm(s, x), w[1], **settings))
        view = s.view()
        ops = [op for node in view.nodes() if type(op := view.read(node)) in FOLD.anchors]
        assert len([m for op in ops for m in FOLD.matches(view, op)]) == folded
        assert len(applied(s).labels) == 1


@pytest.mark.parametrize(
    "case", ["training", "gradient", "users", "rank", "half", "mixed", "region", "write", "output"]
)
def test_refusals(sketch: Any, case: str) -> None:
    s = sketch()
    dtype = {"half": torch.float16}.get(case, torch.float32)
    shape = (5, 6, 4) if case == "rank" else (5, 4)
    x, w = s.input(*shape, dtype=dtype), s.input(6, 4, dtype=dtype)
    if case == "gradient":
        x = s.input(*shape, requires_grad=True)
    if case == "mixed":
        x, w = s.input(5, 4, dtype=torch.bfloat16), s.input(6, 4, dtype=torch.bfloat16)
    y = s.call(F.linear, x, w)
    if case == "region":
        s.call(torch._C._set_grad_enabled, False)
    if case == "write":
        s.call("mul_", w, 2)
    more: dict[str, Any] = {"training": True} if case == "training" else {}
    z = norm(s, y, dtype=dtype, **more)
    if case == "region":
        s.call(torch._C._set_grad_enabled, True)
    s.output(z, *([y] if case == "output" else [s.call(torch.sin, y)] if case == "users" else []))
    view = s.view()
    ops = [op for node in view.nodes() if type(op := view.read(node)) in FOLD.anchors]
    assert len(ops) == 1
    assert not list(FOLD.matches(view, ops[0]))


def test_gradients_of_the_input_alone(sketch: Any) -> None:
    """Without grad mode, parameters that require grad are no obstacle."""
    s = sketch()
    w = s.input(6, 4, requires_grad=True)
    s.call(torch._C._set_grad_enabled, False)
    s.output(norm(s, s.call(F.linear, s.input(5, 4), w)))
    assert len(applied(s).labels) == 1


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(),
            nn.Linear(36, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.BatchNorm1d(8), nn.Linear(8, 2),
        )  # fmt: skip
        for part in self.modules():
            if isinstance(part, (nn.BatchNorm1d, nn.BatchNorm2d)):
                nn.init.normal_(part.running_mean)
                nn.init.uniform_(part.running_var)
                nn.init.normal_(part.weight)
                nn.init.normal_(part.bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


@pytest.mark.parametrize("dynamic", [False, True])
def test_modules(dynamic: bool) -> None:
    x = torch.randn(7, 3, 5, 5)
    if dynamic:
        torch._dynamo.mark_dynamic(x, 0)
    with torch.no_grad():
        result = rewrite(Net().eval(), [x], FOLD, dynamic=None)
        assert result.count("batch_norm") == 0
        result.check(gradients=False)
    assert rewrite(Net().eval(), [x], FOLD, dynamic=None).labels == []  # parameters need gradients


def test_torch_ir_only() -> None:
    assert frozenset({Dialect.TORCH}) == FOLD.levels


@pytest.mark.parametrize("behind", [True, False])
def test_bfloat16(sketch: Any, behind: bool) -> None:
    """What is made of the parameters is rounded once, and is no farther from the truth."""
    s, half = sketch(), torch.bfloat16
    x, w, b = s.input(64, 32, dtype=half), s.input(32, 32, dtype=half), s.input(32, dtype=half)
    y = norm(s, x, dtype=half) if behind else s.call(F.linear, x, w, b)
    s.output(s.call(F.linear, y, w, b) if behind else norm(s, y, dtype=half))
    module = s.module()
    inputs = [value.abs() for value in random_inputs(module.graph)]
    result = rewrite_graph(module, inputs, FOLD)
    assert len(result.labels) == 1
    (truth,) = result.original(*(value.double() for value in inputs))
    errors = [
        float((each(*inputs)[0].double() - truth).norm())
        for each in (result.original, result.module)
    ]
    assert errors[1] < 2 * errors[0]

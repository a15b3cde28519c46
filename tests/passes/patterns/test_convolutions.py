"""Convolutions: side by side, and those that are a matrix product."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from passwright.passes.dialect import Dialect
from passwright.passes.graph import GraphView
from passwright.passes.matching import Rewriter
from passwright.passes.pattern import Candidate
from passwright.passes.patterns.convolutions import PointwiseConvolutionAsMatmul, WidenConvolutions
from passwright.passes.table import PatternTable
from passwright.passes.testing import Rewritten, random_inputs, rewrite, text

WIDEN, POINTWISE = WidenConvolutions(), PointwiseConvolutionAsMatmul()


# ---- side by side


def test_widen(sketch: Any, applied: Any) -> None:
    s = sketch()
    x = s.input(2, 4, 9, requires_grad=True)
    w = [s.input(width, 4, 3, requires_grad=True) for width in (5, 6)]
    b = [s.input(5), s.input(6)]
    y = [s.call(F.conv1d, x, *pair, padding=1) for pair in zip(w, b, strict=True)]
    s.output(*(s.call(torch.sum, value, [0, 2]) for value in y))
    result = applied(s, WIDEN)
    assert [label.split(" @ ")[0] for label in result.labels] == ["widen_convolutions{members=2}"]
    assert result.after == [
        "pw0_cat = cat([x1, x2], dim=0)",
        "pw1_cat = cat([x3, x4], dim=0)",
        "pw2_conv1d = conv1d(x0, pw0_cat, pw1_cat, (1), (1), (1), 1)",
        "pw3_split = split(pw2_conv1d, [5, 6], dim=1)",
        "pw4_getitem = getitem(pw3_split, 0)",
        "pw5_getitem = getitem(pw3_split, 1)",
        "sum_1 = sum(pw4_getitem, [0, 2])",
        "sum_2 = sum(pw5_getitem, [0, 2])",
        "return (sum_1, sum_2)",
    ]


@pytest.mark.parametrize("spatial", [1, 2, 3])
def test_settings_and_spellings(sketch: Any, applied: Any, spatial: int) -> None:
    s = sketch()
    x = s.input(2, 3, *[7] * spatial, requires_grad=True)
    w = [s.input(width, 3, *[2] * spatial, requires_grad=True) for width in (2, 5)]
    name = f"conv{spatial}d"
    y = [
        s.call(getattr(F, name), x, w[0], None, 2, 1, 2),
        s.call(
            getattr(torch, name), x, w[1], stride=[2] * spatial, padding=[1] * spatial, dilation=2
        ),
    ]
    s.output(*y)
    assert applied(s, WIDEN).count(name) == 1


@pytest.mark.parametrize(
    "other",
    [
        pytest.param({"stride": 2}, id="stride"),
        pytest.param({"padding": 1}, id="padding"),
        pytest.param({"dilation": 2}, id="dilation"),
        pytest.param({"kernel": 1}, id="kernel"),
        pytest.param({"bias": True}, id="bias"),
        pytest.param({"groups": 2}, id="groups"),
        pytest.param({"input": True}, id="input"),
    ],
)
def test_near_misses(sketch: Any, groups: Any, other: dict[str, Any]) -> None:
    s = sketch()
    x, y = s.input(2, 4, 9), s.input(2, 4, 9)
    results = []
    for case in {}, dict(other):
        source = y if case.pop("input", False) else x
        b = s.input(6) if case.pop("bias", False) else None
        w = s.input(6, 4 // case.get("groups", 1), case.pop("kernel", 3))
        results.append(s.call(F.conv1d, source, w, b, **case))
    s.output(*results)
    assert groups(s, WIDEN) == []


def test_groups_are_left_alone(sketch: Any, groups: Any) -> None:
    s = sketch()
    x = s.input(2, 4, 9)
    s.output(*(s.call(F.conv1d, x, s.input(6, 2, 3), groups=2) for _ in range(2)))
    assert groups(s, WIDEN) == []


# ---- as a product


LINEAR = "pointwise_convolution_as_matmul{form=linear} "


def candidates(s: Any) -> list[Candidate]:
    return Rewriter(s.view(), PatternTable([POINTWISE])).candidates()


def once(s: Any, form: str) -> Rewritten:
    """Applies the candidate with this form."""
    module = s.module()
    original = copy.deepcopy(module)
    rewriter = Rewriter(GraphView(module.graph), PatternTable([POINTWISE]))
    (chosen,) = (c for c in rewriter.candidates() if f"form={form}" in c.label)
    rewriter.apply(chosen)
    rewriter.editor.finish()
    module.graph.lint()
    module.recompile()
    result = Rewritten(original, module, random_inputs(original.graph), [], text(module.graph))
    result.bitwise = False
    if module.graph.output_node().args[0][0].meta[s.key].dtype.itemsize >= 4:
        result.check()
    return result


def test_linear_form(sketch: Any) -> None:
    s = sketch()
    x, w, b = s.input(2, 4, 9, requires_grad=True), s.input(6, 4, 1), s.input(6)
    s.output(s.call(torch.sum, s.call(F.conv1d, x, w, b), [0, 2]))
    assert once(s, "linear").after == [
        "pw0_reshape = reshape(x1, [6, 4])",
        "pw1_permute = permute(x0, [0, 2, 1])",
        "pw2_linear = linear(pw1_permute, pw0_reshape, x2)",
        "pw3_permute = permute(pw2_linear, [0, 2, 1])",
        "sum_1 = sum(pw3_permute, [0, 2])",
        "return (sum_1)",
    ]


def test_matmul_form(sketch: Any) -> None:
    s = sketch()
    x, w, b = s.input(2, 4, 9), s.input(6, 4, 1, requires_grad=True), s.input(6)
    s.output(s.call(torch.sum, s.call(F.conv1d, x, w, b), [0, 2]))
    assert once(s, "matmul").after == [
        "pw0_reshape = reshape(x1, [6, 4])",
        "pw1_reshape = reshape(x2, [6, 1])",
        "pw2_matmul = matmul(pw0_reshape, x0)",
        "pw3_add = add(pw2_matmul, pw1_reshape)",
        "sum_1 = sum(pw3_add, [0, 2])",
        "return (sum_1)",
    ]


@pytest.mark.parametrize("form", ["linear", "matmul"])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize("spatial", [1, 2])
def test_strides_and_gradients(
    sketch: Any, form: str, bias: bool, last: bool, spatial: int
) -> None:
    """The result is seen from outside, and must lie in memory as it did."""
    s = sketch()
    shape = (2, 4, 9) if spatial == 1 else (2, 4, 3, 5)
    stride = (36, 1, 4) if spatial == 1 else (60, 1, 20, 4)
    x = s.input(*shape, requires_grad=True, stride=stride if last else None)
    w = s.input(6, 4, *[1] * spatial, requires_grad=True)
    call = F.conv1d if spatial == 1 else F.conv2d
    y = s.call(call, x, w, s.input(6) if bias else None)
    s.output(y)
    if form == "matmul" and last and spatial == 2:
        assert [c.label.partition("@")[0] for c in candidates(s)] == [LINEAR]
    else:
        once(s, form)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_types(sketch: Any, dtype: torch.dtype) -> None:
    s = sketch()
    x, w, b = (s.input(*shape, dtype=dtype) for shape in ((2, 4, 9), (6, 4, 1), (6,)))
    s.output(s.call(F.conv1d, x, w, b))
    # In half precision the sum would be rounded before the bias is added.
    assert len(candidates(s)) == (2 if dtype is torch.float64 else 1)
    result = once(s, "linear")
    (expected,), (actual,) = result.original(*result.inputs), result.module(*result.inputs)
    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(actual, expected, rtol=eps, atol=4 * eps)


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({"stride": 2}, id="stride"),
        pytest.param({"padding": 1}, id="padding"),
        pytest.param({"groups": 2}, id="groups"),
        pytest.param({"kernel": 3}, id="kernel"),
        pytest.param({"spatial": 3}, id="three dims"),
    ],
)
def test_what_is_no_product(sketch: Any, settings: dict[str, Any]) -> None:
    s = sketch()
    spatial, kernel = settings.pop("spatial", 1), settings.pop("kernel", 1)
    w = s.input(6, 4 // settings.get("groups", 1), *[kernel] * spatial)
    call = F.conv1d if spatial == 1 else F.conv3d
    s.output(s.call(call, s.input(2, 4, *[9] * spatial), w, **settings))
    assert candidates(s) == []


def test_autocast(sketch: Any) -> None:
    s = sketch()
    cast = s.call(torch.amp.autocast_mode._enter_autocast, "cpu", torch.bfloat16, True, None)
    y = s.call(F.conv1d, s.input(2, 4, 9), s.input(6, 4, 1))
    s.call(torch.amp.autocast_mode._exit_autocast, cast)
    s.output(y)
    assert candidates(s) == []


@pytest.mark.parametrize("kind", [nn.Conv1d, nn.Conv2d])
def test_dynamic_batch(kind: Any) -> None:
    x = torch.randn(5, 4, *([9] if kind is nn.Conv1d else [3, 4]))
    torch._dynamo.mark_dynamic(x, 0)
    model = nn.Sequential(kind(4, 6, 1), nn.ReLU())
    result = rewrite(model, [x], POINTWISE, dynamic=None)
    assert len(result.labels) == 1
    result.check()


def test_torch_ir_only() -> None:
    assert WIDEN.levels == POINTWISE.levels == frozenset({Dialect.TORCH})

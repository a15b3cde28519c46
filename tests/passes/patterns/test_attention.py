"""Attention written out, as one call."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from attention_graphs import (
    ATTENTION,
    FUSE,
    Steps,
    fused,
    hidden,
    matches,
    nothing,
    operands,
    scaled,
    written,
)

from passwright.passes.patterns.identities import RemoveIdentity

# ---- before and after


def test_text(sketch: Any, applied: Any) -> None:
    s = sketch()
    hidden(s, written(s, *operands(s, 2, 3), scaled))
    result = applied(s, FUSE)
    arguments = "attn_mask=None, is_causal=False, scale=0.5"
    assert result.before == [
        "transpose = .transpose(x1, -1, -2)",
        "matmul = matmul(x0, transpose)",
        "mul = mul(matmul, 0.5)",
        "softmax = softmax(mul, dim=-1)",
        "matmul_1 = matmul(softmax, x2)",
        "layer_norm = layer_norm(matmul_1, (6))",
        "return (layer_norm)",
    ]
    assert result.after == [
        "transpose = .transpose(x1, -1, -2)",
        "pw0_permute = permute(transpose, [0, 1, 3, 2])",
        f"pw1_{ATTENTION} = {ATTENTION}(x0, pw0_permute, x2, {arguments})",
        f"layer_norm = layer_norm(pw1_{ATTENTION}, (6))",
        "return (layer_norm)",
    ]
    assert [label.split(" @ ")[0] for label in result.labels] == ["fuse_attention{width=8}"]
    assert len([line for line in result.diffs[0] if line.startswith("- ")]) == 4


@pytest.mark.parametrize("lead", [(), (3,), (2, 3)])
def test_ranks_get_the_dims_that_kernels_want(
    sketch: Any, applied: Any, lead: tuple[int, ...]
) -> None:
    s = sketch()
    hidden(s, written(s, *operands(s, *lead), scaled))
    result = applied(s, FUSE)
    assert fused(result) == 1
    assert result.count("clone") == 0
    assert result.count("reshape") == 2 - len(lead)
    assert result.count("unsqueeze") == 3 * (2 - len(lead))


def test_five_dims_are_left_alone(sketch: Any, applied: Any) -> None:
    s = sketch()
    hidden(s, written(s, *operands(s, 2, 1, 3)))
    assert fused(applied(s, FUSE)) == 0


@pytest.mark.parametrize(
    ("between", "scale"),
    [
        (nothing, 1.0),
        (lambda s, x: s.call(torch.mul, 3, x), 3.0),
        (lambda s, x: s.call("div", x, math.sqrt(8)), 1 / math.sqrt(8)),
        (lambda s, x: s.call(torch.true_divide, scaled(s, x), 2), 0.25),
        (lambda s, x: s.call(F.dropout, scaled(s, x), 0.0), 0.5),
        (lambda s, x: s.call("double", s.call("double", scaled(s, x))), 0.5),
    ],
)
def test_scales(sketch: Any, applied: Any, between: Steps, scale: float) -> None:
    s = sketch()
    hidden(s, written(s, *operands(s, 2, 3, dtype=torch.float64), between))
    result = applied(s, FUSE)
    assert [line for line in result.after if f"scale={scale})" in line]


def test_scale_before_the_product(sketch: Any, applied: Any) -> None:
    s = sketch()
    q, k, v = operands(s, 2, 3)
    kt = s.call(torch.mul, s.call("transpose", k, -1, -2), 3.0)
    scores = s.call(torch.matmul, scaled(s, q), kt)
    hidden(s, s.call(torch.matmul, s.call(torch.softmax, scores, -1), v))
    result = applied(s, FUSE)
    assert fused(result) == 1
    assert result.count("mul") == 0
    assert [line for line in result.after if "scale=1.5)" in line]


def test_scaled_query_with_another_user_stays(sketch: Any, applied: Any) -> None:
    s = sketch()
    q, k, v = operands(s, 2, 3)
    q = scaled(s, q)
    hidden(s, written(s, q, k, v), q)
    result = applied(s, FUSE)
    assert fused(result) == result.count("mul") == 1
    assert [line for line in result.after if "scale=1.0)" in line]


@pytest.mark.parametrize(
    ("first", "second", "moves", "shapes"),
    [
        ("bhid,bhjd->bhij", "bhij,bhjd->bhid", False, [(2, 3, 5, 8), (2, 3, 7, 8), (2, 3, 7, 6)]),
        ("bihd,bjhd->bhij", "bhij,bjhd->bihd", True, [(2, 5, 3, 8), (2, 7, 3, 8), (2, 7, 3, 6)]),
        ("id,jd->ij", "ij,jd->id", False, [(5, 8), (7, 8), (7, 6)]),
    ],
)
def test_einsum(
    sketch: Any, applied: Any, first: str, second: str, moves: bool, shapes: list[tuple[int, ...]]
) -> None:
    s = sketch()
    q, k, v = (s.input(*shape, requires_grad=True) for shape in shapes)
    weights = s.call(torch.softmax, scaled(s, s.call(torch.einsum, first, q, k)), -1)
    hidden(s, s.call(torch.einsum, second, weights, v))
    result = applied(s, FUSE)
    assert fused(result) == 1
    assert result.count("einsum") == 0
    assert (result.count("permute") == 4) == moves


def test_mask_that_is_finite(sketch: Any, applied: Any) -> None:
    for shape in (5, 7), (2, 3, 5, 7), (2, 1, 1, 7):
        s = sketch()
        keep = s.input(*shape, dtype=torch.bool)
        mask = s.call(torch.mul, s.call("float", keep), -1e4)
        between: Steps = lambda s, x, mask=mask: s.call(torch.add, scaled(s, x), mask)  # noqa: E731
        hidden(s, written(s, *operands(s, 2, 3), between))
        assert fused(applied(s, FUSE)) == 1


def test_mask_gets_the_dim_of_heads(sketch: Any, applied: Any) -> None:
    s = sketch()
    mask = s.call("float", s.input(3, 5, 7, dtype=torch.bool))
    hidden(s, written(s, *operands(s, 3), lambda s, x: s.call(torch.add, mask, x)))
    assert fused(applied(s, FUSE)) == 1


# ---- refusals


def refusal(name: str, between: Steps | None = None, **kwargs: Any) -> Any:
    return pytest.param(between or nothing, kwargs, id=name)


def masked(dtype: torch.dtype, *shape: int) -> Steps:
    return lambda s, x: s.call(torch.add, x, s.input(*shape, dtype=dtype))


@pytest.mark.parametrize(
    ("between", "kwargs"),
    [
        refusal("dropout", after=lambda s, x: s.call(F.dropout, x, 0.5)),
        refusal("dropout of the scores", lambda s, x: s.call(F.dropout, x, 0.5)),
        refusal("other dim", dim=-2),
        refusal("other function", lambda s, x: s.call(torch.tanh, x)),
        refusal("scaled weights", after=scaled),
        refusal("scale is a tensor", lambda s, x: s.call(torch.mul, x, s.input(1))),
        refusal("divisor on the left", lambda s, x: s.call("__rtruediv__", x, 2.0)),
        refusal("divisor is zero", lambda s, x: s.call(torch.div, x, 0)),
        refusal("rounded", lambda s, x: s.call(torch.div, x, 2, rounding_mode="floor")),
        refusal("scale is infinite", lambda s, x: s.call(torch.mul, x, math.inf)),
        refusal("smaller type", lambda s, x: s.call("float", s.call("half", x))),
        refusal("integers", lambda s, x: s.call("float", s.call("int", x))),
        refusal("offset", lambda s, x: s.call(torch.add, x, 1.0)),
        refusal("mask of unknown size", masked(torch.float32, 5, 7)),
        refusal("mask is subtracted", lambda s, x: s.call(torch.sub, x, boolean(s, 5, 7))),
        refusal("mask with a factor", lambda s, x: s.call(torch.add, x, boolean(s, 5, 7), alpha=2)),
        refusal("scaled mask", lambda s, x: scaled(s, s.call(torch.add, x, boolean(s, 5, 7)))),
        refusal("mask of one dim", lambda s, x: s.call(torch.add, x, boolean(s, 7))),
        refusal("mask of three dims", lambda s, x: s.call(torch.add, x, boolean(s, 3, 5, 7))),
        refusal("two masks", lambda s, x: masked_twice(s, x)),
        refusal("minus infinity", lambda s, x: filled(s, x, -math.inf)),
        refusal("filled", lambda s, x: filled(s, x, -1e9)),
    ],
)
def test_refusals(sketch: Any, between: Steps, kwargs: dict[str, Any]) -> None:
    s = sketch()
    hidden(s, written(s, *operands(s, 2, 3), between, **kwargs))
    assert not matches(s)


def boolean(s: Any, *shape: int) -> Any:
    return s.call("float", s.input(*shape, dtype=torch.bool))


def masked_twice(s: Any, x: Any) -> Any:
    return s.call(torch.add, s.call(torch.add, x, boolean(s, 5, 7)), boolean(s, 5, 7))


def filled(s: Any, x: Any, value: float) -> Any:
    return s.call("masked_fill", x, s.input(5, 7, dtype=torch.bool), value)


def test_what_is_refused_is_accepted_otherwise(sketch: Any) -> None:
    """The graph that each refusal changes in one thing."""
    s = sketch()
    hidden(s, written(s, *operands(s, 2, 3)))
    assert len(matches(s)) == 1
    s = sketch()
    between: Steps = lambda s, x: s.call(torch.add, x, boolean(s, 5, 7))  # noqa: E731
    hidden(s, written(s, *operands(s, 2, 3), between))
    assert len(matches(s)) == 1


def test_a_row_without_keys_is_why_masks_must_be_finite() -> None:
    q, k, v = torch.rand(1, 1, 2, 4), torch.rand(1, 1, 3, 4), torch.rand(1, 1, 3, 4)
    mask = torch.full((2, 3), -math.inf)
    assert torch.softmax(q @ k.mT + mask, -1).isnan().all()
    assert F.scaled_dot_product_attention(q, k, v, mask).eq(0).all()


@pytest.mark.parametrize("where", ["scores", "scaled", "weights"])
def test_other_users(sketch: Any, where: str) -> None:
    s = sketch()
    q, k, v = operands(s, 2, 3)
    scores = s.call(torch.matmul, q, s.call("transpose", k, -1, -2))
    more = scaled(s, scores)
    weights = s.call(torch.softmax, more, -1)
    taken = {"scores": scores, "scaled": more, "weights": weights}[where]
    hidden(s, s.call(torch.matmul, weights, v), taken)
    assert not matches(s)


@pytest.mark.parametrize("where", ["query", "value", "scores", "weights"])
def test_writes(sketch: Any, where: str) -> None:
    s = sketch()
    q, k, v = operands(s, 2, 3)
    q, k, v = (s.call(torch.neg, x) for x in (q, k, v))
    scores = s.call(torch.matmul, q, s.call("transpose", k, -1, -2))
    more = scaled(s, scores)
    weights = s.call(torch.softmax, more, -1)
    written = {"query": q, "value": v, "scores": scores, "weights": weights}[where]
    s.call("add_", written, 1)
    hidden(s, s.call(torch.matmul, weights, v))
    assert not matches(s)


def test_broadcast_and_mixed_operands(sketch: Any) -> None:
    for lead in (1, 3), (3,), (2, 1):
        s = sketch()
        q, (_, k, v) = s.input(2, 3, 5, 8), operands(s, *lead)
        hidden(s, written(s, q, k, v))
        assert not matches(s), lead


def test_grad_modes(sketch: Any) -> None:
    s = sketch()
    q, k, v = operands(s, 2, 3)
    scores = s.call(torch.matmul, q, s.call("transpose", k, -1, -2))
    s.call(torch._C._set_grad_enabled, False)
    weights = s.call(torch.softmax, scores, -1)
    s.call(torch._C._set_grad_enabled, True)
    hidden(s, s.call(torch.matmul, weights, v))
    assert not matches(s)


# ---- who sees the result


def test_strides_that_are_seen_are_kept(sketch: Any, applied: Any) -> None:
    for use in ("output", "view", "two"):
        s = sketch()
        y = written(s, *operands(s, 2, 3), scaled)
        moved = s.call("transpose", y, 1, 2)
        if use == "output":
            s.output(y)
        elif use == "view":
            hidden(s, s.call("view", y, 2, 90))
        else:  # a reshape that may or may not copy, beside another value of the same memory
            s.output(s.call("contiguous", moved), s.call("contiguous", y))
        result = applied(s, FUSE)
        assert fused(result) == 1
        assert result.count("clone") == 1, use


def test_contiguous_stays_before_a_view(sketch: Any, applied: Any) -> None:
    """Whatever layout fake tensors tell of: another kernel may run in the end."""
    s = sketch()
    y = s.call("transpose", written(s, *operands(s, 2, 3), scaled), 1, 2)
    s.output(s.call("view", s.call("contiguous", y), 2, 5, 18))
    result = applied(s, FUSE, RemoveIdentity())
    assert fused(result) == result.count("clone") == result.count(".contiguous") == 1


def test_reshape_needs_no_copy(sketch: Any, applied: Any) -> None:
    s = sketch()
    y = s.call("transpose", written(s, *operands(s, 2, 3), scaled), 1, 2)
    hidden(s, s.call("reshape", y, 2, 5, 18))
    result = applied(s, FUSE, RemoveIdentity())
    assert fused(result) == 1
    assert result.count("clone") == 0


def test_contiguous_that_is_written(sketch: Any, applied: Any) -> None:
    """It may come to be the very memory of the attention's result."""
    s = sketch()
    y = s.call("transpose", written(s, *operands(s, 2, 3), scaled), 1, 2)
    packed = s.call("contiguous", y)
    s.call("add_", packed, 1)
    hidden(s, packed, y)
    assert applied(s, FUSE).count("clone") == 1

"""Einsums as products and as pointwise ops."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from passwright.passes.patterns.einsums import EinsumAsMatmul, EinsumAsPointwise
from passwright.passes.testing import rewrite

MATMUL, POINTWISE = EinsumAsMatmul(), EinsumAsPointwise()
SIZES = dict(zip("bchijkdn", (2, 3, 4, 5, 6, 7, 8, 9), strict=True))


def einsum(s: Any, equation: str, **kwargs: Any) -> Any:
    """The einsum of inputs with a size of its own for each letter."""
    labels = equation.partition("->")[0].split(",")
    values = [s.input(*(SIZES[c] for c in label), requires_grad=True, **kwargs) for label in labels]
    return s.call(torch.einsum, equation, *values)


def hidden(s: Any, *values: Any) -> None:
    """Outputs through an op with a layout of its own."""
    s.output(*(s.call(F.layer_norm, x, x.meta[s.key].shape[-1:]) for x in values))


def found(s: Any, pattern: Any) -> int:
    view = s.view()
    ops = [view.read(node) for node in view.nodes()]
    return sum(1 for op in ops if type(op) in pattern.anchors for _ in pattern.matches(view, op))


@pytest.mark.parametrize(
    ("equation", "calls"),
    [
        ("ij,jk->ik", ["matmul"]),
        ("bij,bjk->bik", ["matmul"]),
        ("bchk,kn->bchn", ["matmul"]),
        ("bij,bkj->bik", ["permute", "matmul"]),
        ("bij,kj->bik", ["permute", "matmul"]),
        ("bij,bik->bjk", ["permute", "matmul"]),
        ("bihd,bjhd->bhij", ["permute", "permute", "matmul"]),
        ("bhij,bjhd->bihd", ["permute", "matmul", "permute"]),
        ("ij,bjk->bik", ["permute", "reshape", "matmul", "reshape", "permute"]),
        ("bij,bj->bi", ["reshape", "matmul", "reshape"]),
        ("bj,bjk->bk", ["reshape", "matmul", "reshape"]),
        ("bj,bj->b", ["reshape", "reshape", "matmul", "reshape"]),
        ("bijk,bijn->bkn", ["permute", "reshape", "reshape", "matmul"]),
        ("bijk,bkdn->bijdn", ["reshape", "reshape", "matmul", "reshape"]),
        ("j,j->", ["reshape", "reshape", "matmul", "reshape"]),
        ("j,jk->k", ["reshape", "matmul", "reshape"]),
    ],
)
def test_as_matmul(sketch: Any, applied: Any, equation: str, calls: list[str]) -> None:
    s = sketch()
    value = einsum(s, equation)
    shape = value.meta[s.key].shape
    if shape:
        hidden(s, value)
    else:
        s.output(value)
    result = applied(s, MATMUL)
    moves = [name for name in result.calls if name != "layer_norm"]
    assert sorted(moves) == sorted(calls)


@pytest.mark.parametrize(
    ("equation", "calls"),
    [
        ("bi,bj->bij", ["reshape", "reshape", "mul"]),
        ("bhd,bnd->bhnd", ["reshape", "reshape", "mul"]),
        ("i,j->ij", ["reshape", "reshape", "mul"]),
        ("bi,bi->bi", ["mul"]),
        ("bi,ib->bi", ["permute", "mul"]),
        ("bi,bi,bi->bi", ["mul", "mul"]),
        ("bi,bi->b", ["mul", "sum"]),
        ("bij,bj->bi", ["reshape", "mul", "sum"]),
        ("bij,j->bi", ["reshape", "mul", "sum"]),
        ("bij,bik->bjk", ["permute", "permute", "reshape", "reshape", "mul", "sum"]),
        ("bij,bi->b", ["reshape", "mul", "sum"]),
    ],
)
def test_as_pointwise(sketch: Any, applied: Any, equation: str, calls: list[str]) -> None:
    s = sketch()
    hidden(s, einsum(s, equation))
    result = applied(s, POINTWISE)
    assert sorted(name for name in result.calls if name != "layer_norm") == sorted(calls)


def test_text(sketch: Any, applied: Any) -> None:
    s = sketch()
    s.output(einsum(s, "bij,bkj->bik"))
    result = applied(s, MATMUL)
    assert result.after == [
        "pw0_permute = permute(x1, [0, 2, 1])",
        "pw1_matmul = matmul(x0, pw0_permute)",
        "return (pw1_matmul)",
    ]
    assert [line[:2] for line in result.diffs[0]] == ["- ", "+ ", "+ "]
    s = sketch()
    s.output(einsum(s, "bi,bi->b"))
    assert applied(s, POINTWISE).after == [
        "pw0_mul = mul(x0, x1)",
        "pw1_sum = sum(pw0_mul, [1], False)",
        "return (pw1_sum)",
    ]


@pytest.mark.parametrize("equation", ["bi,bj->bij", "bij,bjk,bkn->bin", "bij->bi", "bij,bjk->bk"])
def test_no_product_of_matrices(sketch: Any, equation: str) -> None:
    """Nothing summed, three operands, one operand, a letter of one operand summed by itself."""
    s = sketch()
    hidden(s, einsum(s, equation))
    assert found(s, MATMUL) == 0


@pytest.mark.parametrize("equation", ["bik,kn->bin", "bij->bi"])
def test_no_pointwise_product(sketch: Any, equation: str) -> None:
    """A true product of matrices with long sums, one operand."""
    s = sketch()
    values = [s.input(2, 3, 9), s.input(9, 4)][: 1 + ("," in equation)]
    hidden(s, s.call(torch.einsum, equation, *values))
    assert found(s, POINTWISE) == 0


@pytest.mark.parametrize("pattern", [MATMUL, POINTWISE])
def test_refusals(sketch: Any, pattern: Any) -> None:
    def case(*shapes: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Any:
        s = sketch()
        values = [s.input(*shape, dtype=dtype) for shape in shapes]
        return s, s.call(torch.einsum, "bi,bi->b", *values)

    s, value = case((2, 5), (2, 5))
    s.output(value)
    assert found(s, pattern) == 1
    s, value = case((2, 5), (1, 5))  # broadcast
    s.output(value)
    assert found(s, pattern) == 0
    s, value = case((2, 5), (2, 5), dtype=torch.int64)
    s.output(value)
    assert found(s, pattern) == 0
    s, value = case((2, 5), (2, 5))
    s.call("add_", value, 1)
    s.output(value)
    assert found(s, pattern) == 0


def test_half_precision_is_summed_in_a_product(sketch: Any) -> None:
    for dtype, sums in (torch.float32, 1), (torch.float64, 1), (torch.bfloat16, 0):
        s = sketch()
        s.output(einsum(s, "bi,bi->b", dtype=dtype), einsum(s, "bi,bj->bij", dtype=dtype))
        assert found(s, POINTWISE) == sums + 1
        assert found(s, MATMUL) == 1


@pytest.mark.parametrize("pattern", [MATMUL, POINTWISE])
def test_autocast(sketch: Any, pattern: Any) -> None:
    """It turns products of matrices to another type, and no other op."""
    for dtype, count in (torch.float32, 0), (torch.bfloat16, pattern is MATMUL):
        s = sketch()
        x, y = s.input(2, 5, dtype=dtype), s.input(2, 5, dtype=dtype)
        cast = s.call(torch.amp.autocast_mode._enter_autocast, "cpu", torch.bfloat16, True, True)
        value = s.call(torch.einsum, "bi,bi->b", x, y)
        s.call(torch.amp.autocast_mode._exit_autocast, cast)
        s.output(value)
        assert found(s, pattern) == count, dtype


def test_strides_that_are_seen(sketch: Any, applied: Any) -> None:
    """einsum permutes its result, and so does what takes its place; a pointwise product does not."""
    s = sketch()
    s.output(einsum(s, "bhij,bjhd->bihd"))
    assert applied(s, MATMUL).count("matmul") == 1  # compares strides
    s = sketch()
    s.output(einsum(s, "bi,bj->jbi"))
    assert found(s, POINTWISE) == 0
    s = sketch()
    s.output(einsum(s, "ib,bj->bij"))
    assert found(s, POINTWISE) == 0


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [("bfd,gd->bfg", [(4, 3, 5), (6, 5)]), ("bfd,bd->bf", [(4, 3, 5), (4, 5)])],
)
def test_dynamic_batch(equation: str, shapes: list[tuple[int, ...]]) -> None:
    values = [torch.randn(shape) for shape in shapes]
    for value in values:
        if len(value) == 4:
            torch._dynamo.mark_dynamic(value, 0)
    for pattern in MATMUL, POINTWISE:
        result = rewrite(lambda *x: torch.einsum(equation, *x), values, pattern, dynamic=None)
        assert result.count("einsum") == 0
        result.check()


# ---- tensordot


@pytest.mark.parametrize(
    ("left", "right", "dims", "calls"),
    [
        ((4, 3, 5), (5, 6), ([-1], [0]), ["tensordot"]),
        ((4, 3, 5), (6, 5), ([2], [1]), ["matmul", "permute"]),
        ((4, 3, 5), (3, 5, 6), 2, ["reshape", "reshape", "matmul"]),
        (
            (4, 3, 5),
            (6, 4, 3),
            ([1, 0], [2, 1]),
            ["permute", "permute", "reshape", "reshape", "matmul"],
        ),
        ((4, 3), (4, 3), ([0, 1], [0, 1]), ["reshape", "reshape", "matmul", "reshape"]),
    ],
)
def test_tensordot(
    sketch: Any, applied: Any, left: Any, right: Any, dims: Any, calls: list[str]
) -> None:
    s = sketch()
    x, y = s.input(*left, requires_grad=True), s.input(*right, requires_grad=True)
    s.output(s.call(torch.tanh, s.call(torch.tensordot, x, y, dims=dims)))
    result = applied(s, MATMUL)
    assert sorted(name for name in result.calls if name != "tanh") == sorted(calls)

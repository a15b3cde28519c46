"""The verifier catches wrong rewrites."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from verdicts import add, compare, inputs

from passwright.passes.verify import verify

aten = torch.ops.aten


def pieces(first: int, second: int, *, dim: int = 1) -> Callable[[Any], None]:
    def build(s: Any) -> None:
        (x,) = inputs(s, 1, 6, 6)
        parts = s.call(torch.split, x, 3, dim)
        s.output(*(s.call(operator.getitem, parts, i) for i in (first, second)))

    return build


def cast(dtype: torch.dtype) -> Callable[[Any], None]:
    def build(s: Any) -> None:
        (x,) = inputs(s, 1)
        s.output(s.call("to", s.call(torch.sin, x), dtype))

    return build


def written(*targets: Any) -> Callable[[Any], None]:
    def build(s: Any) -> None:
        x, buffer = s.input(4, requires_grad=True), s.input(4)
        y = s.call(torch.mul, x, 2)
        for target in targets:
            s.call(target, buffer, 1)
        s.output(y)

    return build


def norm(eps: float, dtype: torch.dtype = torch.float32) -> Callable[[Any], None]:
    def build(s: Any) -> None:
        (x,) = inputs(s, 1, 4, 16, dtype=dtype)
        s.output(s.call(F.layer_norm, x, [16], None, None, eps))

    return build


def chosen(*calls: Any) -> Callable[[Any], None]:
    """One output: the calls one after another, on one input."""

    def build(s: Any) -> None:
        (x,) = inputs(s, 1, 4, 4)
        for target, *args in calls:
            x = s.call(target, x, *args)
        s.output(x)

    return build


WRONG = {
    "dropped alpha": (add(2), add(1), "off by"),
    "swapped operands": (add(2), add(2, swapped=True), "off by"),
    "swapped pieces": (pieces(0, 1), pieces(1, 0), "off by"),
    "other dim": (pieces(0, 1), pieces(0, 1, dim=0), "shape"),
    "wrong dtype": (cast(torch.float32), cast(torch.float64), "dtype"),
    "missing write": (written("add_"), written(), "input 1"),
    "other write": (written("add_"), written("mul_"), "input 1"),
    "further write": (written(), written("add_"), "input 1"),
    "other eps": (norm(1e-5), norm(1e-3), "off by"),
    "strides": (
        chosen((torch.sin,)),
        chosen((torch.t,), (torch.sin,), ("contiguous",), (torch.t,)),
        "strides",
    ),
    "no gradient": (chosen((torch.sin,)), chosen((torch.sin,), ("detach",)), "requires_grad"),
    "other gradient": (
        chosen((torch.mul, 2)),
        lambda s: s.output(
            s.call(torch.add, *(lambda x: (x, s.call("detach", x)))(inputs(s, 1, 4, 4)[0]))
        ),
        "gradient of input 0",
    ),
    "copy for a view": (chosen((torch.t,)), chosen((torch.t,), ("clone",)), "shares memory"),
    "view for a copy": (chosen((torch.clone,)), chosen((torch.narrow, 0, 0, 4)), "shares memory"),
    "integers": (
        chosen((torch.argmax, 1)),
        chosen((torch.argmin, 1)),
        "output 0 has other values",
    ),
    "truth values": (chosen((torch.gt, 0)), chosen((torch.lt, 0)), "output 0 has other values"),
    "nan": (chosen((torch.sqrt,)), chosen((torch.abs,), (torch.sqrt,)), "NaN"),
    "infinity": (
        chosen((torch.relu,), (torch.reciprocal,)),
        chosen((torch.relu,), (torch.reciprocal,), (torch.nan_to_num,)),
        "NaN",
    ),
    "one output less": (pieces(0, 1), chosen((torch.narrow, 1, 0, 2)), "outputs"),
    "fails": (chosen((torch.sin,)), chosen((torch.reshape, (4, 4)), (torch.sin,)), None),
}


@pytest.mark.parametrize("name", [name for name in WRONG if name != "fails"])
def test_a_wrong_rewrite_is_caught(sketch: Any, name: str) -> None:
    original, rewritten, words = WRONG[name]
    for build in (original, rewritten):
        assert compare(sketch, build, build).ok, "each agrees with itself"
    verdict = compare(sketch, original, rewritten)
    assert not verdict.ok
    assert words in verdict.sentence
    assert verdict.output_error > verdict.allowed or verdict.gradient_error > verdict.allowed


@pytest.mark.parametrize("alpha", [1.001, 1.00001])
def test_a_small_error_is_caught_too(sketch: Any, alpha: float) -> None:
    verdict = compare(sketch, add(1), add(alpha), training=False)
    assert not verdict.ok
    assert 0.01 * (alpha - 1) < verdict.output_error < alpha - 1


def test_one_wrong_element_among_many_is_caught_in_bf16(sketch: Any) -> None:
    def build(scale: float) -> Callable[[Any], None]:
        def sketched(s: Any) -> None:
            (x,) = inputs(s, 1, 300, 300, dtype=torch.bfloat16)
            y = s.call(torch.mul, x, 1.5)
            first = s.call(
                torch.mul, s.call(operator.getitem, y, (slice(0, 1), slice(0, 1))), scale
            )
            rest = s.call(torch.narrow, y, 0, 1, 299)
            top = s.call(torch.narrow, s.call(torch.narrow, y, 0, 0, 1), 1, 1, 299)
            s.output(s.call(torch.cat, [s.call(torch.cat, [first, top], 1), rest]))

        return sketched

    assert compare(sketch, build(1.0), build(1.0)).ok
    assert not compare(sketch, build(1.0), build(-3.0)).ok


def test_a_rewritten_graph_that_fails_is_wrong(sketch: Any) -> None:
    s = sketch()
    s.output(s.call(torch.sin, s.input(4)))
    broken = s.module()
    sin = next(n for n in broken.graph.nodes if n.op == "call_function")
    sin.target = torch.linalg.inv
    original = sketch()
    original.output(original.call(torch.sin, original.input(4)))
    verdict = verify(original.module(), broken, training=False)
    assert not verdict.ok
    assert "the rewritten graph fails" in verdict.sentence
    verdict = verify(broken, original.module(), training=False)
    assert not verdict.ok
    assert "the original graph fails" in verdict.sentence


def test_nothing_but_nan_verifies_nothing(sketch: Any) -> None:
    build = chosen((torch.mul, math.nan))
    verdict = compare(sketch, build, build)
    assert not verdict.ok
    assert "could not be verified" in verdict.sentence

"""The verifier lets right rewrites pass, and leaves no trace."""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import fx
from verdicts import add, compare, inputs

from passwright.passes.compare import Triple, distances
from passwright.passes.dialect import Dialect
from passwright.passes.patterns.splits import MergeNestedSplits
from passwright.passes.sample import sample_inputs
from passwright.passes.testing import capture, rewrite_graph
from passwright.passes.verify import verify

aten = torch.ops.aten


def linears(fused: bool, dtype: torch.dtype = torch.float32) -> Callable[[Any], None]:
    """Three Linears of one input, or one wide Linear; the sum over 512 in another order."""

    def build(s: Any) -> None:
        x = s.input(16, 512, requires_grad=True, dtype=dtype)
        weights = inputs(s, 3, 24, 512, dtype=dtype)
        if fused:
            wide = s.call(F.linear, x, s.call(torch.cat, weights))
            parts = s.call(torch.split, wide, 24, 1)
            s.output(*(s.call("contiguous", s.call(operator.getitem, parts, i)) for i in range(3)))
        else:
            halves = [
                (s.call(torch.narrow, t, 1, 0, 256), s.call(torch.narrow, t, 1, 256, 256))
                for t in (x, *weights)
            ]
            (first, second), *rest = halves
            s.output(
                *(
                    s.call(torch.add, s.call(F.linear, first, a), s.call(F.linear, second, b))
                    for a, b in rest
                )
            )

    return build


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_a_reassociating_rewrite_passes(sketch: Any, dtype: torch.dtype) -> None:
    verdict = compare(sketch, linears(False, dtype), linears(True, dtype))
    assert verdict.ok, verdict.sentence
    eps = torch.finfo(dtype).eps
    assert 0 < verdict.output_error < 16 * eps
    assert verdict.allowed < (64 * eps if dtype is not torch.float64 else 1e-7)
    assert "compared with the original" not in verdict.sentence


def test_the_shipped_pattern_passes(sketch: Any) -> None:
    s = sketch()
    x = s.input(4, 12, requires_grad=True)
    outer = s.call(torch.split, x, [4, 8], 1)
    inner = s.call(torch.split, s.call(operator.getitem, outer, 1), [3, 5], 1)
    parts = [s.call(operator.getitem, inner, i) for i in range(2)]
    s.output(*(s.call(torch.sin, part) for part in parts))
    result = rewrite_graph(s.module(), [torch.rand(4, 12)], MergeNestedSplits())
    assert result.labels
    verdict = verify(result.original, result.module, training=True)
    assert verdict.ok, verdict.sentence


def test_a_small_value_is_measured_by_its_own_scale(sketch: Any) -> None:
    """An error that would drown beside a large output."""

    def build(scale: float) -> Callable[[Any], None]:
        def sketched(s: Any) -> None:
            (x,) = inputs(s, 1)
            small = s.call(torch.mul, s.call(torch.mul, x, 1e-20), scale)
            s.output(s.call(torch.mul, x, 1e10), small)

        return sketched

    assert compare(sketch, build(1.0), build(1.0)).ok
    assert not compare(sketch, build(1.0), build(1.01)).ok


def test_a_gradient_that_is_zero_but_for_rounding_passes(sketch: Any) -> None:
    """The bias before a normalisation: what either graph computes is noise."""

    def build(fused: bool) -> Callable[[Any], None]:
        def sketched(s: Any) -> None:
            x, w = s.input(64, 32, requires_grad=True), s.input(8, 32, requires_grad=True)
            b = s.input(8, requires_grad=True)
            y = s.call(F.linear, x, w, b)
            if fused:
                y = s.call(torch.addmm, b, x, s.call(torch.t, w))
            s.output(s.call(F.batch_norm, y, None, None, training=True))

        return sketched

    verdict = compare(sketch, build(False), build(True))
    assert verdict.ok, verdict.sentence


def test_autocast_regions(sketch: Any) -> None:
    def build(wrong: bool, fused: bool) -> Callable[[Any], None]:
        def sketched(s: Any) -> None:
            x, v, w = inputs(s, 3, 32, 32)
            enter = s.call(
                torch.amp.autocast_mode._enter_autocast, "cpu", torch.bfloat16, True, None
            )
            if fused:
                both = s.call(torch.mm, x, s.call(torch.cat, [v, w], 1))
                parts = s.call(torch.split, both, 32, 1)
                a, b = (s.call(operator.getitem, parts, i) for i in range(2))
            else:
                a, b = s.call(torch.mm, x, v), s.call(torch.mm, x, w)
            s.call(torch.amp.autocast_mode._exit_autocast, enter)
            s.output(s.call(torch.sub, b, a) if wrong else s.call(torch.sub, a, b))

        return sketched

    verdict = compare(sketch, build(wrong=False, fused=False), build(wrong=False, fused=True))
    assert verdict.ok, verdict.sentence
    assert verdict.allowed < 0.2
    assert not compare(sketch, build(wrong=False, fused=False), build(wrong=True, fused=True)).ok
    assert not torch.is_autocast_enabled("cpu")


def test_written_inputs_and_views_among_them(sketch: Any) -> None:
    """Two inputs in the same memory: a write through one is read through the other."""

    def build(target: Any) -> Callable[[Any], None]:
        def sketched(s: Any) -> None:
            base, part = s.input(6), s.input(3)
            y = s.call(torch.sin, base)
            s.call(target, part, 3.0)
            s.output(y, s.call(torch.exp, base))

        return sketched

    base = torch.rand(6)
    given = [base, base[2:5]]
    before = base.clone()
    assert compare(sketch, build("mul_"), build("mul_"), inputs=given).ok
    verdict = compare(sketch, build("mul_"), build("add_"), inputs=given)
    assert not verdict.ok
    assert torch.equal(base, before)


def test_a_graph_may_write_what_requires_grad(sketch: Any) -> None:
    def build(scale: float) -> Callable[[Any], None]:
        def sketched(s: Any) -> None:
            x, y = s.input(4, requires_grad=True), s.input(4, requires_grad=True)
            node = s.graph.call_method("mul_", (x, scale))
            node.meta[s.key] = x.meta[s.key]
            s.output(s.call(torch.mul, node, y))

        return sketched

    assert compare(sketch, build(2.0), build(2.0)).ok
    assert not compare(sketch, build(2.0), build(2.5)).ok


@pytest.mark.parametrize("kind", ["strided", "expanded", "empty", "scalar"])
def test_inputs_of_any_layout(sketch: Any, kind: str) -> None:
    given = {
        "strided": torch.rand(8, 9)[1::2, ::3],
        "expanded": torch.rand(4, 1).expand(4, 6),
        "empty": torch.rand(0, 3),
        "scalar": torch.tensor(2.0),
    }[kind]

    def build(s: Any) -> None:
        x = s.input(*given.shape, stride=given.stride())
        s.output(s.call(torch.sin, x), s.call("contiguous", x))

    before = given.clone()
    assert compare(sketch, build, build, inputs=[given], training=False).ok
    assert torch.equal(given, before)


def test_random_ops_draw_the_same_in_both(sketch: Any) -> None:
    def build(first: float, second: float) -> Callable[[Any], None]:
        def sketched(s: Any) -> None:
            x, y = inputs(s, 2, 32, 32)
            a = s.call(F.dropout, x, first, True)
            s.output(a, s.call(torch.mul, y, s.call(torch.rand_like, s.call(F.dropout, y, second))))

        return sketched

    verdict = compare(sketch, build(0.5, 0.2), build(0.5, 0.2))
    assert verdict.ok, verdict.sentence
    assert "compared with the original" not in verdict.sentence
    assert not compare(sketch, build(0.5, 0.2), build(0.2, 0.5)).ok


def test_numbers_that_cannot_be_drawn_again_are_said(sketch: Any) -> None:
    def build(scale: float) -> Callable[[Any], None]:
        def sketched(s: Any) -> None:
            (x,) = inputs(s, 1, 16, 16)
            noise = s.call(torch.zeros_like, x)
            s.call("uniform_", noise)
            s.output(s.call(torch.mul, s.call(torch.add, x, noise), scale))

        return sketched

    verdict = compare(sketch, build(1.0), build(1.0))
    assert verdict.ok
    assert "compared with the original itself" in verdict.sentence
    assert not compare(sketch, build(1.0), build(1.01)).ok


@pytest.fixture
def single() -> Iterator[Any]:
    """A custom op that has no float64."""
    with torch.library._scoped_library("passwright_verify", "DEF") as lib:
        lib.define("half_of(Tensor x) -> Tensor")

        def half_of(x: torch.Tensor) -> torch.Tensor:
            if x.dtype != torch.float32:
                raise RuntimeError("only float32")
            return x * 0.5

        lib.impl("half_of", half_of, "CompositeExplicitAutograd")
        yield torch.ops.passwright_verify.half_of.default


def test_an_op_without_float64_is_compared_with_the_original(sketch: Any, single: Any) -> None:
    def build(scale: float) -> Callable[[Any], None]:
        def sketched(s: Any) -> None:
            s.output(s.call(torch.mul, s.call(single, s.input(4)), scale))

        return sketched

    verdict = compare(sketch, build(1.0), build(1.0), training=False)
    assert verdict.ok
    assert "only float32" in verdict.sentence
    assert not compare(sketch, build(1.0), build(1.01), training=False).ok


def test_types_asked_for_in_the_graph_become_float64(sketch: Any) -> None:
    """The oracle is not float32 in disguise: the error of the original shows."""

    def build(s: Any) -> None:
        (x,) = inputs(s, 1, 64, 64)
        y = s.call("float", s.call(torch.sum, x, dtype=torch.float32))
        z = s.call("to", s.call(torch.zeros, 3, dtype=torch.float32), torch.float32)
        s.output(s.call(torch.add, z, y))

    verdict = compare(sketch, build, build)
    assert verdict.ok
    assert 0 < verdict.output_error < 1e-5


def test_no_trace_is_left(sketch: Any) -> None:
    module_inputs = [torch.rand(4, requires_grad=True), torch.rand(4), torch.rand(4)]
    s = sketch()
    x, buffer, third = s.input(4, requires_grad=True), s.input(4), s.input(4)
    s.call("add_", buffer, 1)
    s.call(torch._C._set_grad_enabled, False)
    enter = s.call(torch.amp.autocast_mode._enter_autocast, "cpu", torch.bfloat16, True, None)
    constant = s.graph.get_attr("constant")
    constant.meta[s.key] = third.meta[s.key]
    s.call("mul_", constant, 2)
    y = s.call(torch.dropout, s.call(torch.mul, x, constant), 0.5, True)
    s.call(torch.amp.autocast_mode._exit_autocast, enter)
    s.output(y, buffer)
    root = torch.nn.Module()
    root.constant = torch.ones(4)  # type: ignore[assignment]
    module = fx.GraphModule(root, s.graph)
    broken = copy.deepcopy(module)
    for node in broken.graph.nodes:
        if node.target is torch.dropout:
            node.args = (node.args[0], "no number", True)
    state, values = torch.get_rng_state(), [v.detach().clone() for v in module_inputs]
    assert verify(module, module, module_inputs, training=True).ok
    assert not verify(module, broken, module_inputs, training=True).ok
    assert not verify(broken, module, module_inputs, training=False).ok
    assert torch.equal(torch.get_rng_state(), state)
    assert all(map(torch.equal, values, module_inputs))
    assert all(value.grad is None for value in module_inputs)
    assert module_inputs[1]._version == 0
    assert torch.equal(module.constant, torch.ones(4))  # type: ignore[arg-type]
    assert torch.is_grad_enabled()
    assert not torch.is_autocast_enabled("cpu")
    assert torch.autocast_increment_nesting() == 1
    assert torch.autocast_decrement_nesting() == 0


def test_function_transforms_are_undone_when_a_graph_fails() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return torch.func.grad(lambda t: (t * t).sum())(x)

    module, given = capture(fn, [torch.ones(3)])
    assert verify(module, module, given, training=False).ok
    broken = copy.deepcopy(module)
    next(n for n in broken.graph.nodes if n.target is operator.mul).target = torch.linalg.inv
    assert "fails" in verify(module, broken, given, training=False).sentence
    assert verify(module, module, given, training=False).ok
    assert torch.equal(torch.func.grad(lambda t: t.sum())(torch.ones(3)), torch.ones(3))


def test_inference_mode_outside(sketch: Any) -> None:
    with torch.inference_mode():
        assert compare(sketch, add(2), add(2), inputs=[torch.rand(4, 6), torch.rand(4, 6)]).ok


def test_aten_graphs(sketch: Any) -> None:
    def build(alpha: float) -> fx.GraphModule:
        s = sketch(Dialect.ATEN)
        x, y = s.input(4, 6), s.input(4, 6)
        module: fx.GraphModule
        s.output(s.call(aten.add.Tensor, x, y, alpha=alpha))
        module = s.module()
        return module

    assert verify(build(2), build(2), training=False).ok
    assert not verify(build(2), build(1), training=False).ok


def test_symbolic_sizes() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.cat([x, y]).reshape(x.shape[0] * 2, -1) * x.shape[0]

    module, given = capture(fn, [torch.ones(5, 4), torch.ones(5, 4)], dynamic=True)
    values = sample_inputs(module)
    assert [type(v) for v in values] == [type(v) if not isinstance(v, torch.SymInt) else int
                                         for v in given]  # fmt: skip
    assert verify(module, module, training=True).ok
    fake = [n.meta["example_value"] for n in module.graph.find_nodes(op="placeholder")]
    guards = len(next(v for v in fake if isinstance(v, torch.Tensor)).fake_mode.shape_env.guards)
    for unreal in (given, fake):
        verdict = verify(module, module, unreal, training=True)
        assert verdict.ok, verdict.sentence
    tensor = next(v for v in fake if isinstance(v, torch.Tensor))
    assert len(tensor.fake_mode.shape_env.guards) == guards
    bigger = [9 if isinstance(v, torch.SymInt) and v == 5 else v for v in given]
    bigger = [torch.ones(9, 4) if isinstance(v, torch.Tensor) else int(v) for v in bigger]
    assert [getattr(v, "shape", v) for v in sample_inputs(module, bigger)] == [
        getattr(v, "shape", v) for v in bigger
    ]


@pytest.mark.parametrize(("off", "right"), [(1e-9, True), (1e-3, False)])
def test_what_the_original_hits_exactly_may_be_noise_elsewhere(off: float, right: bool) -> None:
    # The gradient of a bias before a softmax is zero; whether a run finds just that is luck.
    def triple(name: str, expected: float, actual: float, reference: float) -> Triple:
        values = (torch.tensor([value]) for value in (expected, actual))
        return Triple(name, *values, torch.tensor([reference], dtype=torch.float64), True)

    usual = triple("weight", 1.0, 1.0, 1.0 + 1e-8)
    [_, bias] = distances([usual, triple("bias", 0.0, off, 1e-17)], random=False)
    assert (bias.error <= bias.allowed) is right

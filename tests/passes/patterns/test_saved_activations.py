"""Activations kept for the backward in float8."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from passwright.passes.patterns.saved_activations import QuantizeSavedActivations
from passwright.passes.testing import rewrite

QUANTIZE = QuantizeSavedActivations()
ROWS, WIDTH = 1024, 512


def two_layers(x: Tensor, w: Tensor, b: Tensor, v: Tensor) -> Tensor:
    return F.linear(torch.tanh(F.linear(x, w, b)), v)


def inputs(dtype: torch.dtype = torch.float32, rows: int = ROWS) -> list[Tensor]:
    shapes = [(rows, 8), (WIDTH, 8), (WIDTH,), (3, WIDTH)]
    made = [torch.randn(shape, dtype=dtype) for shape in shapes]
    return [made[0], *(value.requires_grad_() for value in made[1:])]


def gradients(fn: Any, values: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
    out = fn(*values)
    out = out[0] if isinstance(out, tuple) else out
    wanted = [value for value in values if value.requires_grad]
    return out.detach(), list(torch.autograd.grad(out.square().sum(), wanted))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_only_the_gradient_of_the_weight_is_rounded(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    values = inputs(dtype, rows=2 * ROWS)
    result = rewrite(two_layers, values, QUANTIZE)
    # The first Linear takes an input of the graph, which is there anyway.
    assert [c.rpartition(".")[0] or c for c in result.calls] == [
        "linear",
        "tanh",
        "passwright.linear_saving_float8",
    ]
    expected, wanted = gradients(result.original, result.inputs)
    actual, found = gradients(result.module, result.inputs)
    assert torch.equal(expected, actual)
    for old, new in zip(wanted[:-1], found[:-1], strict=True):
        torch.testing.assert_close(new, old)
    error = (found[-1] - wanted[-1]).float().norm() / wanted[-1].float().norm()
    assert 0 < error < 2**-4


def test_what_is_kept_has_eight_bits() -> None:
    result = rewrite(two_layers, inputs(), QUANTIZE)
    kept: list[Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        result.module(*result.inputs)
    sizes = {(tuple(t.shape), t.dtype) for t in kept}
    assert ((ROWS, WIDTH), torch.float8_e4m3fn) in sizes


def test_compiled_as_in_eager() -> None:
    torch.manual_seed(0)
    result = rewrite(two_layers, inputs(), QUANTIZE)
    torch._dynamo.reset()
    compiled = torch.compile(result.module, backend="aot_eager")
    expected, wanted = gradients(result.module, result.inputs)
    actual, found = gradients(compiled, result.inputs)
    torch.testing.assert_close(actual, expected)
    torch.testing.assert_close(found, wanted)


def test_zeros_stay_zeros() -> None:
    from passwright.passes.kernels.linear_saving_float8 import to_float8

    small, scale = to_float8(torch.zeros(3))
    assert not (small.float() * scale).any()


def test_nothing_to_save() -> None:
    frozen = [value.detach() for value in inputs()]
    for fn, values in (
        (two_layers, frozen),
        (two_layers, inputs(torch.float64)),
        (two_layers, inputs(rows=8)),
        (lambda x, w, b, v: F.linear(torch.tanh(F.linear(x, w, b)), v.detach()), inputs()),
    ):
        assert rewrite(fn, values, QUANTIZE).labels == []


def test_not_under_autocast() -> None:
    def run(*values: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return two_layers(*values)

    assert rewrite(run, inputs(), QUANTIZE).labels == []

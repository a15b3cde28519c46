"""Which calls write row-major results whatever the strides of their inputs are: told, and seen."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from passwright.passes.graph import GraphView
from passwright.passes.kernels.grouped_gather import GROUPED_GATHER
from passwright.passes.kernels.grouped_layer_norm import GROUPED_LAYER_NORM
from passwright.passes.kernels.grouped_linear import GROUPED_LINEAR
from passwright.passes.kernels.linear_saving_float8 import LINEAR_SAVING_FLOAT8
from passwright.passes.sketch import Sketch
from passwright.passes.strides import has_own_layout, observes_strides


def _columns(*shape: int) -> Tensor:
    """Laid out column by column."""
    return torch.rand(*shape[:-2], shape[-1], shape[-2]).mT


def _every_other(*shape: int) -> Tensor:
    return torch.rand(*shape[:-1], 2 * shape[-1])[..., ::2]


def _same_row(*shape: int) -> Tensor:
    return torch.rand(shape[-1]).expand(shape)


Make = Callable[..., Tensor]
CALLS: dict[str, Callable[[Make], tuple[object, tuple[object, ...]]]] = {
    "addmm": lambda t: (torch.addmm, (t(4, 6), t(4, 5), t(5, 6))),
    "aten addmm": lambda t: (torch.ops.aten.addmm.default, (t(4, 6), t(4, 5), t(5, 6))),
    "baddbmm": lambda t: (torch.baddbmm, (t(3, 4, 6), t(3, 4, 5), t(3, 5, 6))),
    "aten baddbmm": lambda t: (
        torch.ops.aten.baddbmm.default,
        (t(3, 4, 6), t(3, 4, 5), t(3, 5, 6)),
    ),
    "grouped_linear": lambda t: (
        GROUPED_LINEAR,
        ([t(4, 5), t(4, 6)], [t(3, 5), t(2, 6)], [], "relu", ""),
    ),
    "grouped_layer_norm": lambda t: (GROUPED_LAYER_NORM, ([t(4, 5), t(4, 6)], [], [], 1e-5, "")),
    "grouped_gather": lambda t: (
        GROUPED_GATHER,
        ([torch.tensor([0, 2, 1])] * 2, [t(3, 4), t(3, 2)], [-1, -1], ""),
    ),
    "linear_saving_float8": lambda t: (LINEAR_SAVING_FLOAT8, (t(4, 5), t(6, 5), t(2, 6)[0], "")),
}


@pytest.mark.parametrize("lay_out", [torch.rand, _columns, _every_other, _same_row])
@pytest.mark.parametrize("name", CALLS)
def test_results_of_some_calls_are_row_major(name: str, lay_out: Make) -> None:
    target, args = CALLS[name](lay_out)
    assert callable(target)
    assert target(*args).is_contiguous()
    s = Sketch()

    def put(value: object) -> object:
        if isinstance(value, list):
            return [put(part) for part in value]
        if not isinstance(value, Tensor):
            return value
        return s.input(*value.shape, dtype=value.dtype, stride=value.stride())

    node = s.call(target, *map(put, args))
    s.output(node)
    view = GraphView(s.graph)
    assert view.spec(node).is_contiguous
    assert has_own_layout(view, node)


def test_the_layout_of_pointwise_calls_is_that_of_their_inputs() -> None:
    s = Sketch()
    y = s.call(torch.sin, s.input(4, 6, stride=(1, 4)))
    s.output(y)
    view = GraphView(s.graph)
    assert not view.spec(y).is_contiguous
    assert not has_own_layout(view, y)


@pytest.mark.parametrize("target", [torch.addmm, torch.baddbmm])
def test_a_result_that_was_handed_in_lies_as_it_did(target: Callable[..., Tensor]) -> None:
    batch = (3,) if target is torch.baddbmm else ()
    shapes = [(*batch, *shape) for shape in ((4, 6), (4, 5), (5, 6))]
    given = target(*map(torch.rand, shapes), out=_columns(*shapes[0]))
    assert not given.is_contiguous()
    s = Sketch()
    home = s.input(*given.shape, stride=given.stride())
    node = s.call(target, *(s.input(*shape) for shape in shapes), out=home)
    s.output(node)
    view = GraphView(s.graph)
    assert view.spec(node).stride == given.stride()
    assert not has_own_layout(view, node)
    assert observes_strides(view, home)

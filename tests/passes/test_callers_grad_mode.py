"""The grad mode that the caller set outside the graph, told from what the graph's values require."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, fx

from passwright.passes.graph import GraphView
from passwright.passes.testing import capture

W = torch.randn(4, 4, requires_grad=True)
X = torch.randn(3, 2, 4)
#: Smooth functions of a parameter.
SMOOTH: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "linear": F.linear,
    "matmul": torch.matmul,
    "einsum": lambda x, w: torch.einsum("bij,jk->bik", x, w),
    "conv1d": lambda x, w: F.conv1d(x, w[:, :2, None]),
    "layer_norm": lambda x, w: F.layer_norm(x, [4], w[0]),
    "embedding": lambda x, w: F.embedding(x.long() * 0, w),
    "add": lambda x, w: x + w[0],
    "cat": lambda x, w: torch.cat([x[0], w]),
    "stack": lambda x, w: torch.stack([x[0, 0], w[0]]),
}


def captured(fn: Callable[..., Any], mode: bool) -> GraphView:
    with torch.set_grad_enabled(mode):
        module, _ = capture(fn, [X, W])
    return GraphView(module.graph)


def made_by(view: GraphView, name: str) -> fx.Node:
    return next(n for n in view.nodes() if n.op == "call_function" and n.name.startswith(name))


@pytest.mark.parametrize("mode", [False, True])
@pytest.mark.parametrize("name", list(SMOOTH))
def test_of_smooth_functions(name: str, mode: bool) -> None:
    """A view of the parameter requires grad in either mode, and a result in one."""
    view = captured(lambda x, w: (SMOOTH[name](x, w), w.mT), mode)
    result = made_by(view, name)
    assert view.needs_grad(result) == mode
    assert view.mode(view.region(result)).enabled == (None if mode else False)


def test_numpy_changes_no_mode() -> None:
    """Dynamo captures calls of numpy too; one without a tensor among its arguments makes one."""

    def fn(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        positions = torch.LongTensor(np.tile(np.array(range(2)), [3, 1]))
        return F.embedding(positions, w), F.linear(x, w)

    view = captured(fn, True)
    assert any("wrapped" in node.name for node in view.nodes())
    assert {view.region(node) for node in view.nodes()} == {0}

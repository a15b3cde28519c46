"""Numbers on the CPU, in graphs that run on a GPU."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from passwright.passes.graph import GraphView
from passwright.passes.matching import Rewriter
from passwright.passes.table import default_table
from passwright.passes.testing import capture
from passwright.training.as_gpu import as_on_gpu


def scaled(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """As attention is written that makes a tensor of its head size."""
    return x / torch.sqrt(torch.tensor(4.0)), y / torch.sqrt(torch.tensor(16.0))


@pytest.mark.parametrize("gpu", [False, True])
def test_only_where_all_is_on_the_cpu_are_they_batched(gpu: bool) -> None:
    """Inductor gave a kernel on an H200 the address of the batch, which lay on the CPU."""
    module, _ = capture(scaled, [torch.randn(4, 8), torch.randn(4, 6)])
    if gpu:
        as_on_gpu(module.graph)
    rewriter = Rewriter(GraphView(module.graph), default_table().only(["batch_unaries"]))
    assert bool(rewriter.candidates()) is not gpu

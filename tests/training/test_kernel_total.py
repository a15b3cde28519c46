"""Kernels counted before there is code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from typer.testing import CliRunner

from passwright.scheduler.kernel_counts import capture_kernels
from passwright.training.kernel_total import count, kernel_total
from passwright.training.workloads import build

pytestmark = pytest.mark.filterwarnings("ignore")


class Small(nn.Module):
    """Two products, with an activation that is a kernel between them."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 16), nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(torch.relu(self.first(x)))


def test_products_and_what_is_between_them() -> None:
    module, x = Small(), torch.randn(32, 8)
    assert kernel_total(module, (x,), train=False) == {"forward": 3}
    found = kernel_total(module, (x,), train=True)
    assert found["forward"] == 3
    # Two gradients of weights, one of the hidden values, its mask, and two sums for biases.
    assert 5 <= found["backward"] <= 6


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU: make gpu-test")
def test_as_many_as_are_called_in_the_end() -> None:
    device = torch.device("cuda")
    module, inputs = build("own:norm_branches?fields=3", batch=16, device=device)
    torch._dynamo.reset()
    with torch.no_grad(), capture_kernels() as kernels:
        torch.compile(module)(*inputs)
    called = sum(graph.kernels for graph in kernels)
    torch._dynamo.reset()
    assert kernel_total(module, inputs, train=False)["forward"] == pytest.approx(called, abs=1)


def test_the_command(tmp_path: Path) -> None:
    import typer

    app = typer.Typer()
    app.command()(count)
    file = tmp_path / "found.json"
    arguments = ["own:illustrative?fields=4,layers=1", "--batch", "8", "--mode", "infer"]
    found = CliRunner().invoke(app, [*arguments, "--device", "cpu", "--json", str(file)])
    assert found.exit_code == 0, found.output
    [row] = json.loads(file.read_text())["rows"]
    assert row["forward"] >= 12
    assert row["workload"].startswith("own:illustrative?fields=4,layers=1@batch=8")

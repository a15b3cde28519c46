"""Timing on the real clock, and on a GPU."""

import math

import pytest
import torch
from torch import nn

from passwright.scheduler.comparison import Comparison
from passwright.scheduler.timing import (
    compare,
    inference_step,
    training_step,
)

CPU = torch.device("cpu")
cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


# ---- the real clock


def test_real_time() -> None:
    variants = {
        "default": lambda: sum(range(40_000)),
        "fast": lambda: sum(range(10_000)),
    }
    found = compare(variants, baseline="default", device=CPU, block_seconds=0.005)
    assert found.gains["fast"].speedup > 1.5


# ---- CUDA


@pytest.mark.gpu
@cuda
@pytest.mark.parametrize("training", [False, True])
def test_cuda_graphs(training: bool) -> None:
    device = torch.device("cuda")
    module = nn.Sequential(*(nn.Linear(256, 256) for _ in range(4))).to(device)
    short = nn.Sequential(*list(module)[:2])
    x = torch.randn(512, 256, device=device)
    step = training_step if training else inference_step
    found = compare(
        {"default": step(module, x), "short": step(short, x)}, baseline="default", device=device
    )
    assert {timing.method for timing in found.timings.values()} == {"cuda-graph"}
    assert found.notes == ()
    assert found.gains["short"].lower > 0
    assert found.wall is not None
    assert found.wall.timings["short"].method == "wall"
    assert Comparison.from_json(found.to_json()) == found


@pytest.mark.gpu
@cuda
def test_cuda_events_where_nothing_can_be_captured() -> None:
    device = torch.device("cuda")
    x = torch.randn(512, 512, device=device)
    stream = torch.cuda.current_stream()
    found = compare(
        {"default": lambda: x @ x @ x @ x, "syncs": lambda: (x @ x).sum().item()},
        baseline="default",
        device=device,
        timeout_factor=math.inf,
        wall=False,
    )
    assert {timing.method for timing in found.timings.values()} == {"cuda-event"}
    assert "'syncs' cannot be captured" in found.notes[0]
    assert found.wall is None
    assert torch.cuda.current_stream() == stream
    assert torch.equal((x @ x).isfinite().all().cpu(), torch.tensor(True))


@pytest.mark.gpu
@cuda
def test_cuda_out_of_memory_is_censored() -> None:
    device = torch.device("cuda")
    x = torch.randn(64, device=device)
    found = compare(
        {"default": lambda: x + 1, "huge": lambda: torch.empty(1 << 50, device=device)},
        baseline="default",
        device=device,
        blocks=2,
    )
    assert found.censored["huge"].startswith("OutOfMemoryError")

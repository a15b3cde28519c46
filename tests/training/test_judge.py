"""The judge: inputs by name, and modules that change their own state while they run."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from passwright.training.judge import Judge

X = torch.randn(8, 4, generator=torch.Generator().manual_seed(0))


class Counting(nn.Module):
    """What it computes depends on how often it ran: by a buffer, a number, a cache, a lazy buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("runs", torch.zeros(()))
        self.register_buffer("first", None)
        # As Hugging Face holds positions: nothing can be written into it.
        self.register_buffer("positions", torch.zeros(1).expand(8))
        self.number, self.cache = 0, torch.zeros(4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        self.runs.add_(1)
        self.number += 1
        self.cache.add_(self.runs)
        if self.first is None:
            self.first = self.runs * 2
        y = self.linear(x) * self.number + self.cache + self.first
        return y * self.runs, self.runs, self.cache


@pytest.fixture
def module() -> Counting:
    torch.manual_seed(0)
    return Counting()


@pytest.mark.parametrize("train", [False, True])
def test_each_run_sees_the_same_state(module: Counting, train: bool) -> None:
    judge = Judge(module, (X,), train=train)
    assert judge.verdict(module)["ok"]
    torch._dynamo.reset()
    compiled = torch.compile(module, backend="eager")
    for _ in range(3):  # as compiling and timing do
        compiled(X)
    for _ in range(2):
        verdict = judge.verdict(compiled)
        assert verdict["ok"], verdict["sentence"]
        assert verdict["oracle"]
    assert float(module.runs) == module.number == float(module.cache.sum()) == 0
    assert module.first is None


def test_an_expected_output_is_no_buffer_that_the_next_run_writes(module: Counting) -> None:
    judge = Judge(module, (X,), train=False)

    def forgets(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y, runs, cache = module(x)
        return y, runs - 1, cache

    assert judge.verdict(module)["ok"]
    assert "output 1" in judge.verdict(forgets)["sentence"]


def test_wrong_results_are_still_found(module: Counting) -> None:
    judge = Judge(module, (X,), train=True)
    verdict = judge.verdict(lambda x: tuple(1.01 * value for value in module(x)))
    assert not verdict["ok"]
    assert "is off by" in verdict["sentence"]
    # Shaking, which asks how far rounding goes, ran copies of the module as it was at first.
    assert judge.verdict(module)["ok"]


class Named(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, *, query: Tensor, key: Tensor, scale: float = 1.0) -> dict[str, Tensor]:
        return {"out": self.linear(query) * torch.tanh(key) * scale}


def test_inputs_may_have_names() -> None:
    torch.manual_seed(0)
    module = Named()
    inputs = {"query": X, "key": X.flip(0).requires_grad_(), "scale": 0.5}
    judge = Judge(module, inputs, train=True)
    verdict = judge.verdict(module)
    assert verdict["ok"]
    assert verdict["oracle"]

    def swapped(*, query: Tensor, key: Tensor, scale: float) -> Any:
        return module(query=key, key=query, scale=scale)

    def detached(*, query: Tensor, key: Tensor, scale: float) -> Any:
        return module(query=query, key=key.detach() + 0 * key, scale=scale)

    assert "output" in judge.verdict(swapped)["sentence"]
    assert "gradient of input 0" in judge.verdict(detached)["sentence"]


def test_other_inputs_are_refused() -> None:
    with pytest.raises(TypeError, match="a tuple, a dict or a tensor, not int"):
        Judge(nn.Identity(), 3, train=False)

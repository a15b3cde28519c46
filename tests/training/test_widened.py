"""Code that asks for float32 by name, in float64."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from passwright.training.widened import widened


@pytest.mark.parametrize(
    "make",
    [
        lambda x: x.float(),
        lambda x: x.half(),
        lambda x: x.to(torch.float32),
        lambda x: x.to(dtype=torch.bfloat16),
        lambda x: x.type(torch.float32),
        lambda _: torch.zeros(2, dtype=torch.float32),
        lambda _: torch.tensor(0.5),
        lambda _: torch.arange(3).float(),
        lambda x: torch.softmax(x, 0, dtype=torch.float32),
        lambda _: torch.ones(3),
    ],
)
def test_whatever_it_asks_for_is_float64(make: object) -> None:
    x = torch.randn(3, dtype=torch.float64)
    with widened():
        assert make(x).dtype == torch.float64  # type: ignore[operator]
    assert torch.get_default_dtype() == torch.float32


def test_whole_numbers_stay_so() -> None:
    with widened():
        assert torch.arange(3).dtype == torch.int64
        assert torch.zeros(2, dtype=torch.int32).dtype == torch.int32
        assert torch.ones(2).long().dtype == torch.int64


def test_gradients_pass() -> None:
    def model(x: Tensor) -> Tensor:
        return (x.float() * torch.ones(3)).sum()

    x = torch.randn(3, dtype=torch.float64, requires_grad=True)
    with widened():
        model(x).backward()
    assert x.grad is not None
    assert x.grad.dtype == torch.float64


def test_the_default_is_put_back_whatever_happens() -> None:
    def fails() -> None:
        with widened():
            raise ValueError("wrong")

    with pytest.raises(ValueError, match="wrong"):
        fails()
    assert torch.get_default_dtype() == torch.float32

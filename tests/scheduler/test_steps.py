"""One step of training or inference on real modules, and what it needs of memory."""

from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

from passwright.scheduler.timing import (
    compare,
    graph_step,
    inference_step,
    peak_memory,
    training_step,
)

CPU = torch.device("cpu")
cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


class Named(NamedTuple):
    value: Tensor
    index: Tensor


class Branches(nn.Module):
    """Nested outputs, among them integers and one that depends on no parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 3), nn.Linear(4, 2)
        self.frozen = nn.Parameter(torch.ones(3), requires_grad=False)

    def forward(self, x: Tensor, scale: float = 1.0) -> dict[str, Any]:
        y = self.first(x) * self.frozen * scale
        return {"y": y, "rest": [Named(self.second(x), y.argmax(1)), (x + 1, None, "text")]}


def gradients(module: nn.Module) -> list[Tensor | None]:
    return [parameter.grad for parameter in module.parameters()]


@pytest.mark.parametrize("as_mapping", [False, True])
def test_training_step_handles_nested_outputs(as_mapping: bool) -> None:
    module, x = Branches(), torch.randn(5, 4)
    step = training_step(module, {"x": x, "scale": 2.0} if as_mapping else (x, 2.0))
    step()
    assert [name for name, p in module.named_parameters() if p.grad is None] == ["frozen"]


def test_training_step_does_not_add_gradients_up() -> None:
    module = nn.Linear(4, 3)
    x = torch.randn(5, 4, requires_grad=True)
    step = training_step(module, x)
    step()
    once = [*gradients(module), x.grad]
    step()
    for before, after in zip(once, [*gradients(module), x.grad], strict=True):
        assert before is not None
        assert after is not None
        assert torch.equal(before, after)


def test_gradients_differ_from_element_to_element() -> None:
    module = nn.Linear(4, 3)
    training_step(module, torch.randn(5, 4))()
    assert module.bias.grad is not None
    assert module.bias.grad.unique().numel() == 3


def test_the_weighting_goes_with_the_seed() -> None:
    module, x = nn.Linear(4, 3), torch.randn(5, 4)

    def gradient(seed: int) -> Tensor:
        training_step(module, x, seed=seed)()
        assert module.bias.grad is not None
        return module.bias.grad.clone()

    assert torch.equal(gradient(1), gradient(1))
    assert not torch.equal(gradient(1), gradient(2))


def test_training_step_with_a_loss() -> None:
    module, x = nn.Linear(4, 3), torch.randn(5, 4)
    training_step(module, (x,), loss=lambda out: out.sum())()
    assert module.bias.grad is not None
    assert torch.equal(module.bias.grad, torch.full((3,), 5.0))


def test_training_step_needs_something_to_differentiate() -> None:
    with pytest.raises(ValueError, match="nothing to train"):
        training_step(lambda x: x + 1, torch.randn(3))()


def test_inference_step_makes_no_graph() -> None:
    module, x = nn.Linear(4, 3), torch.randn(5, 4)
    out = inference_step(module, x)()
    assert isinstance(out, Tensor)
    assert not out.requires_grad
    assert torch.equal(out, module(x))


@pytest.mark.parametrize("training", [False, True])
def test_graph_step(training: bool) -> None:
    weight, x = torch.randn(3, 4, requires_grad=True), torch.randn(5, 4)
    out = graph_step(lambda x, w, n: (x @ w.t(), n), (x, weight, 7), training=training)()
    assert (out is None) == training
    assert (weight.grad is not None) == training


def test_peak_memory_is_unknown_on_a_cpu() -> None:
    assert peak_memory(lambda: pytest.fail("must not be called"), CPU) is None


def test_compares_steps_of_modules() -> None:
    module, x = nn.Linear(8, 8), torch.randn(4, 8)
    steps = {
        "default": training_step(module, x),
        "same": training_step(module, x),
        "bad": training_step(nn.Linear(3, 3), x),
    }
    found = compare(steps, baseline="default", device=CPU, blocks=2, block_seconds=0.001)
    assert set(found.timings) >= {"default"}
    assert found.censored["bad"].startswith("RuntimeError: ")


@pytest.mark.gpu
@cuda
def test_peak_memory() -> None:
    x = torch.randn(1 << 20, device="cuda")
    peak = peak_memory(lambda: (x + 1) * 2, x.device)
    assert peak is not None
    assert 8 << 20 <= peak < 16 << 20

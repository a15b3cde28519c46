"""A backward writes over nothing that is still needed, in graphs that were rewritten."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._functorch.config as functorch
from torch import Tensor, fx, nn

from passwright.scheduler.donations import Donations
from passwright.scheduler.graph_pass import passwright_options
from passwright.scheduler.inductor import cache_counters, compile_with_inductor, fresh_cache
from passwright.scheduler.optimize import collect_plans

pytestmark = pytest.mark.filterwarnings("ignore")

Compile = Callable[[Callable[..., Any]], Callable[..., Any]]


def gates(x: Tensor, weights: Sequence[Tensor]) -> list[Tensor]:
    """Returns parts of what is saved for its backward."""
    batch = torch.softmax(torch.stack([x @ w for w in weights]), 2)
    return [gate.clone().unsqueeze(1) for gate in batch.unbind(0)]


def inputs() -> tuple[Tensor, list[Tensor]]:
    draw = torch.Generator().manual_seed(0)
    weights = [torch.randn(8, 8, generator=draw, requires_grad=True) for _ in range(3)]
    return torch.randn(64, 8, generator=draw), weights


def step(run: Callable[..., list[Tensor]], *arguments: Any) -> tuple[list[Tensor], list[Tensor]]:
    """Results and gradients, both as they are after the backward."""
    results = run(*arguments)
    draw = torch.Generator().manual_seed(1)
    cotangents = [torch.randn(r.shape, generator=draw).to(r.dtype) for r in results]
    leaves = [t for t in torch.utils._pytree.tree_leaves(arguments) if t.requires_grad]
    return results, list(torch.autograd.grad(results, leaves, cotangents))


def rewritten(gm: fx.GraphModule, given: Sequence[Any]) -> Callable[..., Any]:
    return compile_with_inductor(gm, given, rewritten=True)


def by_options(function: Callable[..., Any]) -> Callable[..., Any]:
    options = passwright_options(mode="predict", min_gain=9.0)
    return torch.compile(function, dynamic=False, options=options)


def by_backend(function: Callable[..., Any]) -> Callable[..., Any]:
    return torch.compile(function, dynamic=False, backend=rewritten)


@pytest.mark.parametrize("compile_it", [by_backend, by_options])
def test_results_outlast_the_backward(compile_it: Compile) -> None:
    x, weights = inputs()
    expected = step(gates, x, weights)
    with fresh_cache():
        actual = step(compile_it(gates), x, weights)
    for ours, theirs in zip(actual, expected, strict=True):
        torch.testing.assert_close(ours, theirs)
    assert functorch.donated_buffer


def test_what_was_compiled_before_and_gives_away_is_not_found_in_the_cache() -> None:
    x, weights = inputs()
    expected, _ = step(gates, x, weights)
    with fresh_cache():
        step(torch.compile(gates, dynamic=False), x, weights)
        torch._dynamo.reset()
        actual, _ = step(by_backend(gates), x, weights)
    torch.testing.assert_close(actual, expected)


@pytest.mark.usefixtures("always_gains")
def test_steps_that_batch_leave_results_alone(tmp_path: Path) -> None:
    """Gates of a mixture of experts, whose softmaxes become one that is saved for the backward."""

    class Gates(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))

        def forward(self, x: Tensor) -> list[Tensor]:
            return [layer(x).softmax(1).unsqueeze(1) for layer in self.layers]

    model, x = Gates(), inputs()[0].requires_grad_(True)
    options = {"plan_directory": str(tmp_path), "patterns": ["batch_softmaxes"]}
    with fresh_cache(), collect_plans() as found:
        run = torch.compile(model, dynamic=False, backend="passwright", options=options)
        actual = step(run, x)
    assert [s.pattern for applied in found for s in applied.plan.steps] == ["batch_softmaxes"]
    expected = step(model, x)
    for ours, theirs in zip(actual, expected, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_donating_is_as_before_whatever_ends_the_compile() -> None:
    donations = Donations()

    def fails() -> None:
        with donations.withheld():
            assert not functorch.donated_buffer
            raise ValueError("wrong")

    for before in (True, False):
        with functorch.patch(donated_buffer=before):
            with pytest.raises(ValueError, match="wrong"):
                fails()
            assert functorch.donated_buffer is before


def twice(x: Tensor) -> list[Tensor]:
    """Two results that may be changed apart from each other."""
    value = torch.erf(x)
    return [value.clone(), value.clone(), torch.sin(x).clone()]


@pytest.mark.parametrize("function", [twice, lambda x: [t.unsqueeze(0) for t in twice(x)]])
def test_copies_of_one_value_stay_two_in_inference(
    function: Callable[[Tensor], list[Tensor]],
) -> None:
    x = inputs()[0]
    with fresh_cache(), torch.no_grad():
        first, second, third = by_backend(function)(x)
        memory = {result.untyped_storage().data_ptr() for result in (first, second, third)}
        assert len(memory) == 3
        expected = second.clone()
        first.zero_()
        torch.testing.assert_close(second, expected)
    torch.testing.assert_close(third.flatten(), torch.sin(x).flatten())


def test_options_leave_donating_as_it_was_when_code_comes_from_the_cache() -> None:
    """Then no pass runs that could put it back."""
    x, weights = inputs()
    with fresh_cache(), functorch.patch(enable_autograd_cache=False):
        for _ in range(2):
            torch._dynamo.reset()
            before = cache_counters()["fx_hit"]
            step(by_options(gates), x, weights)
            assert functorch.donated_buffer
        assert cache_counters()["fx_hit"] > before

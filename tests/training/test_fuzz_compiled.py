"""The fuzzer that compiles sees what shows only behind Inductor, and leaves to torch what is torch's."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, fx
from typer.testing import CliRunner

from passwright.passes.patterns.softmaxes import BatchSoftmaxes
from passwright.passes.random_graphs import RandomGraph, Traits
from passwright.passes.random_walks import TorchFails, Walk, as_it_is
from passwright.passes.testing import capture, rewrite
from passwright.training import fuzz, fuzz_compiled

pytestmark = [pytest.mark.inductor, pytest.mark.filterwarnings("ignore")]

TRAITS = Traits(torch.float32, False, False, False, False, False, 0.0, False)


def inputs() -> list[Tensor]:
    draw = torch.Generator().manual_seed(0)
    weights = [torch.randn(8, 8, generator=draw).requires_grad_() for _ in range(3)]
    return [torch.randn(64, 8, generator=draw), *weights]


def graph_of(module: fx.GraphModule, given: list[Any]) -> RandomGraph:
    return RandomGraph(0, TRAITS, module, [given], None)


def gates(x: Tensor, *weights: Tensor) -> list[Tensor]:
    """What a mixture of experts weighs them with."""
    return [torch.softmax(x @ w, 1).unsqueeze(1) for w in weights]


def parts(x: Tensor, *weights: Tensor, copies: int = 1) -> list[Tensor]:
    """One softmax, which the backward needs, returned in parts; Inductor leaves the copies out."""
    batch = torch.softmax(torch.stack([x @ w for w in weights]), 2)
    found = list(batch.unbind())
    for _ in range(copies):
        found = [part.clone() for part in found]
    return [part.unsqueeze(1) for part in found]


def test_results_that_the_backward_writes_over_are_seen() -> None:
    result = rewrite(gates, inputs(), BatchSoftmaxes())
    assert result.labels
    graph = graph_of(result.original, result.inputs)
    assert as_it_is(graph, result.module) == ""
    found = fuzz_compiled.compiled(graph, result.module, rewritten=False)
    assert found.startswith("compiled, output")
    assert "is off by" in found
    assert fuzz_compiled.compiled(graph, result.module) == ""


def copied_gates(x: Tensor, *weights: Tensor) -> list[Tensor]:
    """What the caller may change in place."""
    return [torch.softmax(x @ w, 1).clone() for w in weights]


def test_copies_of_what_was_batched_may_be_changed_before_the_backward() -> None:
    result = rewrite(copied_gates, inputs(), BatchSoftmaxes())
    assert result.labels
    graph = graph_of(result.original, result.inputs)
    assert fuzz_compiled.compiled(graph, result.module) == ""


def test_what_the_untouched_graph_does_wrong_too_is_torchs() -> None:
    original, given = capture(parts, inputs())
    other, _ = capture(functools.partial(parts, copies=2), inputs())
    with pytest.raises(TorchFails, match="is off by"):
        fuzz_compiled.compiled(graph_of(original, given), other, rewritten=False)


def added(x: Tensor, w: Tensor) -> list[Tensor]:
    """Eager needs neither result for the backward."""
    return [x @ w, x + 1.0]


def test_results_are_changed_in_place_before_the_backward() -> None:
    original, given = capture(added, inputs()[:2])

    def spoils(x: Tensor, w: Tensor) -> list[Tensor]:
        product = x @ w
        return [product, product[:, :8]]

    assert fuzz_compiled._changed(original, original, given, 0) == ""
    found = fuzz_compiled._changed(original, spoils, given, 0)
    assert found.startswith("outputs [0, 1] changed in place, ")


def test_memory_that_was_not_shared_before_is_seen() -> None:
    original, given = capture(added, inputs()[:2])

    def shares(x: Tensor, w: Tensor) -> list[Tensor]:
        return [x @ w, x.view(x.shape)]

    assert fuzz_compiled._overlap(original, fuzz_compiled._call(original, original), given, 0) == ""
    found = fuzz_compiled._overlap(original, fuzz_compiled._call(original, shares), given, 0)
    assert found == "output 1 and input 0 lie on the same memory, and did not before"


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Runs the command; graph 1 fails and graph 2 is torch's, if it compiles at all."""

    def walked(seed: int, compile_it: bool) -> Walk:
        assert compile_it
        return Walk(seed, failure="wrong" * (seed == 1), excused="torch" * (seed == 2))

    import typer

    app = typer.Typer()
    app.command()(fuzz.fuzz)
    monkeypatch.setattr(fuzz, "_walk", walked)
    monkeypatch.setattr(fuzz, "_explained", lambda *_: [])
    return lambda *arguments: CliRunner().invoke(app, list(arguments))


def test_the_command_says_what_is_ours_and_what_torchs(command: Callable[..., Any]) -> None:
    result = command("--compile", "--seed", "1", "--count", "3")
    assert result.exit_code == 1
    assert "fuzz --compile --seed 1 --count 1" in result.output
    assert "graph 2, untouched: torch" in result.output
    assert "3 graphs, 0 steps, 1 failures, 1 fail without steps as well" in result.output
    assert command("--compile", "--seed", "2", "--count", "1").exit_code == 0

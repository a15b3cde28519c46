"""Parameter-only values computed once: the graph in two parts, and when they are renewed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

from passwright.passes.graph import GraphView
from passwright.passes.parameters import computed_once, parameter_only
from passwright.passes.testing import capture
from passwright.scheduler.cost import GraphCost
from passwright.scheduler.device import DeviceDescriptor
from passwright.scheduler.fold import FoldedCall, fold_parameters


class Joined(nn.Module):
    """Two Linears as a rewrite would leave them: one, of weights joined at every call."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Parameter(torch.randn(3, 4)), nn.Parameter(torch.randn(5, 4))
        self.register_buffer("shift", torch.randn(8))

    def forward(self, x: Tensor) -> Tensor:
        weight = torch.cat([self.a, self.b])
        return F.linear(x, weight * 2, self.shift.exp())


def captured(model: Callable[..., Any], *inputs: Tensor) -> tuple[fx.GraphModule, list[Any]]:
    with torch.no_grad():
        return capture(model, inputs)


def as_it_is(module: fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
    return module.forward


def names(nodes: Any) -> list[str]:
    return [node.name for node in nodes if node.op.startswith("call")]


def test_what_is_kept() -> None:
    module, _ = captured(Joined(), torch.randn(2, 4))
    view = GraphView(module.graph)
    assert set(names(parameter_only(view))) == {"weight", "mul", "exp"}
    assert sorted(names(computed_once(view))) == ["exp", "mul"]


def test_the_two_parts() -> None:
    model, x = Joined(), torch.randn(2, 4)
    module, inputs = captured(model, x)
    folded = fold_parameters(module, inputs)
    assert folded is not None
    assert names(folded.main.graph.nodes) == ["linear"]
    assert sorted(names(folded.prelude.graph.nodes)) == ["exp", "mul", "weight"]
    call = FoldedCall(folded, inputs, as_it_is)
    torch.testing.assert_close(call(*inputs)[0], model(x))
    assert len(names(module.graph.nodes)) == 4, "the module itself stays"


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m.a.add_(1),
        lambda m: m.shift.mul_(2),
        lambda m: m.load_state_dict({k: v + 1 for k, v in m.state_dict().items()}),
        lambda m: setattr(m.b, "data", torch.randn(5, 4)),
        lambda m: setattr(m, "a", nn.Parameter(torch.randn(3, 4))),
    ],
)
def test_a_change_of_parameters_is_noticed(change: Callable[[Any], Any]) -> None:
    model, x = Joined(), torch.randn(2, 4)
    module, inputs = captured(model, x)
    at = {id(value): place for place, value in enumerate(inputs) if isinstance(value, Tensor)}
    order = [(name, at[id(v)]) for name, v in model.state_dict(keep_vars=True).items()]
    folded = fold_parameters(module, inputs)
    assert folded is not None
    call = FoldedCall(folded, inputs, as_it_is)
    kept = [value.data_ptr() for value in call._kept]
    with torch.no_grad():
        change(model)
    for name, place in order:
        inputs[place] = getattr(model, name)
    torch.testing.assert_close(call(*inputs)[0], model(x))
    assert [value.data_ptr() for value in call._kept] == kept, "where a CUDA graph looks for them"


def test_nothing_is_renewed_without_need() -> None:
    module, inputs = captured(Joined(), torch.randn(2, 4))
    folded = fold_parameters(module, inputs)
    assert folded is not None
    call = FoldedCall(folded, inputs, as_it_is)
    call(*inputs)
    version = [value._version for value in call._kept]
    call(*inputs)
    assert [value._version for value in call._kept] == version


def test_a_write_whose_result_nobody_takes_stays() -> None:
    """A method that writes has no user, and is not dead all the same."""
    model = Joined()
    model.register_buffer("calls", torch.zeros(()))

    def run(x: Tensor) -> Tensor:
        model.calls.add_(1)
        return model(x)

    module, inputs = captured(run, torch.randn(2, 4))
    folded = fold_parameters(module, inputs)
    assert folded is not None
    call = FoldedCall(folded, inputs, as_it_is)
    before = float(model.calls)
    call(*inputs)
    assert float(model.calls) == before + 1


def test_views_stay_in_the_main_graph() -> None:
    weights = nn.ParameterList(torch.randn(4, 4) for _ in range(2))

    def run(x: Tensor) -> Tensor:
        first, second = torch.stack(list(weights)).unbind(0)
        return F.linear(F.linear(x, first), second.t()) @ weights[0].t()

    module, inputs = captured(run, torch.randn(2, 4))
    folded = fold_parameters(module, inputs)
    assert folded is not None
    assert names(folded.prelude.graph.nodes) == ["stack"]
    assert "stack" not in names(folded.main.graph.nodes)
    call = FoldedCall(folded, inputs, as_it_is)
    torch.testing.assert_close(call(*inputs), module(*inputs))


@pytest.mark.parametrize(
    "run",
    [
        lambda p, _: p.exp(),
        lambda p, _: p.exp()[:2],
        lambda p, x: p.add_(1).exp() + x,
        lambda p, x: x.exp() + p,
        lambda p, x: torch.rand_like(p) + x,
        lambda p, x: p.t() + x,
    ],
    ids=["output", "view in output", "written", "inputs", "random", "views"],
)
def test_nothing_to_keep(run: Callable[..., Tensor]) -> None:
    parameter = nn.Parameter(torch.randn(4, 4))
    module, inputs = captured(lambda x: run(parameter, x), torch.randn(4, 4))
    assert fold_parameters(module, inputs) is None


def test_tensors_of_inference_mode_are_left_alone() -> None:
    """They have no version counter, so a write would go unnoticed."""
    with torch.inference_mode():
        model = Joined()
    module, inputs = captured(Joined(), torch.randn(2, 4))
    inference = [model.a if value.shape == (3, 4) else value for value in inputs]
    assert fold_parameters(module, inputs) is not None
    assert fold_parameters(module, inference) is None


def test_autocast_is_left_alone() -> None:
    model = Joined()

    def run(x: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return model(x)

    module, inputs = captured(run, torch.randn(2, 4))
    assert fold_parameters(module, inputs) is None


def test_folded_values_cost_nothing(h200: DeviceDescriptor) -> None:
    module, _ = captured(Joined(), torch.randn(2, 4))
    view = GraphView(module.graph)

    def kernels(training: bool, folds: bool) -> int:
        return GraphCost(view, h200, training=training, folds=folds).estimate().kernels

    assert kernels(training=False, folds=True) == 1 < kernels(training=False, folds=False)
    assert kernels(training=True, folds=True) == kernels(training=True, folds=False)


def test_in_the_backend() -> None:
    model, x = Joined(), torch.randn(2, 4)
    torch._dynamo.reset()
    compiled = torch.compile(model, backend="passwright", options={"fold_parameters": True})
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), model(x))
        model.a.mul_(3)
        torch.testing.assert_close(compiled(x), model(x))
    torch.testing.assert_close(compiled(x), model(x))
    compiled(x).sum().backward()
    assert model.a.grad is not None, "training is not touched"

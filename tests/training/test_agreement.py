"""Agreement of two ways to run a module: what counts as the same, and what must not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from passwright.training import agreement as agreeing
from passwright.training.agreement import (
    Agreement,
    Observation,
    agreement,
    observe,
    oracle,
    shaken,
    without_dropout,
)


class Model(nn.Module):
    """Two outputs, one parameter that nothing depends on, and one that cancels out."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 16), nn.Linear(16, 4)
        self.norm = nn.BatchNorm1d(16)  # which takes the first bias out again
        self.unused = nn.Parameter(torch.ones(3))

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        hidden = torch.tanh(self.norm(self.first(x)))
        return {"hidden": hidden, "out": self.second(hidden)}


@pytest.fixture
def model() -> Model:
    torch.manual_seed(0)
    return Model()


X = torch.randn(32, 8, generator=torch.Generator().manual_seed(1))


def judged(model: nn.Module, run: Callable[..., Any], *, train: bool = True) -> Agreement:
    expected = observe(model, model, (X,), train=train)
    actual = observe(model, run, (X,), train=train)
    return agreement(expected, actual, oracle(model, (X,), train=train))


@pytest.mark.parametrize("train", [True, False])
def test_another_order_of_the_same_sums_agrees(model: Model, train: bool) -> None:
    def otherwise(x: Tensor) -> dict[str, Tensor]:
        parts = x[:, :3] @ model.first.weight[:, :3].T, x[:, 3:] @ model.first.weight[:, 3:].T
        hidden = torch.tanh(model.norm(parts[1] + parts[0] + model.first.bias))
        return {"hidden": hidden, "out": model.second(hidden)}

    verdict = judged(model, otherwise, train=train)
    assert verdict.ok, verdict.sentence
    assert verdict.oracle
    assert verdict.output_error < 1e-5
    assert verdict.gradient_error < 1e-4


def test_wrong_outputs_are_found(model: Model) -> None:
    def wrong(x: Tensor) -> dict[str, Tensor]:
        found = model(x)
        return found | {"out": found["out"] * 1.001}

    for train in (True, False):
        verdict = judged(model, wrong, train=train)
        assert not verdict.ok
        assert "is off by" in verdict.sentence


def test_wrong_gradients_are_found(model: Model) -> None:
    def wrong(x: Tensor) -> dict[str, Tensor]:
        found = model(x)
        out = found["out"] + 0.01 * (model.unused.sum() - model.unused.sum().detach())
        return found | {"out": out}

    assert judged(model, wrong, train=False).ok
    verdict = judged(model, wrong)
    assert not verdict.ok
    assert "gradient of unused" in verdict.sentence


def test_nan_and_other_shapes_are_found(model: Model) -> None:
    def nan(x: Tensor) -> dict[str, Tensor]:
        found = model(x)
        return found | {"out": found["out"] / torch.zeros(4)}

    def fewer(x: Tensor) -> dict[str, Tensor]:
        found = model(x)
        return found | {"out": found["out"][:, :2]}

    assert "NaN" in judged(model, nan, train=False).sentence
    assert "shapes" in judged(model, fewer, train=False).sentence


def test_without_a_float64_run_eager_counts(model: Model) -> None:
    class Single(Model):
        def forward(self, x: Tensor) -> dict[str, Tensor]:
            return super().forward(torch.from_numpy(x.numpy().astype("float32")))

    single = Single()
    assert oracle(single, (X,), train=False) is None
    verdict = judged(single, single)
    assert verdict.ok
    assert not verdict.oracle
    assert not judged(single, lambda x: {k: 1.01 * v for k, v in single(x).items()}).ok


def test_observing_leaves_no_gradients(model: Model) -> None:
    observe(model, model, (X,), train=True)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_dropout_of_any_kind_is_off() -> None:
    class Functional(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.attention_dropout = nn.Dropout(0.5), 0.3
            self.attention = nn.MultiheadAttention(4, 2, dropout=0.2)

        def forward(self, x: Tensor) -> Tensor:
            x = nn.functional.dropout(self.layer(x), self.attention_dropout, self.training)
            return self.attention(x, x, x)[0]

    module = without_dropout(Functional().train())
    x = torch.randn(5, 2, 4)
    assert torch.equal(module(x), module(x))


def test_a_unit_at_its_kink_is_no_disagreement_but_a_wrong_factor_is() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 1))
    x = torch.randn(64, 8)
    with torch.no_grad():
        model[0].bias[0] -= model[0](x)[3, 0]
    passes = bool(model[0](x)[3, 0] > 0)
    nudge = torch.zeros(64, 4)
    nudge[3, 0] = -2e-7 if passes else 2e-7

    def nudged(y: torch.Tensor) -> torch.Tensor:
        return model[2](torch.relu(model[0](y) + nudge))

    def scaled(y: torch.Tensor) -> torch.Tensor:
        return model(y) * 1.001

    def shake() -> list[Observation]:
        return shaken(model, (x,), train=True)

    expected, reference = observe(model, model, (x,), train=True), oracle(model, (x,), train=True)
    at_kink = observe(model, nudged, (x,), train=True)
    assert not agreement(expected, at_kink, reference).ok
    assert agreement(expected, at_kink, reference, shake).ok
    assert not agreement(expected, observe(model, scaled, (x,), train=True), reference, shake).ok


@pytest.mark.parametrize(("rows", "agrees"), [(16, False), (16384, True)])
def test_a_gradient_may_be_off_by_the_rounding_of_a_sum_over_the_batch(
    rows: int, agrees: bool
) -> None:
    exact = torch.randn(8, 8, generator=torch.Generator().manual_seed(0))
    out = torch.ones(rows, 1)
    reference = Observation((out.double(),), {"weight": exact.double()})
    eager = Observation((out,), {"weight": exact})
    other = Observation((out,), {"weight": exact * (1 + 5e-6)})
    assert agreement(eager, other, reference).ok is agrees
    wrong = Observation((out,), {"weight": exact * (1 + 1e-4)})
    assert not agreement(eager, wrong, reference).ok


def test_a_model_of_lower_precision_is_shaken_as_much_as_it_rounds() -> None:
    torch.manual_seed(0)
    model, x = nn.Linear(8, 4), torch.randn(64, 8)
    offs = {}
    for dtype in (torch.float32, torch.bfloat16):
        there, given = model.to(dtype), (x.to(dtype),)
        exact = oracle(there, given, train=False)
        assert exact is not None
        runs = shaken(there, given, train=False)
        offs[dtype] = max(float((run.outputs[0] - exact.outputs[0]).abs().max()) for run in runs)
    assert offs[torch.float32] < 1e-5
    assert 1e-3 < offs[torch.bfloat16] < 1e-1


def test_whole_numbers_among_the_outputs_must_be_equal() -> None:
    def counts(x: Tensor) -> tuple[Tensor, Tensor]:
        return x * 2, (x > 0).sum(dim=0)

    model = nn.Identity()
    exact = observe(model, lambda x: counts(x.double()), (X,), train=False)
    expected = observe(model, counts, (X,), train=False)
    off = observe(model, lambda x: (x * 2, (x > 0).sum(dim=0) + 1), (X,), train=False)
    assert agreement(expected, expected, exact).ok
    assert agreement(expected, off, exact).sentence == "output 1 has other values"


class _Product(nn.Module):
    """No parameter is in it."""

    def forward(self, x: torch.Tensor, y: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        return x @ y + ids


def test_inputs_are_shaken_as_much_as_products_round_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """A graph cut out of a model multiplies inputs; in TF32 eager rounds them or not, by their shapes."""
    x, y, ids = torch.randn(8, 16), torch.randn(16, 4), torch.tensor([1.0, 7.0, 4095.0, 65537.0])
    module = _Product()

    def spread() -> float:
        exact = oracle(module, (x, y, ids), train=False)
        assert exact is not None
        runs = shaken(module, (x, y, ids), train=False)
        return max(float((r.outputs[0] - exact.outputs[0]).abs().max()) for r in runs)

    assert spread() == 0.0  # on a CPU nothing multiplies in less than float32
    monkeypatch.setattr(agreeing, "_rounding", lambda _: 2.0**-10)
    # Ids are left alone: off by so much, the largest would be off by 64.
    assert 2.0**-10 < spread() < 0.1

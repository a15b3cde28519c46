"""Chains of products in the cheaper order."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from passwright.passes.dialect import Dialect
from passwright.passes.patterns import EinsumInPairs, MergeLinears, ReassociateMatmuls
from passwright.passes.patterns.associate import _best, _cost_of
from passwright.passes.testing import rewrite

MATMULS, LINEARS, EINSUM = ReassociateMatmuls(), MergeLinears(), EinsumInPairs()


def tensors(*shapes: tuple[int, ...]) -> list[Tensor]:
    return [torch.randn(*shape, requires_grad=True) for shape in shapes]


def left(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    return torch.relu(torch.matmul(torch.matmul(a, b), c))


def right(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    return torch.relu(torch.matmul(a, torch.matmul(b, c)))


@pytest.mark.parametrize(
    ("fn", "shapes"),
    [
        pytest.param(left, [(9, 9), (9, 9), (9, 1)], id="matrices"),
        pytest.param(right, [(1, 9), (9, 9), (9, 9)], id="matrices from the right"),
        pytest.param(left, [(2, 9, 9), (9, 9), (9, 1)], id="a batch to the left"),
        pytest.param(right, [(1, 9), (9, 9), (2, 9, 9)], id="a batch to the right"),
        pytest.param(left, [(2, 9, 9), (2, 9, 9), (2, 9, 1)], id="batches"),
        pytest.param(left, [(3, 2, 9, 9), (3, 2, 9, 9), (3, 2, 9, 1)], id="two leading dims"),
    ],
)
def test_cheaper_order(fn: Any, shapes: list[tuple[int, ...]]) -> None:
    result = rewrite(fn, tensors(*shapes), MATMULS)
    assert len(result.labels) == 1
    found = [n for n in result.module.graph.nodes if n.target is torch.matmul]
    # The larger of the two results is gone.
    assert all(1 in n.meta["example_value"].shape[-2:] for n in found)
    result.check()


def test_aten(sketch: Any, applied: Any) -> None:
    aten = torch.ops.aten
    s = sketch(Dialect.ATEN)
    a, b, c = (s.input(2, *shape) for shape in ((9, 9), (9, 9), (9, 1)))
    product = s.call(aten.bmm.default, s.call(aten.bmm.default, a, b), c)
    s.output(s.call(aten.relu.default, product))
    assert applied(s, MATMULS).count("aten.bmm.default") == 2


@pytest.mark.parametrize(
    ("fn", "shapes"),
    [
        pytest.param(left, [(9, 9), (9, 9), (9, 9)], id="no cheaper"),
        pytest.param(left, [(9, 9), (9, 9), (9, 8)], id="hardly cheaper"),
        pytest.param(right, [(9, 9), (9, 9), (9, 1)], id="cheapest already"),
        pytest.param(left, [(1, 9, 9), (2, 9, 9), (9, 1)], id="broadcast"),
        pytest.param(left, [(2, 9, 9), (9, 9), (3, 2, 9, 1)], id="broadcast later"),
    ],
)
def test_other_chains_stay(fn: Any, shapes: list[tuple[int, ...]]) -> None:
    assert rewrite(fn, tensors(*shapes), MATMULS).labels == []


@pytest.mark.parametrize("how", ["seen", "written", "autocast"])
def test_refusals(sketch: Any, applied: Any, how: str) -> None:
    s = sketch()
    a, b, c = s.input(9, 9), s.call(torch.relu, s.input(9, 9)), s.input(9, 1)
    cast = None
    if how == "autocast":
        cast = s.call(torch.amp.autocast_mode._enter_autocast, "cpu", torch.bfloat16, True, True)
    inner = s.call(torch.matmul, a, b)
    if how == "written":
        s.call("add_", b, 1)
    outer = s.call(torch.matmul, inner, c)
    if cast is not None:
        s.call(torch.amp.autocast_mode._exit_autocast, cast)
    s.output(outer, *([inner] if how == "seen" else []))
    assert applied(s, MATMULS).labels == []


def test_symbolic_sizes_stay() -> None:
    assert rewrite(left, tensors((9, 9), (9, 9), (9, 1)), MATMULS, dynamic=True).labels == []


# ---- Linears


@pytest.mark.parametrize("dialect", list(Dialect))
@pytest.mark.parametrize("biases", [(True, True), (True, False), (False, True), (False, False)])
def test_linear_of_linear(dialect: Dialect, biases: tuple[bool, bool]) -> None:
    model = nn.Sequential(nn.Linear(8, 6, bias=biases[0]), nn.Linear(6, 1, bias=biases[1]))
    result = rewrite(model, tensors((50, 8)), LINEARS, dialect=dialect)
    assert len(result.labels) == 1
    result.check()


def test_rows_of_rank_3() -> None:
    result = rewrite(nn.Sequential(nn.Linear(8, 6), nn.Linear(6, 1)), tensors((5, 10, 8)), LINEARS)
    assert len(result.labels) == 1
    result.check()


@pytest.mark.parametrize("how", ["few rows", "bottleneck", "seen", "written", "bias"])
def test_other_linears_stay(sketch: Any, applied: Any, how: str) -> None:
    s = sketch()
    x = s.input(2 if how == "few rows" else 50, 8)
    middle, out = (2, 8) if how == "bottleneck" else (6, 2)
    v, w = s.call(torch.relu, s.input(middle, 8)), s.input(out, middle)
    inner = s.call(F.linear, x, v, s.input(1) if how == "bias" else None)
    if how == "written":
        s.call("add_", v, 1)
    s.output(s.call(F.linear, inner, w), *([inner] if how == "seen" else []))
    assert applied(s, LINEARS).labels == []


# ---- einsum


def chain(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> Tensor:
    return torch.einsum("ab,bc,cd,de->ae", a, b, c, d)


@pytest.fixture
def without_opt_einsum(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.opt_einsum, "enabled", False)


@pytest.mark.usefixtures("without_opt_einsum")
def test_einsum_in_pairs() -> None:
    result = rewrite(chain, tensors((9, 8), (8, 7), (7, 6), (6, 2)), EINSUM)
    assert [x.split(" @ ")[0] for x in result.labels] == ["einsum_in_pairs{path=23.02.01}"]
    assert result.count("einsum") == 3
    result.check()


@pytest.mark.usefixtures("without_opt_einsum")
@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        pytest.param("ab,bc,cd->ad", [(2, 9), (9, 9), (9, 9)], id="left to right is best"),
        pytest.param("ab,bc->ac", [(9, 9), (9, 1)], id="two operands"),
        pytest.param("ab,bc,cd->ad", [(9, 9), (1, 9), (9, 1)], id="a size 1 is broadcast"),
    ],
)
def test_other_einsums_stay(sketch: Any, applied: Any, equation: str, shapes: Any) -> None:
    s = sketch()
    s.output(s.call(torch.einsum, equation, *(s.input(*shape) for shape in shapes)))
    assert applied(s, EINSUM).labels == []


def test_opt_einsum_knows_better(sketch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    s = sketch()
    shapes = ((9, 8), (8, 7), (7, 6), (6, 2))
    monkeypatch.setattr(torch.backends.opt_einsum, "enabled", False)
    node = s.call(torch.einsum, "ab,bc,cd,de->ae", *(s.input(*shape) for shape in shapes))
    s.output(node)
    view = s.view()
    monkeypatch.setattr(torch.backends.opt_einsum, "is_available", lambda: True)
    assert len(list(EINSUM.matches(view, view.read(node)))) == 1
    monkeypatch.setattr(torch.backends.opt_einsum, "enabled", True)
    assert list(EINSUM.matches(view, view.read(node))) == []


def test_best_path_is_never_dearer() -> None:
    sizes = {"a": 3, "b": 50, "c": 2, "d": 40, "e": 5}
    labels = ["ab", "bc", "cd", "de", "ae"]
    path, cost = _best(labels, "", sizes)
    assert cost == _cost_of(labels, path, "", sizes)
    assert cost < _cost_of(labels, [(0, 1)] * 4, "", sizes)

"""Ops of unequal widths that become one grouped kernel.

The patterns want a GPU; here they are told that a CPU is one, and plain torch stands for the kernel.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from grouped_graphs import LINEAR, NORM, labels, linear, norm, observed
from torch import Tensor, nn

from passwright.passes.dialect import Dialect
from passwright.passes.legality import takes_triton
from passwright.passes.patterns.grouped_gather import GatherIntoCat
from passwright.passes.patterns.grouped_layer_norm import GroupLayerNorms
from passwright.passes.patterns.grouped_linear import GroupLinears
from passwright.passes.testing import rewrite
from passwright.scheduler.inductor import compile_with_inductor

LINEARS, NORMS, GATHER = GroupLinears(), GroupLayerNorms(), GatherIntoCat()
ALL = (LINEARS, NORMS, GATHER)
MODULES = ("grouped_linear", "grouped_layer_norm", "grouped_gather")


@pytest.fixture(autouse=True)
def triton(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[bool], None]]:
    """`triton(False)`: as where there is no GPU."""

    def pretend(there: bool) -> None:
        for name in MODULES:
            monkeypatch.setattr(f"passwright.passes.patterns.{name}.takes_triton", lambda *_: there)

    pretend(True)
    yield pretend
    torch._dynamo.reset()


# ---- Linears


@pytest.mark.parametrize("bias", [True, False])
def test_linears_of_unequal_widths(sketch: Any, applied: Any, bias: bool) -> None:
    s = sketch()
    observed(s, *(linear(s, 5, *sizes, bias) for sizes in ((3, 4), (7, 2), (1, 6))))
    result = applied(s, LINEARS)
    assert labels(result) == ["group_linears{members=3,activation=none}"]
    assert result.calls == [LINEAR, "split", *["getitem"] * 3, *["cat"] * 3]
    assert len([line for line in result.diffs[0] if line.startswith("- ")]) == 3


@pytest.mark.parametrize("function", [torch.relu, F.relu, torch.sigmoid, torch.tanh])
def test_an_activation_goes_into_the_kernel(sketch: Any, applied: Any, function: Any) -> None:
    s = sketch()
    observed(s, *(s.call(function, linear(s, 5, *sizes)) for sizes in ((3, 4), (7, 2))))
    result = applied(s, LINEARS)
    name = function.__name__
    assert labels(result) == [f"group_linears{{members=2,activation={name}}}"]
    assert result.calls == [LINEAR, "split", *["getitem"] * 2, "cat", "cat"]


def test_activations_that_stay_outside(sketch: Any, applied: Any) -> None:
    """Another function, and one of whose argument somebody else knows."""
    s = sketch()
    a, b, c, d = (linear(s, 5, *sizes) for sizes in ((3, 4), (7, 2), (2, 2), (3, 3)))
    values = [s.call(F.gelu, a), s.call(F.softplus, b), s.call(torch.relu, c), s.call(torch.neg, c)]
    observed(s, *values, d)
    result = applied(s, LINEARS)
    assert labels(result) == ["group_linears{members=4,activation=none}"]
    assert {"gelu", "softplus", "relu", "neg"} <= set(result.calls)


def test_one_activation_a_group(sketch: Any, groups: Any) -> None:
    s = sketch()
    sizes = ((3, 4), (7, 2), (2, 2), (3, 3), (1, 2))
    values = [linear(s, 5, *pair) for pair in sizes]
    functions = (torch.relu, torch.relu, torch.tanh, torch.tanh, torch.exp)
    s.output(*(s.call(torch.neg, s.call(f, v)) for f, v in zip(functions, values, strict=True)))
    assert groups(s, LINEARS) == [2, 2]


def test_pieces_of_one_tensor_and_rank_3(sketch: Any, applied: Any) -> None:
    s = sketch()
    pieces = s.call(torch.split, s.input(2, 5, 10, requires_grad=True), [3, 7], -1)
    values = []
    for i, (inner, out) in enumerate(((3, 4), (7, 2))):
        piece = s.call(operator.getitem, pieces, i)
        values.append(s.call(F.linear, piece, s.input(out, inner, requires_grad=True)))
    observed(s, *values)
    result = applied(s, LINEARS)
    assert result.count(LINEAR) == 1
    assert result.count("reshape") == 4


def test_a_member_that_needs_another_stays_outside(sketch: Any, groups: Any) -> None:
    s = sketch()
    first = linear(s, 5, 3, 4)
    s.output(s.call(F.linear, first, s.input(2, 4)), s.call(torch.exp, linear(s, 5, 2, 2)))
    assert groups(s, LINEARS) == [2]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param({}, {"dtype": torch.bfloat16}, id="type"),
        pytest.param({}, {"rows": 6}, id="rows"),
        pytest.param({}, {"bias": False}, id="bias in one"),
        pytest.param({"rows": (5,)}, {"rows": (1, 5)}, id="rank"),
        pytest.param({"out": 1025}, {"out": 1025}, id="too wide"),
        pytest.param({"inner": 1025}, {"inner": 1025}, id="too wide inside"),
        pytest.param({"dtype": torch.float64}, {"dtype": torch.float64}, id="float64"),
        pytest.param({"rows": ()}, {"rows": ()}, id="a vector"),
    ],
)
def test_linears_near_misses(sketch: Any, groups: Any, first: Any, second: Any) -> None:
    s = sketch()
    values = []
    for case in first, second:
        given = {"rows": 5, "inner": 3, "out": 4, **case}
        values.append(linear(s, **given))
    observed(s, *values)
    assert groups(s, LINEARS) == []


def test_weight_that_is_not_row_major(sketch: Any, groups: Any) -> None:
    s = sketch()
    w = s.input(4, 3, stride=(1, 4))
    observed(s, s.call(F.linear, s.input(5, 3), w), s.call(F.linear, s.input(5, 3), w))
    assert groups(s, LINEARS) == []


def test_bias_that_broadcasts(sketch: Any, groups: Any) -> None:
    s = sketch()
    values = [s.call(F.linear, s.input(5, 3), s.input(4, 3), s.input(1)) for _ in range(2)]
    observed(s, *values)
    assert groups(s, LINEARS) == []


def test_a_write_between_members(sketch: Any, groups: Any) -> None:
    s = sketch()
    x, y = s.input(5, 3), s.input(5, 2)
    first = s.call(F.linear, x, s.input(4, 3))
    s.call("add_", y, 1)
    observed(s, first, s.call(F.linear, y, s.input(4, 2)))
    assert groups(s, LINEARS) == []


def test_an_activation_that_overwrites(sketch: Any, groups: Any) -> None:
    s = sketch()
    values = [s.call(F.relu, linear(s, 5, *sizes), inplace=True) for sizes in ((3, 4), (7, 2))]
    observed(s, *values)
    assert groups(s, LINEARS) == []


def autocast_linears(x: Tensor, w: Tensor, v: Tensor) -> Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        return F.linear(x, w).sum() + F.linear(x[:, :2], v).sum()


def test_autocast() -> None:
    inputs = [torch.randn(5, 3, dtype=torch.bfloat16)]
    inputs += [torch.randn(4, 3, dtype=torch.bfloat16), torch.randn(2, 2, dtype=torch.bfloat16)]
    assert rewrite(autocast_linears, inputs, LINEARS).labels == []


# ---- layer norms


@pytest.mark.parametrize("affine", [True, False])
def test_norms_of_unequal_widths(sketch: Any, applied: Any, affine: bool) -> None:
    s = sketch()
    observed(s, *(norm(s, 5, width, affine) for width in (3, 8, 1)))
    result = applied(s, NORMS)
    assert labels(result) == ["group_layer_norms{members=3}"]
    assert result.calls == [NORM, "split", *["getitem"] * 3, *["cat"] * 3]


@pytest.mark.parametrize(
    "second",
    [
        pytest.param({"eps": 1e-3}, id="eps"),
        pytest.param({"rows": 6}, id="rows"),
        pytest.param({"affine": False}, id="weight in one"),
    ],
)
def test_norms_near_misses(sketch: Any, groups: Any, second: Any) -> None:
    s = sketch()
    observed(s, norm(s, 5, 3), norm(s, **{"rows": 5, "width": 4, **second}))
    assert groups(s, NORMS) == []


def test_norms_over_two_dims_or_of_mixed_types(sketch: Any, groups: Any) -> None:
    s = sketch()
    wide = [s.call(F.layer_norm, s.input(5, 3, 4), [3, 4]) for _ in range(2)]
    mixed = [
        s.call(F.layer_norm, s.input(5, 4, dtype=torch.bfloat16), [4], s.input(4), s.input(4))
        for _ in range(2)
    ]
    observed(s, *wide, *mixed)
    assert groups(s, NORMS) == []


# ---- all of them


class Model(nn.Module):
    """Look-ups of unequal widths, towers of unequal widths, norms of unequal widths."""

    def __init__(self) -> None:
        super().__init__()
        widths = (2, 5, 3)
        self.tables = nn.ModuleList(nn.Embedding(4 + w, w) for w in widths)
        self.norms = nn.ModuleList(nn.LayerNorm(w) for w in widths)
        self.towers = nn.ModuleList(nn.Linear(w, 2 * w) for w in widths)

    def forward(self, index: Tensor) -> Tensor:
        columns = [table(index[:, i]) for i, table in enumerate(self.tables)]
        pieces = torch.cat(columns, 1).split((2, 5, 3), 1)
        normed = [norm(piece) for norm, piece in zip(self.norms, pieces, strict=True)]
        return torch.cat(
            [torch.relu(tower(x)) for tower, x in zip(self.towers, normed, strict=True)], 1
        )


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_model(dynamic: bool) -> None:
    inputs = [torch.randint(0, 4, (6, 3))]
    if dynamic:
        torch._dynamo.mark_dynamic(inputs[0], 0)
    result = rewrite(Model(), inputs, *ALL, dynamic=None if dynamic else False)
    assert sorted(labels(result)) == [
        "gather_into_cat{first=0,members=3}",
        "group_layer_norms{members=3}",
        "group_linears{members=3,activation=relu}",
    ]
    result.check()


@pytest.mark.inductor
def test_inductor_compiles_what_is_rewritten() -> None:
    torch.manual_seed(0)
    result = rewrite(Model(), [torch.randint(0, 4, (6, 3))], *ALL)
    expected = result.original(*result.inputs)
    found = compile_with_inductor(result.module, result.inputs)(*result.inputs)
    torch.testing.assert_close(found, expected)
    wanted = [value for value in result.inputs if value.requires_grad]
    gradients = [torch.autograd.grad(out[0].square().sum(), wanted) for out in (found, expected)]
    torch.testing.assert_close(*gradients)


def test_no_candidates_without_a_gpu(triton: Callable[[bool], None]) -> None:
    triton(False)
    assert rewrite(Model(), [torch.randint(0, 4, (6, 3))], *ALL).labels == []


@pytest.mark.parametrize("installed", [True, False])
def test_where_triton_runs(sketch: Any, monkeypatch: pytest.MonkeyPatch, installed: bool) -> None:
    monkeypatch.setattr("passwright.passes.legality.importable", lambda: installed)
    s = sketch()
    given = [s.input(2, device=device) for device in ("cuda", "cuda", "cpu")]
    s.output(*given)
    view = s.view()
    assert takes_triton(view, *given[:2]) is installed
    assert not takes_triton(view, *given)


def test_not_in_aten() -> None:
    assert all(Dialect.ATEN not in pattern.levels for pattern in ALL)

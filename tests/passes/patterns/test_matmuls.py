"""Matrix products side by side: all their own, one left operand, one right operand."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from passwright.passes.dialect import Dialect
from passwright.passes.graph import GraphView
from passwright.passes.ops import Matmul
from passwright.passes.patterns import (
    BatchBinaries,
    BatchMatmuls,
    BatchUnaries,
    MatmulAsLinear,
    TallMatmuls,
    WidenLinears,
    WidenMatmuls,
)
from passwright.passes.table import default_table
from passwright.passes.testing import capture, rewrite, rewrite_graph

aten = torch.ops.aten
BATCH, WIDEN, TALL, AS_LINEAR = BatchMatmuls(), WidenMatmuls(), TallMatmuls(), MatmulAsLinear()
ALL = (BATCH, WIDEN, TALL)
CLEANUPS = [pattern for pattern in default_table() if pattern.cleanup]
PIECES = ["getitem", "getitem"]


def operands(s: Any, *shapes: tuple[int, ...]) -> list[Any]:
    return [s.input(*shape, requires_grad=True) for shape in shapes]


def observed(s: Any, *values: Any) -> None:
    """Outputs through an op, so that nobody sees the strides of the values themselves."""
    s.output(*(s.call(torch.cat, [value]) for value in values))


# ---- before and after


def test_batch_of_matrices(sketch: Any, applied: Any) -> None:
    s = sketch()
    a, b, c, d = operands(s, (5, 3), (3, 4), (5, 3), (3, 4))
    observed(s, s.call(torch.matmul, a, b), s.call(torch.mm, c, mat2=d))
    result = applied(s, *ALL)
    assert [label.split(" @ ")[0] for label in result.labels] == ["batch_matmuls{members=2}"]
    assert result.calls == ["stack", "stack", "matmul", "unbind", *PIECES, "cat", "cat"]


@pytest.mark.parametrize(
    ("left", "right", "product"),
    [
        pytest.param((2, 5, 3), (2, 3, 4), (4, 5, 4), id="equal leading dims"),
        pytest.param((6, 2, 5, 3), (6, 2, 3, 4), (24, 5, 4), id="two leading dims"),
        pytest.param((2, 5, 3), (3, 4), (2, 10, 4), id="matrix to the right"),
        pytest.param((4, 3), (2, 3, 5), (2, 10, 4), id="matrix to the left"),
        pytest.param((4, 3), (2, 3, 1), (2, 2, 4), id="matrix and columns"),
    ],
)
def test_batch_merges_rows(
    sketch: Any, applied: Any, left: Any, right: Any, product: tuple[int, ...]
) -> None:
    s = sketch()
    pairs = [operands(s, left, right) for _ in range(2)]
    observed(s, *(s.call(torch.matmul, *pair) for pair in pairs))
    result = applied(s, BATCH)
    assert len(result.labels) == 1
    nodes = [n for n in result.module.graph.nodes if n.target is torch.matmul]
    assert [tuple(n.meta["example_value"].shape) for n in nodes] == [product]


def test_widen(sketch: Any, applied: Any) -> None:
    s = sketch()
    a, b, c = operands(s, (2, 5, 3), (3, 4), (3, 1))
    observed(s, s.call(torch.matmul, a, b), s.call(torch.matmul, a, c))
    result = applied(s, *ALL)
    assert result.calls == ["cat", "matmul", "split", *PIECES, "cat", "cat"]


def test_tall_of_one_matrix_stacks(sketch: Any, applied: Any) -> None:
    s = sketch()
    a, b, w = operands(s, (2, 5, 3), (2, 5, 3), (3, 4))
    observed(s, *(s.call(torch.matmul, x, w) for x in (a, b)))
    assert applied(s, *ALL).calls == ["stack", "matmul", "unbind", *PIECES, "cat", "cat"]


@pytest.mark.parametrize("left", [(7, 1, 4), (4,)])
def test_tall_of_a_batch_takes_rows(sketch: Any, applied: Any, left: tuple[int, ...]) -> None:
    """Gates over the same experts; or low-rank matrices that meet the same columns."""
    s = sketch()
    shapes = [left, (7, 3, 4)] if len(left) > 1 else [(1, 4), (3, 4)]
    a, b = operands(s, *shapes)
    w = s.input(7, 4, 6, requires_grad=True)
    observed(s, *(s.call(torch.matmul, x, w) for x in (a, b)))
    result = applied(s, *ALL)
    assert result.calls == ["cat", "matmul", "split", *PIECES, "cat", "cat"]
    assert ", [1, 3], dim=1)" in next(line for line in result.after if "split(" in line)


def test_aten(sketch: Any, applied: Any) -> None:
    for pattern, shared in (BATCH, None), (WIDEN, 0), (TALL, 1):
        s = sketch(Dialect.ATEN)
        pairs = [[s.input(2, 5, 3), s.input(2, 3, 4)] for _ in range(2)]
        if shared is not None:
            pairs[1][shared] = pairs[0][shared]
        s.output(*(s.call(aten.cat.default, [s.call(aten.bmm.default, *p)] * 2) for p in pairs))
        result = applied(s, *ALL)
        assert result.labels[0].startswith(pattern.name())
        assert result.count("aten.bmm.default") == 1


class LowRankExperts(nn.Module):
    """The experts of one cross layer, in the coding that public models share."""

    def __init__(self, experts: int, width: int, rank: int) -> None:
        super().__init__()
        self.u = nn.Parameter(torch.randn(experts, width, rank))
        self.v = nn.Parameter(torch.randn(experts, width, rank))
        self.c = nn.Parameter(torch.randn(experts, rank, rank))
        self.bias = nn.Parameter(torch.randn(width, 1))
        self.gates = nn.ModuleList(nn.Linear(width, 1, bias=False) for _ in range(experts))

    def forward(self, x: Tensor) -> Tensor:
        columns = x.unsqueeze(2)
        outputs, scores = [], []
        for expert, gate in enumerate(self.gates):
            scores.append(gate(x))
            y = torch.tanh(torch.matmul(self.v[expert].t(), columns))
            y = torch.tanh(torch.matmul(self.c[expert], y))
            y = torch.matmul(self.u[expert], y) + self.bias
            outputs.append((columns * y).squeeze(2))
        chosen = torch.stack(scores, 1).softmax(1)
        return torch.matmul(torch.stack(outputs, 2), chosen).squeeze(2)


@pytest.mark.parametrize("training", [True, False])
def test_low_rank_experts_collapse(training: bool) -> None:
    """No product, function or copy of one expert alone is left, in training and without grad."""
    model = LowRankExperts(4, 12, 6)
    with torch.set_grad_enabled(training):
        module, inputs = capture(model, [torch.randn(5, 12)])
    patterns = (*ALL, BatchUnaries(), BatchBinaries(), WidenLinears())
    result = rewrite_graph(module, inputs, *patterns, *CLEANUPS)
    result.check(gradients=training)
    counts = {name: result.count(name) for name in ("matmul", "tanh", "mul", "linear", "stack")}
    assert counts == {"matmul": 4, "tanh": 2, "mul": 1, "linear": 1, "stack": 0}
    assert result.count("getitem") == 0


def test_dynamic_batch() -> None:
    x = torch.randn(6, 5, 3, requires_grad=True)
    torch._dynamo.mark_dynamic(x, 0)
    w = [torch.randn(3, 4, requires_grad=True) for _ in range(3)]
    v = [torch.randn(4, 5, requires_grad=True) for _ in range(3)]

    def fn(x: Tensor, w: list[Tensor], v: list[Tensor]) -> list[Tensor]:
        return [torch.relu(torch.matmul(b, torch.matmul(x, a))) for a, b in zip(w, v, strict=True)]

    result = rewrite(fn, [x, w, v], *ALL, dynamic=None)
    names = [label.partition("{")[0] for label in result.labels]
    assert sorted(names) == ["batch_matmuls", "widen_matmuls"]
    result.check()


def test_all_sizes_dynamic_do_not_merge() -> None:
    def fn(x: list[Tensor], y: list[Tensor]) -> list[Tensor]:
        return [torch.relu(torch.matmul(a, b)) for a, b in zip(x, y, strict=True)]

    x = [torch.randn(6, 5, 3) for _ in range(2)]
    y = [torch.randn(6, 3, 4) for _ in range(2)]
    assert rewrite(fn, [x, y], *ALL, dynamic=True).labels == []


# ---- what must not be batched


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param([(5, 3), (3, 4)], [(6, 3), (3, 4)], id="rows"),
        pytest.param([(5, 3), (3, 4)], [(5, 3), (3, 2)], id="columns"),
        pytest.param([(1, 5, 3), (2, 3, 4)], [(1, 5, 3), (2, 3, 4)], id="broadcast leading dims"),
        pytest.param([(2, 5, 3), (6, 2, 3, 4)], [(2, 5, 3), (6, 2, 3, 4)], id="ranks"),
    ],
)
def test_near_misses(sketch: Any, groups: Any, first: Any, second: Any) -> None:
    s = sketch()
    pairs = [operands(s, *shapes) for shapes in (first, second)]
    observed(s, *(s.call(torch.matmul, *pair) for pair in pairs))
    assert [groups(s, pattern) for pattern in ALL] == [[], [], []]


def test_types_and_vectors_are_left_alone(sketch: Any, groups: Any) -> None:
    s = sketch()
    x = [s.input(5, 3, dtype=torch.int64) for _ in range(4)]
    y = [s.input(3, 4, dtype=torch.int64) for _ in range(4)]
    found = [s.call(torch.matmul, a, b) for a, b in zip(x, y, strict=True)]
    vectors = [s.call(torch.matmul, s.input(5, 3), s.input(3)) for _ in range(2)]
    observed(s, *found, *vectors)
    assert [groups(s, pattern) for pattern in ALL] == [[], [], []]


def test_shared_operands_belong_to_others(sketch: Any, groups: Any) -> None:
    s = sketch()
    a, b, c = operands(s, (5, 3), (3, 4), (3, 4))
    observed(s, s.call(torch.matmul, a, b), s.call(torch.matmul, a, c))
    assert (groups(s, BATCH), groups(s, WIDEN), groups(s, TALL)) == ([], [2], [])
    s = sketch()
    a, b, c = operands(s, (5, 3), (5, 3), (3, 4))
    observed(s, s.call(torch.matmul, a, c), s.call(torch.matmul, b, c))
    assert (groups(s, BATCH), groups(s, WIDEN), groups(s, TALL)) == ([], [], [2])
    s = sketch()
    a, b = operands(s, (5, 3), (3, 4))
    observed(s, s.call(torch.matmul, a, b), s.call(torch.matmul, a, b))
    assert (groups(s, BATCH), groups(s, WIDEN), groups(s, TALL)) == ([], [], [])


def test_write_between_members(sketch: Any, groups: Any) -> None:
    for shared in None, 0, 1:
        s = sketch()
        pairs = [[s.input(5, 3), s.input(3, 4)] for _ in range(2)]
        if shared is not None:
            pairs[1][shared] = pairs[0][shared]
        first = s.call(torch.matmul, *pairs[0])
        s.call("add_", pairs[1][1 if shared is None else shared], 1)
        observed(s, first, s.call(torch.matmul, *pairs[1]))
        assert [groups(s, pattern) for pattern in ALL] == [[], [], []]


def test_members_in_autocast_batch_among_themselves(sketch: Any, applied: Any, groups: Any) -> None:
    s = sketch()
    pairs = [operands(s, (5, 3), (3, 4)) for _ in range(3)]
    outer = s.call(torch.matmul, *pairs[0])
    cast = s.call(torch.amp.autocast_mode._enter_autocast, "cpu", torch.bfloat16, True, True)
    inner = [s.call(torch.matmul, *pair) for pair in pairs[1:]]
    s.call(torch.amp.autocast_mode._exit_autocast, cast)
    observed(s, outer, *inner)
    assert groups(s, BATCH) == [2]
    assert len(applied(s, BATCH, gradients=False).labels) == 1


def test_dependent_members_form_levels(sketch: Any, groups: Any) -> None:
    s = sketch()
    values = operands(s, (3, 3), (3, 3))
    for _ in range(2):
        values = [s.call(torch.matmul, v, s.input(3, 3)) for v in values]
    observed(s, *values)
    assert groups(s, BATCH) == [2, 2]


# ---- as Linear


@pytest.mark.parametrize("then", [False, True])
def test_matmul_as_linear_joins_its_siblings(sketch: Any, applied: Any, then: bool) -> None:
    s = sketch()
    x, w, v = operands(s, (5, 3), (3, 4), (2, 3))
    observed(s, s.call(torch.matmul, x, w), s.call(F.linear, x, v))
    result = applied(s, AS_LINEAR, *([WidenLinears()] if then else []))
    steps = ["matmul_as_linear{weight=right}", "widen_linears{members=2}"]
    assert [label.split(" @ ")[0] for label in result.labels] == steps[: 1 + then]
    assert (result.count("linear"), result.count("permute")) == (2 - then, 1)


@pytest.mark.parametrize("columns", [1, 6])
def test_matmul_as_linear_of_the_right_operand(sketch: Any, applied: Any, columns: int) -> None:
    s = sketch()
    w, x, y, v = operands(s, (4, 3), (2, 3, columns), (2, columns, 3), (4, 3))
    observed(s, s.call(torch.matmul, w, x), s.call(F.linear, y, v))
    result = applied(s, AS_LINEAR)
    assert result.labels[0].startswith("matmul_as_linear{weight=left}")
    assert result.count("linear") == 2
    # A column needs no transpose.
    assert result.count("permute") == (2 if columns > 1 else 0)


def test_matmul_without_a_sibling_stays(sketch: Any, applied: Any) -> None:
    s = sketch()
    x, y, w, v = operands(s, (5, 3), (6, 3), (3, 4), (2, 3))
    observed(s, s.call(torch.matmul, x, w), s.call(F.linear, y, v))
    assert applied(s, AS_LINEAR).labels == []


# ---- what the graph knows of products


@pytest.mark.parametrize(
    ("left", "right"), [((5, 3), (3, 4)), ((2, 5, 3), (3, 4)), ((2, 5, 3), (2, 3, 4))]
)
def test_a_product_is_row_major_whatever_its_operands_are(left: Any, right: Any) -> None:
    for requires_grad in (False, True):
        x = torch.randn(*reversed(left)).permute(*reversed(range(len(left))))
        y = torch.randn(*reversed(right)).permute(*reversed(range(len(right))))
        assert torch.matmul(x.requires_grad_(requires_grad), y).is_contiguous()


def test_views_of_parameters_without_grad_mode() -> None:
    """A view requires grad even there; what is computed from it does not."""
    weights = nn.Parameter(torch.randn(2, 3, 4))

    def fn(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return torch.relu(x @ weights[0]), torch.relu(y @ weights[1])

    with torch.no_grad():
        module, inputs = capture(fn, [torch.randn(5, 3), torch.randn(5, 3)])
    view = GraphView(module.graph)
    assert not any(view.needs_grad(op.node) for op in view.ops(Matmul))
    assert any(view.needs_grad(op.right) for op in view.ops(Matmul))
    result = rewrite_graph(module, inputs, BATCH, *CLEANUPS)
    assert result.calls[:3] == ["stack", "matmul", "unbind"]
    result.check(gradients=False)

"""Look-ups in many tables, written side by side by one kernel."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from grouped_graphs import LOOKUP, labels, lookup

from passwright.passes.graph import GraphView
from passwright.passes.patterns.grouped_gather import GatherIntoCat

GATHER = GatherIntoCat()


@pytest.fixture(autouse=True)
def triton(monkeypatch: pytest.MonkeyPatch) -> None:
    """A CPU passes for a GPU; plain torch stands for the kernel."""
    module = "passwright.passes.patterns.grouped_gather"
    monkeypatch.setattr(f"{module}.takes_triton", lambda *_: True)


# ---- look-ups


def found(s: Any) -> list[tuple[tuple[str, object], ...]]:
    view: GraphView = s.view()
    ops = [view.read(node) for node in view.nodes()]
    return [
        m.parameters for op in ops if type(op) in GATHER.anchors for m in GATHER.matches(view, op)
    ]


@pytest.mark.parametrize("shape", [(5,), (5, 1), (5, 3)])
def test_lookups_of_unequal_widths(sketch: Any, applied: Any, shape: tuple[int, ...]) -> None:
    s = sketch()
    s.output(s.call(torch.cat, [lookup(s, *t, shape) for t in ((4, 2), (9, 3), (4, 2))], -1))
    result = applied(s, GATHER)
    assert labels(result) == ["gather_into_cat{first=0,members=3}"]
    assert [name for name in result.calls if name != "reshape"] == [LOOKUP]
    expected, actual = result.original(*result.inputs), result.module(*result.inputs)
    assert all(map(torch.equal, expected, actual))


def test_a_stack_of_lookups(sketch: Any, applied: Any) -> None:
    """As public models have it: unsqueezed, cat, and flattened."""
    s = sketch()
    rows = [lookup(s, *t) for t in ((4, 3), (9, 3), (6, 3))]
    whole = s.call(torch.cat, [s.call("unsqueeze", r, 1) for r in rows], 1)
    s.output(s.call("flatten", whole, 1), s.call(torch.exp, rows[1]))
    result = applied(s, GATHER)
    assert labels(result) == ["gather_into_cat{first=0,members=3}"]
    assert result.count(LOOKUP) == 1
    assert result.count("embedding") == 0


def test_other_stacks_stay(sketch: Any, applied: Any) -> None:
    s = sketch()
    rows = [lookup(s, *t) for t in ((4, 3), (9, 3))]
    first = s.call(torch.stack, rows, 0)
    last = s.call(torch.stack, rows, 2)
    mixed = s.call(torch.stack, [*rows, s.input(5, 3, requires_grad=True)], 1)
    s.output(first, last, mixed)
    assert labels(applied(s, GATHER)) == []


def test_lookups_among_others_and_used_elsewhere(sketch: Any, applied: Any) -> None:
    s = sketch()
    x = s.input(5, 2, requires_grad=True)
    a, b, c, d = (lookup(s, *t) for t in ((4, 2), (9, 3), (5, 1), (6, 4)))
    whole = s.call(torch.cat, [a, b, x, c, d], 1)
    s.output(whole, s.call(torch.exp, b))
    result = applied(s, GATHER)
    # In place of the first two inputs there is one, by the time the others are found.
    assert sorted(labels(result)) == [
        "gather_into_cat{first=0,members=2}",
        "gather_into_cat{first=2,members=2}",
    ]
    assert result.count(LOOKUP) == 2
    assert result.count("embedding") == 0


def test_a_lookup_that_is_an_output_keeps_its_strides(sketch: Any, applied: Any) -> None:
    s = sketch()
    a, b = lookup(s, 4, 2), lookup(s, 9, 3)
    s.output(s.call(torch.cat, [a, b], 1), a)
    assert applied(s, GATHER).count("embedding") == 0


def test_padding_keeps_its_gradient_of_zero(sketch: Any, applied: Any) -> None:
    s = sketch()
    s.output(s.call(torch.cat, [lookup(s, 4, 2, padding_idx=1), lookup(s, 9, 3)], 1))
    result = applied(s, GATHER)
    assert result.labels
    loss = result.module(*result.inputs)[0].sum()
    tables = [v for v in result.inputs if v.dtype is torch.float32]
    gradients = torch.autograd.grad(loss, tables)
    assert not gradients[0][1].any()
    assert gradients[1].any()


def test_indices_of_two_types(sketch: Any) -> None:
    s = sketch()
    values = [lookup(s, 4, 2, index=torch.int64), lookup(s, 9, 2, index=torch.int32)]
    s.output(s.call(torch.cat, values, 1))
    assert found(s) == []


def test_cat_along_the_places_or_of_one_lookup(sketch: Any) -> None:
    s = sketch()
    a, b = lookup(s, 4, 2), lookup(s, 9, 2)
    s.output(s.call(torch.cat, [a, b], 0), s.call(torch.cat, [a, a], 1))
    assert found(s) == []


def test_a_table_that_is_written_before_the_cat(sketch: Any) -> None:
    s = sketch()
    index, table = s.input(5, dtype=torch.int64), s.input(4, 2)
    first = s.call(F.embedding, index, table)
    s.call("mul_", table, 2)
    s.output(s.call(torch.cat, [first, lookup(s, 9, 2)], 1))
    assert found(s) == []

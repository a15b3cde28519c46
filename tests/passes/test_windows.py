"""Which part of which tensor a value is."""

from __future__ import annotations

import operator
from typing import Any

import torch

from passwright.passes.ops import Cat
from passwright.passes.windows import Window, atoms, cut, join, parts_of_cat, runs, window


def test_a_window_is_seen_through_a_chain_of_cuts(sketch: Any) -> None:
    s = sketch()
    x = s.input(4, 24)
    several = s.call(torch.split, x, [4, 20], 1)
    piece = s.call(operator.getitem, several, 1)
    part = s.call("narrow", piece, -1, 3, 10)
    column = s.call(torch.select, part, 1, 2)
    back = s.call(torch.unsqueeze, column, 1)
    view = s.view()
    assert cut(view, part, 1) == Window(piece, 3, 13)
    assert window(view, part, 1) == Window(x, 7, 17)
    found = window(view, back, 1)
    assert found == Window(x, 9, 10)
    assert found.via == (several, piece, part, column, back)
    # Along another dim it is all of itself.
    assert window(view, part, 0) == Window(part, 0, 4)
    assert window(view, column, 0) == Window(column, 0, 4)


def test_a_dim_put_back_elsewhere_is_no_cut(sketch: Any) -> None:
    s = sketch()
    x = s.input(4, 24)
    turned = s.call(torch.unsqueeze, s.call(torch.select, x, 1, 2), 0)
    assert window(s.view(), turned, 1) == Window(turned, 0, 4)


def test_runs_and_joins(sketch: Any) -> None:
    s = sketch()
    x, y = s.input(4, 24), s.input(4, 24)
    a, b, c = Window(x, 0, 4), Window(x, 4, 9), Window(x, 9, 10)
    assert runs([a, b, Window(y, 9, 10), c, None, a]) == [
        range(2),
        range(2, 3),
        range(3, 4),
        range(4, 5),
        range(5, 6),
    ]
    assert join([a, b, c]) == Window(x, 0, 10)
    assert join([a, c]) is None
    assert join([a, None]) is None


def test_parts_of_a_cat_skip_empty_inputs(sketch: Any) -> None:
    s = sketch()
    a, empty, b = s.input(4, 3), s.input(4, 0), s.input(4, 5)
    node = s.call(torch.cat, [a, empty, b], 1)
    view = s.view()
    cat = view.producer(node, Cat)
    assert parts_of_cat(view, cat, 0, 8) == [Window(a, 0, 3), Window(b, 0, 5)]
    assert parts_of_cat(view, cat, 2, 4) == [Window(a, 2, 3), Window(b, 0, 1)]
    assert parts_of_cat(view, cat, 3, 4) == [Window(b, 0, 1)]
    assert parts_of_cat(view, cat, 3, 3) == []


def test_overlapping_windows_fall_into_atoms(sketch: Any) -> None:
    s = sketch()
    x = s.input(4, 10)
    whole, left, right = Window(x, 0, 10), Window(x, 0, 6), Window(x, 4, 8)
    assert atoms(s.view(), [whole, left, right], 1) == {
        whole: [whole],
        left: [Window(x, 0, 4), Window(x, 4, 6)],
        right: [Window(x, 4, 6), Window(x, 6, 8)],
    }

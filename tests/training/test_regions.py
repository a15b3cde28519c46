"""Which nodes make a graph of their own, and how a model's graphs are captured."""

import operator
from collections.abc import Sequence

import pytest
import torch

from passwright.passes.graph import GraphView
from passwright.passes.sketch import Sketch
from passwright.training import workloads
from passwright.training.workloads.capture import Captured, capture, copy_of
from passwright.training.workloads.regions import MOST, NoRegion, Regions


def regions_of(s: Sketch, *, train: bool = False, buffers: Sequence[int] = ()) -> Regions:
    module = s.module()
    return Regions(
        Captured(module, (), frozenset(), frozenset(buffers)), GraphView(module.graph), train=train
    )


def test_who_reads_memory_belongs_to_those_who_write_it() -> None:
    s = Sketch()
    x, w = s.input(4, 4), s.input(4, 4)
    made = s.call(torch.matmul, x, w)
    written = s.call("relu_", made)
    view = s.call("t", written)
    result = s.call(torch.sin, view)
    s.output(result)
    regions = regions_of(s)
    assert regions.around(result, [result], 0) == [made, written, view, result]
    assert regions.boundary([made, written, view, result]) == [x, w]


def test_pieces_belong_to_their_split() -> None:
    s = Sketch()
    split = s.call(torch.split, s.input(4, 6), 2, 1)
    pieces = [s.call(operator.getitem, split, i) for i in range(3)]
    ends = [s.call(torch.sin, piece) for piece in pieces]
    s.output(*ends)
    regions = regions_of(s)
    assert regions.around(ends[0], [ends[0]], 0) == [ends[0]]
    assert regions.around(pieces[1], [pieces[1]], 0) == [split, *pieces]
    assert regions.results([split, *pieces]) == pieces


def test_a_written_input_is_refused_and_a_buffer_is_not() -> None:
    s = Sketch()
    x, y = s.input(4), s.input(4)
    written = s.call("add_", x, y)
    result = s.call(torch.sin, written)
    s.output(result)
    with pytest.raises(NoRegion, match="is an input, and is written"):
        regions_of(s).around(result, [result], 1)
    assert regions_of(s, buffers=[0]).around(result, [result], 1) == [written, result]


def test_random_numbers_stay_outside() -> None:
    s = Sketch()
    drawn = s.call(torch.dropout, s.input(4), 0.5, True)
    result = s.call(torch.sin, drawn)
    s.output(result)
    regions = regions_of(s)
    assert regions.around(result, [result], 3) == [result]
    with pytest.raises(NoRegion, match="random"):
        regions.around(drawn, [drawn], 0)


def test_other_modes_stay_outside() -> None:
    s = Sketch()
    x = s.input(4, requires_grad=True)
    s.call(torch._C._set_grad_enabled, False)
    silent = s.call(torch.sin, x)
    s.call(torch._C._set_grad_enabled, True)
    result = s.call(torch.mul, silent, x)
    s.output(result)
    assert regions_of(s, train=True).around(result, [result], 3) == [result]


def test_integers_alone_are_no_workload() -> None:
    s = Sketch()
    result = s.call(torch.add, s.input(4, dtype=torch.int64), 1)
    s.output(result)
    with pytest.raises(NoRegion, match="no result is a number"):
        regions_of(s).results([result])
    s = Sketch()
    result = s.call(torch.sin, s.input(4))
    s.output(result)
    with pytest.raises(NoRegion, match="no result is differentiable"):
        regions_of(s, train=True).results([result])


def test_a_region_stays_small() -> None:
    s = Sketch()
    x = s.call(torch.sin, s.input(4))
    s.output(*(s.call(torch.mul, x, i) for i in range(2 * MOST)))
    nodes = regions_of(s).around(x, [x], 3)
    assert len(nodes) == MOST
    assert nodes == list(x.graph.nodes)[1 : MOST + 1], "the nearest to the anchor"


def test_a_capture_is_static_whatever_was_captured_before() -> None:
    for batch in (4, 6, 8):
        module, inputs = workloads.build("own:norm_branches?fields=3", batch=batch)
        (found,) = capture(module, inputs, train=False)
        shapes = {i: tuple(v.shape) for i, v in enumerate(found.arguments)}
        assert [s for i, s in shapes.items() if i not in found.parameters] == [(batch, 96)]
        view = GraphView(found.graph.graph)
        assert all(view.spec(n).is_static for n in found.graph.graph.find_nodes(op="placeholder"))


def test_a_copy_keeps_strides_and_shares_nothing() -> None:
    whole = torch.randn(6, 8)
    for value in (whole, whole.t(), whole[:, 2:5], whole[0].expand(3, 8), whole[:0]):
        made = copy_of(value.requires_grad_(False))
        torch.testing.assert_close(made, value, rtol=0, atol=0, check_stride=True)
        assert made.untyped_storage()._cdata != value.untyped_storage()._cdata

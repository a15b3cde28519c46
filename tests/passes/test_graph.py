"""What a GraphView knows: addresses, fingerprint, regions, writes, storages, caches."""

from __future__ import annotations

import operator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import fx

from passwright.passes.dialect import Dialect
from passwright.passes.editor import GraphEditor
from passwright.passes.graph import GraphView
from passwright.passes.ops import Linear, Piece, Stack
from passwright.passes.testing import capture

aten = torch.ops.aten


def chain(s: Any, names: str = "") -> fx.Graph:
    """Two equal expressions, a split, a dtype and a slice among the arguments."""
    x, w = s.input(4, 6), s.input(6, 6)
    first, second = s.call(F.linear, x, w), s.call(F.linear, x, w)
    both = s.call(torch.cat, [first, second], dim=1)
    parts = s.call("split", both, 4, 1)
    pieces = [s.call(operator.getitem, parts, i) for i in range(3)]
    cast = s.call("to", pieces[0], torch.float64)
    cut = s.call(operator.getitem, pieces[1], (slice(None), slice(0, 2)))
    s.output(cast, cut, pieces[2])
    if names:
        for number, node in enumerate(s.graph.nodes):
            node._rename(f"{names}{number}")
    return s.graph


def test_addresses_do_not_depend_on_names(sketch: Any) -> None:
    plain, renamed = GraphView(chain(sketch())), GraphView(chain(sketch(), "other"))
    pairs = list(zip(plain.graph.nodes, renamed.graph.nodes, strict=True))
    assert all(a.name != b.name for a, b in pairs if a.op != "output")
    assert [plain.address(a) for a, _ in pairs] == [renamed.address(b) for _, b in pairs]
    assert plain.fingerprint == renamed.fingerprint


def test_addresses_tell_equal_expressions_apart(sketch: Any) -> None:
    view = GraphView(chain(sketch()))
    found = [view.address(node) for node in view.graph.nodes]
    assert len(set(found)) == len(found)
    for node in view.graph.nodes:
        assert view.at(view.address(node)) is node
    assert view.at("nowhere") is None


@pytest.mark.parametrize("what", ["shape", "dtype", "argument", "order", "target", "input"])
def test_fingerprint_tells_graphs_apart(sketch: Any, what: str) -> None:
    def build(changed: bool) -> str:
        def is_changed(name: str) -> bool:
            return changed and name == what

        s = sketch()
        dtype = torch.float64 if is_changed("dtype") else torch.float32
        x, y = s.input(4, 8 if is_changed("shape") else 6, dtype=dtype), s.input(4, 6, dtype=dtype)
        a = s.call(torch.sum, x, 0 if is_changed("argument") else 1)
        b = s.call(
            torch.exp if is_changed("target") else torch.sin, x if is_changed("input") else y
        )
        s.output(*([b, a] if is_changed("order") else [a, b]))
        return str(GraphView(s.graph).fingerprint)

    assert build(changed=True) != build(changed=False)
    assert build(changed=True) == build(changed=True)


def test_a_function_among_the_arguments_has_no_address_of_its_own(sketch: Any) -> None:
    def build() -> GraphView:
        s = sketch()
        x = s.input(3)
        node = s.graph.call_function(torch.ops.higher_order.wrap, (lambda t: t, x))
        s.graph.output(node)
        return s.view()

    assert build().fingerprint == build().fingerprint


def test_regions(sketch: Any) -> None:
    s = sketch()
    x = s.input(3, 3)
    a = s.call(torch.sin, x)
    off = s.call(torch._C._set_grad_enabled, False)
    b = s.call(torch.sin, x)
    enter = s.call(torch.amp.autocast_mode._enter_autocast, "cpu", torch.bfloat16, True, None)
    c = s.call(torch.mm, x, x)
    s.call(torch.amp.autocast_mode._exit_autocast, enter)
    s.call(torch._C._set_grad_enabled, True)
    d = s.call(torch.sin, x)
    s.output(a, b, c, d)
    view = s.view()
    assert [view.region(node) for node in (x, a, off, b, c, d)] == [0, 0, 1, 1, 2, 4]
    modes = [view.mode(view.region(node)) for node in (a, b, c, d)]
    assert [mode.autocasts for mode in modes] == [(), (), (enter,), ()]
    assert [mode.start for mode in modes[:2]] == [None, off]
    grads = [mode.grad for mode in modes]
    assert grads[1] == grads[2]
    assert len(set(grads)) == 3


def test_epochs_count_writes_to_the_same_memory(sketch: Any) -> None:
    s = sketch()
    x, y = s.input(4), s.input(4)
    part = s.call(operator.getitem, x, slice(0, 2))
    a = s.call(torch.sin, x)
    s.call("add_", part, 1)
    b = s.call(torch.sin, x)
    s.call("mul_", y, 2)
    c = s.call(torch.sin, x)
    s.call(operator.setitem, x, 0, 1)
    d = s.call(torch.sin, x)
    s.output(a, b, c, d)
    view = s.view()
    assert [view.epoch([x], node) for node in (a, b, c, d)] == [0, 1, 1, 2]
    assert [view.epoch([x, y], node) for node in (a, b, c, d)] == [0, 1, 2, 3]
    assert len(view.writes) == 3


def test_storages(sketch: Any) -> None:
    s = sketch()
    x, y = s.input(4, 6), s.input(4, 6)
    parts = s.call(torch.split, x, 3, 1)
    piece = s.call(operator.getitem, parts, 1)
    turned = s.call(torch.permute, piece, [1, 0])
    copied = s.call(torch.clone, turned)
    flat = s.call("reshape", turned, -1)
    s.output(copied, flat)
    view = s.view()
    assert view.storages([x]) == view.storages([parts]) == view.storages([piece, turned])
    assert len(view.storages([x, y, copied, flat])) == 4
    assert view.storages([x.graph.output_node()]) == frozenset()


def test_dialects(sketch: Any) -> None:
    for dialect, target in ((Dialect.TORCH, torch.sin), (Dialect.ATEN, aten.sin.default)):
        s = sketch(dialect)
        s.output(s.call(target, s.input(3)))
        view = s.view()
        assert view.dialect is dialect
        assert all(view.any_spec(n) is not None for n in view.nodes() if n.op != "output")


def test_a_users_own_call_of_an_aten_op_leaves_the_graph_torch_ir(sketch: Any) -> None:
    s = sketch(Dialect.TORCH)
    x = s.input(3)
    s.output(s.call(aten.sin.default, x), s.call(torch.sin, x))
    assert s.view().dialect is Dialect.TORCH


def test_what_is_read_follows_the_producers_of_inputs(sketch: Any) -> None:
    """A Linear in ATen-IR is read through its transposed weight, a stack through its unsqueezes."""
    s = sketch(Dialect.ATEN)
    x, w, other = s.input(4, 6), s.input(5, 6), s.input(5, 6)
    turned = s.call(aten.t.default, w)
    product = s.call(aten.mm.default, x, turned)
    wide = s.call(aten.cat.default, [s.call(aten.unsqueeze.default, w, 0)] * 2)
    s.output(product, wide)
    view = s.view()
    editor = GraphEditor(view)
    assert view.producer(product, Linear).weight is w
    assert view.producer(wide, Stack).inputs == (w, w)
    with editor.step([product]):
        editor.replace(w, other)
    assert view.producer(product, Linear).weight is other
    assert view.producer(wide, Stack).inputs == (other, other)
    editor.rollback()
    assert view.producer(product, Linear).weight is w
    assert view.producer(wide, Stack).inputs == (w, w)


def test_a_removed_write_is_forgotten(sketch: Any) -> None:
    s = sketch()
    x = s.input(3)
    y = s.call(torch.sin, x)
    s.call(F.relu, y, True)
    s.output(s.call(torch.cos, x))
    view = s.view()
    editor = GraphEditor(view)
    written = next(iter(view.writes)).node
    with editor.step([written]):
        editor.remove(written)
    assert not view.writes
    editor.rollback()
    assert [write.node for write in view.writes] == [written]


def test_pieces(sketch: Any) -> None:
    s = sketch()
    x = s.input(4, 6)
    parts, whole = s.call(torch.split, x, 3, 1), s.call(torch.split, x, 2, 1)
    first, again = s.call(operator.getitem, parts, 0), s.call(operator.getitem, parts, -2)
    s.output(first, again, whole)
    view = s.view()
    assert view.pieces(view.read(parts)) == {0: [Piece(first, parts, 0), Piece(again, parts, 0)]}
    assert view.pieces(view.read(whole)) is None


def test_memo_lives_until_the_graph_changes(sketch: Any) -> None:
    s = sketch()
    x = s.input(3)
    y = s.call(torch.sin, x)
    s.output(y)
    view = s.view()
    answers = iter(range(10))
    assert [view.memo("k", lambda: next(answers)) for _ in range(2)] == [0, 0]
    editor = GraphEditor(view)
    with editor.step([y]):
        editor.replace(y, editor.call(torch.cos, x))
        assert view.memo("k", lambda: next(answers)) == 1
    editor.rollback()
    assert view.memo("k", lambda: next(answers)) == 2


def test_graphs_of_function_transforms_can_be_viewed() -> None:
    def fn(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        gradient = torch.func.grad(lambda t: (t * t).sum())(x)
        return gradient, torch.func.vmap(lambda t: t.sin() * 2)(x)

    module, _ = capture(fn, [torch.ones(3, 4)])
    view = GraphView(module.graph)
    inside = [node for node in view.nodes() if node.name in ("mul", "sin")]
    outside = view.region(next(iter(view.nodes())))
    assert inside
    assert all(view.region(node) != outside for node in inside)


def test_a_value_that_changes_its_shape_in_place_is_not_read(sketch: Any) -> None:
    s = sketch()
    x = s.input(3, 4)
    y = s.call(torch.sin, x)
    z = s.call(torch.relu, y)
    s.call("t_", y)
    s.output(y, z, s.call(torch.relu, x))
    view = s.view()
    assert view.read(z) is None
    assert view.read(next(n for n in view.nodes() if n.name == "relu_1")) is not None

"""Constants: read in the graph, held by the module once all steps are final."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import fx

from passwright.passes.constants import PREFIX
from passwright.passes.dialect import Dialect
from passwright.passes.editor import GraphEditor
from passwright.passes.errors import IllegalRewrite
from passwright.passes.graph import GraphView
from passwright.passes.sketch import Sketch, snapshot
from passwright.passes.testing import text

aten = torch.ops.aten


def sketched(dialect: Dialect) -> tuple[fx.GraphModule, fx.Node]:
    """index + 1 of three columns."""
    s = Sketch(dialect)
    index = s.input(4, 3, dtype=torch.int64)
    add = s.call(torch.add if dialect is Dialect.TORCH else aten.add.Tensor, index, 1)
    s.output(s.call("neg" if dialect is Dialect.TORCH else aten.neg.default, add))
    return s.module(), add


def add_offsets(edit: GraphEditor, add: fx.Node, offsets: list[int]) -> None:
    with edit.step([add], "offsets"):
        index: Any = add.args[0]
        edit.replace(add, edit.add(index, edit.constant(offsets, torch.int64, index)))


def held(module: torch.nn.Module) -> list[str]:
    return [name for name in vars(module) if name.startswith(PREFIX)]


@pytest.mark.parametrize("dialect", list(Dialect))
def test_reads_and_runs(dialect: Dialect) -> None:
    module, add = sketched(dialect)
    edit = GraphEditor(GraphView(module.graph))
    add_offsets(edit, add, [0, 10, 30])
    assert not held(module)
    edit.finish()
    module.graph.lint()
    module.recompile()
    (name,) = held(module)
    lines = text(module.graph)
    if dialect is Dialect.TORCH:
        assert lines[0] == f"pw1_default = aten.lift_fresh_copy.default(pw0_{name})"
        assert lines[1] == "pw2_add = add(x0, pw1_default)"
    else:
        assert lines[0] == f"pw1_Tensor = aten.add.Tensor(x0, pw0_{name})"
    assert all(dialect.value in node.meta for node in module.graph.nodes if node.op != "output")
    index = torch.arange(12).reshape(4, 3)
    expected = -(index + torch.tensor([0, 10, 30]))
    for runnable in module, copy.deepcopy(module):
        torch.testing.assert_close(runnable(index)[0], expected)


@pytest.mark.parametrize("dialect", list(Dialect))
def test_undone(dialect: Dialect) -> None:
    """By rollback; and a constant that ends without a user is not kept."""
    module, add = sketched(dialect)
    before = snapshot(module.graph)
    edit = GraphEditor(GraphView(module.graph))
    add_offsets(edit, add, [0, 10, 30])
    edit.rollback()
    assert snapshot(module.graph) == before
    with edit.step([add]):
        edit.constant([1, 2], torch.int64, add)
    edit.finish()
    assert snapshot(module.graph) == before
    assert not held(module)


def test_rehearsed_then_made() -> None:
    module, add = sketched(Dialect.TORCH)
    edit = GraphEditor(GraphView(module.graph))
    add_offsets(edit, add, [0, 1, 2])
    edit.rollback()
    add_offsets(edit, add, [0, 10, 30])
    edit.finish()
    (name,) = held(module)
    assert getattr(module, name).tolist() == [0, 10, 30]


def test_names_tell_contents() -> None:
    names = set()
    for offsets in [0, 1, 2], [0, 1, 3], [0, 1, 2]:
        module, add = sketched(Dialect.TORCH)
        edit = GraphEditor(GraphView(module.graph))
        add_offsets(edit, add, offsets)
        edit.finish()
        names |= set(held(module))
    assert len(names) == 2


def test_made_under_other_modes() -> None:
    """Steps may be finished while fake tensors, inference mode or another device are on."""
    module, add = sketched(Dialect.TORCH)
    edit = GraphEditor(GraphView(module.graph))
    mode = edit._mode_of(add)
    with mode, torch.inference_mode(), torch.device("meta"):
        add_offsets(edit, add, [0, 10, 30])
        edit.finish()
    value = getattr(module, held(module)[0])
    assert type(value) is torch.Tensor
    assert value.device.type == "cpu"
    assert not value.is_inference()


def test_a_graph_without_module_is_refused() -> None:
    s = Sketch()
    add = s.call(torch.add, s.input(4, 3, dtype=torch.int64), 1)
    s.output(add)
    before = snapshot(s.graph)
    with pytest.raises(IllegalRewrite, match="no module"):
        add_offsets(GraphEditor(s.view()), add, [0, 10, 30])
    assert snapshot(s.graph) == before

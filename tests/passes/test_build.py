"""What the builders foretell is what torch computes: shape, type, strides, offset and memory."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from builder_cases import BUILDERS, NEVER_FORETOLD, TORCH_ONLY, Case, factors, layout
from torch import fx

from passwright.passes.build import MovementBuilders, view_strides
from passwright.passes.build_compute import Builders
from passwright.passes.dialect import Dialect
from passwright.passes.editor import GraphEditor
from passwright.passes.errors import IllegalRewrite
from passwright.passes.graph import GraphView
from passwright.passes.spec import Spec, spec_of

aten = torch.ops.aten


def test_every_builder_is_tried() -> None:
    kinds = (MovementBuilders, Builders)
    named = {name for kind in kinds for name in vars(kind) if not name.startswith("_")}
    # Those that write are tested with the batch norms that need them.
    assert named - {"call", "write", "copy_all"} == set(BUILDERS)


def parts(value: Any) -> Iterator[Any]:
    yield from value if isinstance(value, (tuple, list)) else (value,)


def compare(view: GraphView, real: dict[fx.Node, Any]) -> list[str]:
    """What the specs of the view say otherwise than real tensors."""
    wrong, places = [], {}
    for node in view.nodes():
        if node.op == "output":
            continue
        for spec, tensor in zip(parts(view.any_spec(node)), parts(real[node]), strict=True):
            truth = spec_of(tensor)
            assert isinstance(truth, Spec)
            same = (spec.shape, spec.dtype) == (truth.shape, truth.dtype)
            if not same or not spec.same_strides(truth):
                wrong.append(f"{node.format_node()}: {spec} but {truth}")
            elif tensor.numel():
                if spec.offset != truth.offset:
                    wrong.append(f"{node.format_node()}: offset {spec.offset}, not {truth.offset}")
                if places.setdefault(spec.storage, truth.storage) != truth.storage:
                    wrong.append(f"{node.format_node()} does not lie in this memory")
    if len(set(places.values())) != len(places):
        wrong.append("two storages are one")
    return wrong


@pytest.mark.parametrize("dialect", list(Dialect))
@pytest.mark.parametrize("name", sorted(BUILDERS))
def test_foretold_specs(sketch: Any, name: str, dialect: Dialect) -> None:
    if dialect is Dialect.ATEN and name in TORCH_ONLY:
        with pytest.raises(IllegalRewrite):
            foretold_specs(sketch, name, dialect)
    else:
        foretold_specs(sketch, name, dialect)


def foretold_specs(sketch: Any, name: str, dialect: Dialect) -> None:
    """Builds in random layouts and compares with real tensors."""
    foretold = 0
    for seed in range(25):
        draw = random.Random(f"{name}{seed}")
        s = sketch(dialect)
        case = Case(s, draw)
        build = BUILDERS[name](case)
        # So that an ATen graph without a call of its own is told as such.
        target = aten.exp.default if dialect is Dialect.ATEN else torch.exp
        anchor = s.call(target, s.input(2))
        s.output(anchor)
        module = s.module()
        view = GraphView(module.graph)
        assert view.dialect is dialect
        placeholders = [n for n in module.graph.nodes if n.op == "placeholder"]
        fakes = [n.meta[s.key] for n in placeholders]
        editor = GraphEditor(view)
        with editor.step([anchor]):
            build(editor)
            foretold += sum(dialect.value not in node.meta for node in module.graph.nodes)
            reals = [torch.empty_strided(f.shape, f.stride(), dtype=f.dtype).zero_() for f in fakes]
            assert not compare(view, _evaluate(view, reals)), f"seed {seed}"
    if name not in NEVER_FORETOLD:
        assert foretold > 1, "no spec was foretold"


def test_view_strides_are_those_of_torch() -> None:
    draw = random.Random(0)
    views = 0
    for _ in range(1000):
        shape, stride = layout(draw)
        if 0 in shape:
            continue
        wanted = factors(draw, math.prod(shape))
        x = torch.empty_strided(shape, stride)
        found = view_strides(shape, stride, wanted)
        try:
            expected = x.view(wanted).stride()
        except RuntimeError:
            assert found is None, (shape, stride, wanted)
            continue
        views += 1
        assert found is not None, (shape, stride, wanted)
        pairs = zip(wanted, found, expected, strict=True)
        assert all(mine == yours for size, mine, yours in pairs if size != 1)
    assert 200 < views < 900


def test_a_graph_keeps_its_layout_through_many_steps(sketch: Any) -> None:
    """Specs of what lies below a replaced value follow it: checked with real tensors."""
    for seed in range(20):
        draw = random.Random(seed)
        s = sketch()
        x, y = s.input(4, 6), s.input(4, 6)
        values = [s.call(torch.sin, x), s.call(torch.cos, y)]
        for _ in range(8):
            source = draw.choice(values)
            rows, columns = source.meta[s.key].shape
            further = [
                ("t", source),
                (torch.exp, source),
                ("reshape", source, columns, rows),
                (torch.narrow, source, 1, 1, columns - 1),
                (torch.add, source, source),
            ]
            values.append(s.call(*draw.choice(further)))
        s.output(s.call(torch.cat, [s.call("flatten", v) for v in values]))
        module = s.module()
        view = GraphView(module.graph)
        editor = GraphEditor(view)
        steps = 0
        for node in list(view.nodes()):
            if node.target not in (torch.sin, torch.cos, torch.exp) or draw.random() < 0.3:
                continue
            try:
                with editor.step([node]):
                    source = editor.permute(editor.contiguous_copy(
                        editor.permute(node.args[0], [1, 0])), [1, 0])  # fmt: skip
                    editor.replace(node, editor.call(node.target, source))
                steps += 1
            except IllegalRewrite:
                continue
            found = compare(view, _evaluate(view, [torch.rand(4, 6), torch.rand(4, 6)]))
            assert not found, f"seed {seed}, step {steps}"
        editor.finish()
        assert not compare(view, _evaluate(view, [torch.rand(4, 6), torch.rand(4, 6)]))


def _evaluate(view: GraphView, inputs: list[torch.Tensor]) -> dict[fx.Node, Any]:
    """Real values of the living nodes."""
    given, values = iter(inputs), {}
    for node in view.nodes():
        if node.op == "output":
            continue
        if node.op == "placeholder":
            values[node] = next(given)
            continue
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), values.__getitem__)
        if isinstance(node.target, str):
            values[node] = getattr(args[0], node.target)(*args[1:], **kwargs)
        else:
            values[node] = node.target(*args, **kwargs)
    return values


def test_builders_refuse_what_they_cannot_foretell(sketch: Any) -> None:
    s = sketch()
    x = s.input(3, 4)
    a = s.call(F.relu, x)
    s.output(a)
    editor = GraphEditor(s.view())
    for change in (
        lambda: editor.reshape(x, (5, 5)),
        lambda: editor.cat([x, s.graph.output_node()], 0),
    ):
        with pytest.raises((IllegalRewrite, KeyError, RuntimeError)), editor.step([a]):
            editor.replace(a, change())

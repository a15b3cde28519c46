"""Dropouts side by side."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

from passwright.passes.editor import GraphEditor
from passwright.passes.errors import IllegalRewrite
from passwright.passes.matching import Rewriter
from passwright.passes.pattern import Exactness
from passwright.passes.patterns.dropouts import BatchDropouts
from passwright.passes.patterns.functionalize import OutOfPlace
from passwright.passes.patterns.linears import BatchLinears
from passwright.passes.patterns.pointwise import BatchUnaries
from passwright.passes.patterns.stack_unbind import StackOfUnbind
from passwright.passes.table import PatternTable
from passwright.passes.testing import Rewritten, random_inputs, rewrite, rewrite_graph

DROPOUTS = BatchDropouts()


def rewritten(s: Any) -> Rewritten:
    module = s.module()
    return rewrite_graph(module, random_inputs(module.graph), DROPOUTS)


def drop(s: Any, x: fx.Node | None = None, p: float = 0.5, **more: Any) -> fx.Node:
    return s.call(F.dropout, s.input(64, 64) if x is None else x, p, **({"training": True} | more))


def test_before_and_after(sketch: Any) -> None:
    s = sketch()
    s.output(*(s.call(torch.sum, drop(s), 1) for _ in range(2)))
    result = rewritten(s)
    assert [label.split(" @ ")[0] for label in result.labels] == ["batch_dropouts{members=2}"]
    assert result.after == [
        "pw0_stack = stack([x0, x1], dim=0)",
        "pw1_dropout = dropout(pw0_stack, 0.5, True)",
        "pw2_unbind = unbind(pw1_dropout, 0)",
        "pw3_getitem = getitem(pw2_unbind, 0)",
        "pw4_getitem = getitem(pw2_unbind, 1)",
        "sum_1 = sum(pw3_getitem, 1)",
        "sum_2 = sum(pw4_getitem, 1)",
        "return (sum_1, sum_2)",
    ]


def test_what_is_dropped(sketch: Any) -> None:
    """Each element with probability p, independently of the other members; gradients follow."""
    s = sketch()
    x = [s.input(64, 64, requires_grad=True) for _ in range(2)]
    s.output(*(drop(s, value, 0.25) for value in x))
    result = rewritten(s)
    inputs = [torch.ones(64, 64, requires_grad=True) for _ in x]
    torch.manual_seed(0)
    outputs = result.module(*inputs)
    gradients = torch.autograd.grad(sum(outputs).sum(), inputs)
    for output, gradient in zip(outputs, gradients, strict=True):
        assert output.unique().tolist() == pytest.approx([0.0, 4 / 3])
        assert abs(float((output == 0).float().mean()) - 0.25) < 0.03
        assert torch.equal(output, gradient)
    both = ((outputs[0] == 0) & (outputs[1] == 0)).float().mean()
    assert abs(float(both) - 0.0625) < 0.02


def test_only_where_the_user_allows_it() -> None:
    assert DROPOUTS.exactness is Exactness.RELAXED


@pytest.mark.parametrize(
    "other",
    [
        pytest.param({"p": 0.25}, id="probability"),
        pytest.param({"training": False}, id="off"),
        pytest.param({"p": 0}, id="zero"),
        pytest.param({"inplace": True}, id="in place"),
        pytest.param({"shape": (64, 32)}, id="shape"),
        pytest.param({"dtype": torch.float64}, id="type"),
    ],
)
def test_near_misses(sketch: Any, groups: Any, other: dict[str, Any]) -> None:
    s = sketch()
    results = []
    for case in {}, dict(other):
        shape, dtype = case.pop("shape", (64, 64)), case.pop("dtype", torch.float32)
        results.append(drop(s, s.input(*shape, dtype=dtype), **case))
    s.output(*results)
    assert groups(s, DROPOUTS) == []


def test_seeds_writes_and_regions(sketch: Any, groups: Any) -> None:
    s = sketch()
    x = s.input(64, 64)
    results = [drop(s), drop(s)]
    s.call(torch.manual_seed, 3)
    results += [drop(s, x), drop(s), drop(s)]
    s.call("add_", x, 1)
    results += [drop(s, x), drop(s)]
    s.call(torch._C._set_grad_enabled, False)
    results += [drop(s), drop(s), drop(s)]
    s.call(torch._C._set_grad_enabled, True)
    s.call("add_", results[0], 1)
    s.output(*results)
    assert groups(s, DROPOUTS) == [3, 2, 3]


class Towers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.towers = nn.ModuleList(
            nn.Sequential(
                nn.Linear(6, 6), nn.ReLU(inplace=True), nn.Dropout(0.1),
                nn.Linear(6, 6), nn.ReLU(inplace=True), nn.Dropout(0.1), nn.Linear(6, 1),
            )
            for _ in range(3)
        )  # fmt: skip

    def forward(self, x: Tensor, y: Tensor) -> list[Tensor]:
        return [tower(v) for tower, v in zip(self.towers, (x, y, x + y), strict=True)]


def test_towers_of_dropouts_become_one_tower() -> None:
    x, y = torch.randn(5, 6), torch.randn(5, 6)
    patterns = (BatchLinears(), BatchUnaries(), StackOfUnbind(), OutOfPlace())
    result = rewrite(Towers().train(), [x, y], DROPOUTS, *patterns)
    assert result.count("dropout") == 2
    assert result.count("baddbmm") == 3
    assert result.count("stack") == 3 * 2 + 1  # parameters, and the inputs of the first layer


def test_dropouts_move_in_a_step_that_draws_alone(sketch: Any) -> None:
    """The second dropout of a tower has to move behind the first one of the next tower."""
    for pattern, random in (DROPOUTS, True), (BatchUnaries(), False):
        s = sketch()
        values = []
        for _ in range(2):
            x = s.call(F.linear, s.input(5, 5), s.input(5, 5))
            x = drop(s, s.call(torch.sin, s.call(torch.cumsum, drop(s, x), 1)))
            values.append(s.call(torch.sum, x, 1))
        s.output(*values)
        rewriter = Rewriter(s.view(), PatternTable([pattern]))
        found = rewriter.candidates()
        if random:
            rewriter.apply(found[0])
        else:
            with pytest.raises(IllegalRewrite, match="would have to move"):
                rewriter.apply(found[0])


def test_the_editor_draws_nothing_by_other_ways(sketch: Any) -> None:
    s = sketch()
    x = s.input(4)
    s.output(s.call(torch.sin, x))
    view = s.view()
    editor = GraphEditor(view)
    nodes = list(view.nodes())
    with pytest.raises(IllegalRewrite), editor.step([nodes[1]]):
        editor.call(F.dropout, x, 0.5, True)
    for target, arguments in ((torch.sin, ()), ("add_", (1,)), (F.dropout, (0.5, True, True))):
        with pytest.raises(IllegalRewrite), editor.step([nodes[1]]):
            editor.draw(target, x, *arguments)

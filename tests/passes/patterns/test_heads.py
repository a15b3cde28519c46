"""Attention heads side by side, and multi-head attention without weights."""

from __future__ import annotations

import math
import operator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from passwright.passes.patterns.attention import FuseAttention
from passwright.passes.patterns.heads import BatchAttentions
from passwright.passes.patterns.multi_head import DropAttentionWeights
from passwright.passes.patterns.reshapes import (
    MergePermutes,
    MergeReshapes,
    RemoveIdentityPermute,
    RemoveIdentityReshape,
)
from passwright.passes.patterns.stack_unbind import CatOfUnbind, StackOfPieces
from passwright.passes.testing import rewrite, rewrite_graph

HEADS, DROP = BatchAttentions(), DropAttentionWeights()
SDPA = F.scaled_dot_product_attention
ATTENTION = "scaled_dot_product_attention"


def head(s: Any, *lead: int, mask: Any = None, **kwargs: Any) -> Any:
    dtype = kwargs.pop("dtype", torch.float32)
    shapes = kwargs.pop("shapes", ((5, 8), (7, 8), (7, 6)))
    qkv = (s.input(*lead, *shape, requires_grad=True, dtype=dtype) for shape in shapes)
    return s.call(SDPA, *qkv, attn_mask=mask, **kwargs)


def hidden(s: Any, *values: Any) -> None:
    """Outputs through an op with a layout of its own."""
    s.output(*(s.call(F.layer_norm, x, x.meta[s.key].shape[-1:]) for x in values))


def test_heads_of_their_own_become_a_dim(sketch: Any, applied: Any) -> None:
    s = sketch()
    hidden(s, *(head(s, 2) for _ in range(3)))
    result = applied(s, HEADS)
    assert [label.split(" @ ")[0] for label in result.labels] == ["batch_attentions{members=3}"]
    arguments = "attn_mask=None, is_causal=False, scale=None"
    assert result.after[:5] == [
        "pw0_stack = stack([x0, x3, x6], dim=1)",
        "pw1_stack = stack([x1, x4, x7], dim=1)",
        "pw2_stack = stack([x2, x5, x8], dim=1)",
        f"pw3_{ATTENTION} = {ATTENTION}(pw0_stack, pw1_stack, pw2_stack, {arguments})",
        f"pw4_unbind = unbind(pw3_{ATTENTION}, 1)",
    ]


def test_one_head_each(sketch: Any, applied: Any) -> None:
    s = sketch()
    hidden(s, *(head(s, 2, 1) for _ in range(2)))
    result = applied(s, HEADS)
    assert result.count("stack") == 3
    assert result.count("unbind") == 1


def test_groups_of_heads_are_joined(sketch: Any, applied: Any) -> None:
    s = sketch()
    hidden(s, *(head(s, 2, 4, scale=0.5, is_causal=True) for _ in range(2)))
    result = applied(s, HEADS)
    assert result.count(ATTENTION) == 1
    assert result.count("cat") == 3
    assert [line for line in result.after if "[4, 4], dim=1)" in line]


@pytest.mark.parametrize(
    ("lead", "mask"),
    [((2,), (5, 7)), ((2,), (2, 5, 7)), ((2, 3), (5, 7)), ((2, 3), (2, 1, 5, 7))],
)
def test_one_mask(sketch: Any, applied: Any, lead: Any, mask: Any) -> None:
    s = sketch()
    bias = s.input(*mask)
    hidden(s, *(head(s, *lead, mask=bias) for _ in range(2)))
    assert applied(s, HEADS).count(ATTENTION) == 1


def test_default_scale_is_that_number(sketch: Any, applied: Any) -> None:
    s = sketch()
    hidden(s, head(s, 2), head(s, 2, scale=8**-0.5))
    assert applied(s, HEADS).count(ATTENTION) == 1


@pytest.mark.parametrize(
    "other",
    [
        pytest.param({"scale": 0.5}, id="scale"),
        pytest.param({"is_causal": True}, id="causal"),
        pytest.param({"dropout_p": 0.5}, id="dropout"),
        pytest.param({"mask": (5, 7)}, id="mask"),
        pytest.param({"dtype": torch.float64}, id="dtype"),
        pytest.param({"shapes": ((5, 8), (7, 8), (7, 4))}, id="width"),
        pytest.param({"lead": (3,)}, id="batch"),
        pytest.param({"lead": (2, 1)}, id="rank"),
    ],
)
def test_near_misses(sketch: Any, groups: Any, other: dict[str, Any]) -> None:
    s = sketch()
    case = dict(other)
    lead, mask = case.pop("lead", (2,)), case.pop("mask", None)
    hidden(s, head(s, 2), head(s, *lead, mask=mask and s.input(*mask), **case))
    assert groups(s, HEADS) == []


def test_shapes_that_stay(sketch: Any, groups: Any) -> None:
    """Rank 2 and 5, a mask for each head, operands that are broadcast, one attention twice."""
    for lead, mask in ((), None), ((2, 1, 3), None), ((2, 3), (3, 5, 7)), ((2, 3), (2, 3, 5, 7)):
        s = sketch()
        bias = s.input(*mask) if mask else None
        hidden(s, *(head(s, *lead, mask=bias) for _ in range(2)))
        assert groups(s, HEADS) == [], (lead, mask)
    s = sketch()
    shapes = (4, 5, 8), (1, 7, 8), (4, 7, 6)
    hidden(s, *(head(s, 2, shapes=shapes) for _ in range(2)))
    assert groups(s, HEADS) == []
    s = sketch()
    q, k, v = s.input(2, 5, 8), s.input(2, 7, 8), s.input(2, 7, 6)
    hidden(s, *(s.call(SDPA, q, k, v) for _ in range(2)))
    assert groups(s, HEADS) == []


def test_strides_that_are_seen_are_kept(sketch: Any, applied: Any) -> None:
    for lead in (2,), (2, 4):
        s = sketch()
        s.output(*(head(s, *lead) for _ in range(2)))
        assert applied(s, HEADS).count("clone") == 2


def test_writes(sketch: Any, groups: Any) -> None:
    s = sketch()
    first, second = head(s, 2), head(s, 2)
    s.call("add_", first, 1)
    hidden(s, first, second)
    assert groups(s, HEADS) == []


class OneByOne(nn.Module):
    """Heads computed one after the other."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.ModuleList(nn.Linear(16, 16) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        heads = zip(*(torch.split(f(x), 4, -1) for f in self.qkv), strict=True)
        weighted = [torch.softmax(q @ k.mT / math.sqrt(4), -1) @ v for q, k, v in heads]
        return torch.tanh(torch.cat(weighted, -1))


def test_loop_over_heads() -> None:
    """Neither stack nor cat is left: the pieces are dims of what they were cut from."""
    moves = (MergeReshapes(), RemoveIdentityReshape(), MergePermutes(), RemoveIdentityPermute())
    parts = (StackOfPieces(), CatOfUnbind())
    fused = rewrite(OneByOne(), [torch.randn(3, 5, 16)], FuseAttention())
    assert fused.count(ATTENTION) == 4
    result = rewrite_graph(fused.module, fused.inputs, HEADS, *moves, *parts)
    assert result.count(ATTENTION) == 1
    assert result.count("stack") == result.count("cat") == result.count("split") == 0
    result.check()


# ---- multi-head attention


class MultiHead(nn.Module):
    def __init__(self, **kwargs: Any) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, **kwargs)
        nn.init.normal_(self.attention.in_proj_bias)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return torch.tanh(self.attention(x, x, x, attn_mask=mask)[0])


@pytest.mark.parametrize("training", [False, True])
def test_weights_are_dropped(training: bool) -> None:
    model = MultiHead().train(training)
    result = rewrite(model, [torch.randn(5, 3, 8, requires_grad=True)], DROP)
    assert len(result.labels) == 1
    assert len([line for line in result.after if "need_weights=False" in line]) == 1
    assert not [line for line in result.after if "need_weights=True" in line]
    result.check()


def test_dropout_that_is_switched_off() -> None:
    for training in False, True:
        model = MultiHead(dropout=0.5).train(training)
        result = rewrite(model, [torch.randn(5, 3, 8)], DROP)
        assert len(result.labels) == (not training)


def test_masks_are_refused() -> None:
    inputs = [torch.randn(5, 3, 8), torch.zeros(5, 5)]
    assert not rewrite(MultiHead().eval(), inputs, DROP).labels


def multi_head(s: Any, *extra: Any, **kwargs: Any) -> Any:
    x = s.input(5, 3, 8)
    weights = s.input(24, 8), s.input(24)
    out = s.input(8, 8), s.input(8)
    arguments = (8, 2, *weights, None, None, False, 0.0, *out, *extra)
    return s.call(F.multi_head_attention_forward, x, x, x, *arguments, **kwargs)


def test_need_weights_by_position(sketch: Any, applied: Any) -> None:
    s = sketch()
    result = multi_head(s, True, None, True, None)
    s.output(s.call(operator.getitem, result, 0))
    found = applied(s, DROP)
    assert len(found.labels) == 1
    assert [line for line in found.after if "x4, True, None, False, None)" in line]


@pytest.mark.parametrize(
    "why", ["weights are used", "whole result is used", "not wanted", "causal"]
)
def test_refusals(sketch: Any, applied: Any, why: str) -> None:
    s = sketch()
    hint = {"is_causal": True, "attn_mask": s.input(5, 5)} if why == "causal" else {}
    result = multi_head(s, need_weights=why != "not wanted", **hint)
    first = s.call(operator.getitem, result, 0)
    if why == "weights are used":
        s.output(first, s.call(operator.getitem, result, 1))
    elif why == "whole result is used":
        s.output(first, result)
    else:
        s.output(first)
    view = s.view()
    ops = [view.read(node) for node in view.nodes()]
    assert not [m for op in ops if type(op) in DROP.anchors for m in DROP.matches(view, op)]

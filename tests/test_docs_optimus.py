"""docs/optimus.md names every key that Optimus takes, and patterns that exist and match."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from passwright.passes.dialect import Dialect
from passwright.passes.graph import GraphView
from passwright.passes.matching import Rewriter
from passwright.passes.table import default_table
from passwright.passes.testing import capture

PAGE = Path(__file__).resolve().parent.parent / "docs" / "optimus.md"
_ROW = re.compile(r"^\| `(?P<key>\w+)` \| (?P<ours>[^|]*) \|", re.MULTILINE)
REASONS = {"not covered", "not needed"}
#: Keys of a later torch than the oldest that is supported.
LATER = {"cat_linear"}


def rows() -> dict[str, str]:
    """Optimus' keys, and what the page has beside each."""
    text = PAGE.read_text(encoding="utf-8")
    found = [(row["key"], row["ours"].strip()) for row in _ROW.finditer(text)]
    assert len(found) == len(dict(found)), "a key stands in the page twice"
    return dict(found)


def idle() -> set[str]:
    """Keys that the page lists as rewriting nothing."""
    text = PAGE.read_text(encoding="utf-8")
    section = text.partition("## Keys that rewrite nothing")[2].partition("\n## ")[0]
    return {row["key"] for row in _ROW.finditer(section)}


def patterns_of(key: str) -> list[str]:
    return re.findall(r"`(\w+)`", rows()[key])


def keys_of_torch() -> set[str]:
    """The keys that the installed torch takes."""
    from torch._inductor.fx_passes import group_batch_fusion, post_grad, pre_grad, split_cat
    from torch._inductor.utils import OPTIMUS_EXCLUDE_POST_GRAD

    assert pre_grad
    assert post_grad
    return {
        *split_cat.PRE_GRAD_PATTERNS,
        *split_cat.POST_GRAD_PATTERNS,
        *group_batch_fusion.PRE_GRAD_FUSIONS,
        *group_batch_fusion.POST_GRAD_FUSIONS,
        *OPTIMUS_EXCLUDE_POST_GRAD,
    }


def test_every_key_of_the_installed_torch_is_there() -> None:
    assert sorted(keys_of_torch() - rows().keys()) == []


@pytest.mark.skipif(torch.__version__ < (2, 13), reason="keys have been added since")
def test_no_key_is_made_up() -> None:
    assert sorted(rows().keys() - keys_of_torch() - LATER) == []


def test_keys_that_rewrite_nothing() -> None:
    from torch._inductor.fx_passes import split_cat

    passes = split_cat.PRE_GRAD_PATTERNS | split_cat.POST_GRAD_PATTERNS
    assert idle()
    for key in idle() & passes.keys():
        assert not passes[key].patterns, f"{key} has a pattern by now"


def test_every_pattern_exists() -> None:
    text = PAGE.read_text(encoding="utf-8")
    table = default_table()
    named = {name for key in rows().keys() - idle() for name in patterns_of(key)}
    last = text.partition("## What they have no counterpart for")[2]
    named |= set(re.findall(r"`(\w+)`", last))
    assert len(named) > 30
    assert sorted(name for name in named if name not in table) == []


def test_every_key_has_patterns_or_a_reason() -> None:
    for key in rows().keys() - idle():
        assert patterns_of(key) or rows()[key] in REASONS, key


def at_aten() -> set[str]:
    """Keys of `post_grad_fusion_options`."""
    text = PAGE.read_text(encoding="utf-8")
    section = text.partition("## Batching, ATen-IR")[2].partition("## Keys that rewrite")[0]
    return {row["key"] for row in _ROW.finditer(section)}


# ---- one graph a key, in which the patterns beside it do the work


def _pieces(x: Tensor) -> tuple[Tensor, ...]:
    return torch.split(x, 2, 1)


X = [torch.rand(4, 8) for _ in range(4)]
V, W = [torch.rand(8, 8) for _ in range(2)], [torch.rand(5 + i, 8) for i in range(3)]
EXAMPLES: dict[str, tuple[Callable[..., Any], list[Tensor]]] = {
    "batch_linear": (lambda a, b, v, w: [F.linear(a, v), F.linear(b, w)], [*X[:2], *V]),
    "batch_linear_lhs": (lambda a, *w: [F.linear(a, v) for v in w], [X[0], *W]),
    "cat_linear": (lambda a, *w: [F.linear(a, v) for v in w], [X[0], *W]),
    "batch_layernorm": (lambda *a: [F.layer_norm(x, (8,)) for x in a], X),
    "batch_tanh": (lambda *a: [torch.tanh(x) for x in a], X),
    "batch_sigmoid": (lambda *a: [x.sigmoid() for x in a], X),
    "batch_relu": (lambda *a: [F.relu(x) for x in a], X),
    "batch_nan_to_num": (lambda *a: [torch.nan_to_num(x, 0.5) for x in a], X),
    "batch_clamp": (lambda *a: [x.clamp(0.2, 0.5) for x in a], X),
    "batch_dropout": (lambda *a: [F.dropout(x, 0.5, True) for x in a], X),
    "remove_split_with_size_one_pass": (lambda x: torch.split(x, 8, 1)[0].sin(), X[:1]),
    "merge_getitem_cat_pass": (lambda x: torch.cat(_pieces(x)[1:3], 1).sin(), X[:1]),
    "merge_splits_pass": (
        lambda x: [p.sin() for p in torch.split(torch.split(x, [2, 6], 1)[1], 3, 1)],
        X[:1],
    ),
    "mutate_cat_pass": (
        lambda x: [torch.cat(_pieces(x)[1:3], 1).sin(), *(p.cos() for p in _pieces(x))],
        X[:1],
    ),
    "split_cat_pass": (lambda x: torch.cat(_pieces(x), 1).sin(), X[:1]),
    "unbind_stack_pass": (lambda x: torch.stack(torch.unbind(x, 1), 0).sin(), X[:1]),
    "split_cat_to_slices_pass": (
        lambda x, y: torch.cat([y, *_pieces(x)[1:3]], 1).sin(),
        X[:2],
    ),
    "unbind_cat_to_view_pass": (
        lambda x: torch.cat(torch.unbind(x, 0), 1).sin(),
        [torch.rand(3, 6, 2)],
    ),
    "split_stack_to_cats_pass": (lambda x: torch.stack(_pieces(x), 0).sin(), X[:1]),
    "unbind_stack_to_slices_pass": (
        lambda x: torch.stack(torch.unbind(x, 1)[:5], 1).sin(),
        X[:1],
    ),
    "move_reshape_out_of_split_stack_pass": (
        lambda x: torch.stack([p.reshape(4, 2, 1) for p in _pieces(x)], 0).sin(),
        X[:1],
    ),
    "einsum_to_pointwise_pass": (
        lambda x, w, y: (torch.einsum("abc,abcd->abd", x, w) + y).sum(),
        [torch.rand(4, 3, 5), torch.rand(4, 3, 5, 2), torch.rand(4, 3, 2)],
    ),
    "batch_linear_post_grad": (lambda a, b, v, w: [a @ v, b @ w], [*X[:2], *V]),
    "batch_aten_tanh": (lambda *a: [torch.tanh(x) for x in a], X),
    "batch_aten_sigmoid": (lambda *a: [torch.sigmoid(x) for x in a], X),
    "batch_aten_relu": (lambda *a: [torch.relu(x) for x in a], X),
    "batch_aten_add": (lambda a, b, c, d: [a + b, c + d], X),
    "batch_aten_sub": (lambda a, b, c, d: [a.sub(b, alpha=2), c.sub(d, alpha=2)], X),
    "batch_aten_mul": (lambda a, b, c, d: [a * b, c * d], X),
    "batch_aten_div": (lambda a, b, c, d: [a / b, c / d], X),
    "decompose_mm_pass": (lambda a, b: (a @ b).sin(), [torch.rand(64, 2), torch.rand(2, 4)]),
    "unbind_stack_aten_pass": (
        lambda x: torch.cat([x[:, i].unsqueeze(1) for i in range(8)], 1).sin(),
        X[:1],
    ),
    "split_cat_aten_pass": (lambda x: torch.cat(_pieces(x), 1).sin(), X[:1]),
    "select_cat_aten_pass": (
        lambda x: torch.cat([x[:, i] for i in range(3)], 1).sin(),
        [torch.rand(4, 3, 5)],
    ),
    "move_view_after_cat_aten_pass": (
        lambda x: torch.cat([p.reshape(6) for p in torch.split(x, 1, 0)], 0).sin(),
        [torch.rand(3, 6)],
    ),
    "activation_quantization_aten_pass": (
        lambda x, w: F.linear(x.sin(), w),
        [torch.rand(1024, 512), torch.rand(8, 512).requires_grad_()],
    ),
}
#: Done at Torch-IR, before there is a backward graph.
EARLIER = {"activation_quantization_aten_pass"}
#: Only on a GPU, where the tests of these patterns pretend to be.
ON_GPU = {"group_linear", "pad_aten_mm_pass"}


@pytest.mark.parametrize("key", sorted(rows().keys() - idle()))
def test_a_pattern_beside_the_key_matches(key: str) -> None:
    if not patterns_of(key) or key in ON_GPU:
        assert key not in EXAMPLES
        return
    function, inputs = EXAMPLES[key]
    module, _ = capture(
        function, inputs, Dialect.ATEN if key in at_aten() - EARLIER else Dialect.TORCH
    )
    rewriter = Rewriter(GraphView(module.graph), default_table())
    found = {candidate.pattern.name() for candidate in rewriter.candidates()}
    assert found & set(patterns_of(key)), f"found: {sorted(found)}"

"""Torch's own Optimus as a rival: the patterns of its paper in the order of its paper.

Horizontal patterns run before vertical ones, those on Torch-IR before those on ATen-IR (arXiv 2607.02945,
and `torch/_inductor/fx_passes/`). Of the paper's set two are left out: `batch_dropout`, which drops
elements in evaluation too, and the quantization of activations, which lowers precision.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

#: Fewest members of a group; torch's own limit of 5 passes over most groups of public models.
FEWEST = {"min_fuse_set_size": 2}

TORCH_IR: Mapping[str, Mapping[str, Any]] = {
    "normalization_pass": {},
    "batch_linear": FEWEST,
    "batch_linear_lhs": FEWEST,
    "cat_linear": FEWEST,
    "batch_layernorm": FEWEST,
    "batch_tanh": FEWEST,
    "batch_sigmoid": FEWEST,
    "batch_relu": FEWEST,
    "batch_detach": FEWEST,
    "batch_nan_to_num": FEWEST,
    "batch_clamp": FEWEST,
    "remove_split_with_size_one_pass": {},
    "merge_getitem_cat_pass": {},
    "merge_splits_pass": {},
    "mutate_cat_pass": {},
    "split_cat_pass": {},
    "unbind_stack_pass": {},
    "split_cat_to_slices_pass": {},
    "unbind_cat_to_view_pass": {},
    "split_stack_to_cats_pass": {},
    "unbind_stack_to_slices_pass": {},
    "move_reshape_out_of_split_stack_pass": {},
    "einsum_to_pointwise_pass": {},
}
ATEN_IR: Mapping[str, Mapping[str, Any]] = {
    "batch_linear_post_grad": FEWEST,
    # Calls an op of fbgemm, and is passed over without that.
    "group_linear": {**FEWEST, "require_fbgemm": True},
    "batch_aten_tanh": FEWEST,
    "batch_aten_sigmoid": FEWEST,
    "batch_aten_relu": FEWEST,
    "batch_aten_add": FEWEST,
    "batch_aten_sub": FEWEST,
    "batch_aten_mul": FEWEST,
    "batch_aten_div": FEWEST,
    "normalization_aten_pass": {},
    "decompose_mm_pass": {},
    "unbind_stack_aten_pass": {},
    "split_cat_aten_pass": {},
    "select_cat_aten_pass": {},
    "move_view_after_cat_aten_pass": {},
    "pad_aten_mm_pass": {},
}


def optimus_options() -> dict[str, Any]:
    """Options of `torch.compile`, with the keys that the installed torch takes."""
    return {
        "pre_grad_fusion_options": _of(TORCH_IR),
        "post_grad_fusion_options": _of(ATEN_IR),
    }


def left_out() -> tuple[str, ...]:
    """Patterns that the installed torch does not have: it would fail on their names."""
    return tuple(name for name in (*TORCH_IR, *ATEN_IR) if name not in known_patterns())


def _of(wanted: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    return {name: dict(how) for name, how in wanted.items() if name in known_patterns()}


@cache
def known_patterns() -> frozenset[str]:
    """The names that the installed torch takes, read from where it registers them."""
    from torch._inductor.fx_passes import group_batch_fusion, split_cat

    tables: Iterable[Mapping[str, Any]] = (
        split_cat.PRE_GRAD_PATTERNS,
        split_cat.POST_GRAD_PATTERNS,
        group_batch_fusion.PRE_GRAD_FUSIONS,
        group_batch_fusion.POST_GRAD_FUSIONS,
    )
    return frozenset(name for table in tables for name in table)

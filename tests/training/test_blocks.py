"""The blocks of language models: what they compute, and their shapes in the papers."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch.utils import _pytree as pytree

from passwright.training import workloads
from passwright.training.workloads.blocks import (
    WORKLOADS,
    GatedMlp,
    GroupQueryAttention,
    LowRankLinear,
    NormLinear,
)
from passwright.training.workloads.spec import Spec

X = torch.randn(3, 8)


def test_a_norm_and_its_product() -> None:
    block = NormLinear(8)
    eps = torch.finfo(X.dtype).eps
    normed = X / (X.square().mean(dim=1, keepdim=True) + eps).sqrt()
    torch.testing.assert_close(block(X), normed @ block.linear.weight.T)
    assert block(X).shape == (3, 12)


def test_a_gated_mlp() -> None:
    block = GatedMlp(8)
    gate, up = X @ block.gate.weight.T, X @ block.up.weight.T
    torch.testing.assert_close(block(X), gate * torch.sigmoid(gate) * up)


@pytest.mark.parametrize("normed", [False, True])
def test_attention_is_torchs_own(normed: bool) -> None:
    queries, keys, values = (
        torch.randn(2, 2, 5, 4),
        torch.randn(2, 2, 7, 4),
        torch.randn(2, 2, 7, 4),
    )
    block = GroupQueryAttention(normed=normed)
    found = block(queries, keys, values)
    if normed:
        size = queries.square().mean(dim=-1, keepdim=True).sqrt()
        queries, keys = queries / size, F.rms_norm(keys, (4,))
    expected = F.scaled_dot_product_attention(queries, keys, values)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_a_low_rank_addition() -> None:
    block = LowRankLinear(8)
    with torch.no_grad():
        added = block.linear.weight + block.up.weight @ block.down.weight
    torch.testing.assert_close(block(X), X @ added.T, rtol=1e-4, atol=1e-5)


def test_the_shapes_are_those_of_the_papers() -> None:
    found = {}
    for workload in WORKLOADS:
        with torch.device("meta"):
            module = workload.construct(_setup(workload.width or 0))
        inputs = workload.example_inputs(batch=2)
        leaves = [leaf.to("meta") for leaf in pytree.tree_leaves(inputs)]
        weights = [tuple(p.shape) for p in module.parameters() if p.ndim == 2]
        found[workload.name] = ([tuple(i.shape) for i in leaves], weights, module(*leaves).shape)
    queries, keys = (2, 2, 256, 64), (2, 2, 4096, 64)
    assert found == {
        "own:rms_norm": ([(2, 4096)], [(6144, 4096)], (2, 6144)),
        "own:gated_mlp": ([(2, 4096)], [(4096, 4096)] * 2, (2, 4096)),
        "own:attention": ([queries, keys, keys], [], queries),
        "own:qk_norm_attention": ([queries, keys, keys], [], queries),
        "own:lora": ([(2, 256)], [(4096, 256), (16, 256), (4096, 16)], (2, 4096)),
    }


def _setup(width: int) -> workloads.workload.Setup:
    return workloads.workload.Setup(0, torch.device("cpu"), width=width)


@pytest.mark.parametrize("name", [w.name for w in WORKLOADS])
def test_a_training_step_in_bfloat16_reaches_everything(name: str) -> None:
    spec = Spec(f"{name}?width=4", 2, "bf16", train=True)
    module, inputs = spec.build(workloads.build, torch.device("cpu"))
    leaves = [*module.parameters()] or list(inputs)
    out = module(*inputs)
    assert out.dtype == torch.bfloat16
    out.float().square().sum().backward()
    assert all(leaf.grad is not None and math.isfinite(leaf.grad.sum()) for leaf in leaves)
    assert all(leaf.grad.any() for leaf in leaves)


def test_families_are_their_own() -> None:
    others = {w.family for w in workloads.workloads() if w not in WORKLOADS}
    mine = [w.family for w in WORKLOADS]
    assert len(set(mine)) == len(mine)
    assert not others & set(mine)

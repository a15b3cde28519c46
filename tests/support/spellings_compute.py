"""How arithmetic is spelled."""

from __future__ import annotations

import operator

import torch
import torch.nn.functional as F
from spellings import (
    Arg,
    Case,
    aten,
    b,
    i,
    scale,
    shift,
    sp,
    table,
    w,
    wt,
    x,
    y,
)

from passwright.passes.ops import (
    Binary,
    Embedding,
    InplaceUnary,
    LayerNorm,
    Linear,
    Unary,
)

COMPUTE: list[Case] = [
    (
        Linear,
        (x, w, b),
        [
            sp(F.linear, x, w, b),
            sp(F.linear, x, w, bias=b),
            sp(F.linear, input=x, weight=w, bias=b),
            sp(torch._C._nn.linear, x, w, b),
            sp(aten.linear.default, x, w, b),
            sp(aten.addmm.default, b, x, wt),
            sp(aten.addmm.default, b, x, wt, beta=1, alpha=1),
        ],
    ),
    (
        Linear,
        (x, w, None),
        [
            sp(F.linear, x, w),
            sp(F.linear, x, w, None),
            sp(F.linear, x, weight=w, bias=None),
            sp(aten.linear.default, x, w),
            sp(aten.mm.default, x, wt),
            sp(aten.mm.default, x, Arg("wt", sp(aten.permute.default, w, [1, 0]))),
        ],
    ),
    (
        LayerNorm,
        (x, (10,), scale, shift, 1e-6),
        [
            sp(F.layer_norm, x, [10], scale, shift, 1e-6),
            sp(F.layer_norm, x, (10,), weight=scale, bias=shift, eps=1e-6),
            sp(
                F.layer_norm,
                input=x,
                normalized_shape=torch.Size([10]),
                weight=scale,
                bias=shift,
                eps=1e-6,
            ),
            sp(torch.layer_norm, x, [10], scale, shift, 1e-6),
            sp(torch.layer_norm, x, [10], scale, shift, eps=1e-6, cudnn_enable=False),
            sp(aten.layer_norm.default, x, [10], scale, shift, 1e-6),
        ],
    ),
    (
        LayerNorm,
        (x, (10,), None, None, 1e-5),
        [
            sp(F.layer_norm, x, [10]),
            sp(F.layer_norm, x, [10], None, None, 1e-5),
            sp(torch.layer_norm, x, [10]),
            sp(aten.layer_norm.default, x, [10]),
        ],
    ),
    (
        Embedding,
        (i, table, None),
        [
            sp(F.embedding, i, table),
            sp(F.embedding, input=i, weight=table, padding_idx=None),
            sp(F.embedding, i, table, None, None, 2.0, False, False),
            sp(torch.embedding, table, i),
            sp(torch.embedding, weight=table, indices=i),
            sp(aten.embedding.default, table, i),
            sp(aten.embedding.default, table, i, -1),
        ],
    ),
    (
        Embedding,
        (i, table, 8),
        [
            sp(F.embedding, i, table, 8),
            sp(F.embedding, i, table, padding_idx=-1),
            sp(torch.embedding, table, i, 8),
            sp(aten.embedding.default, table, i, 8),
        ],
    ),
    (
        Unary,
        ("clamp", x, (("min", 0), ("max", 1))),
        [
            sp(torch.clamp, x, 0, 1),
            sp(torch.clamp, x, min=0, max=1),
            sp(torch.clip, x, 0, max=1),
            sp("clamp", x, 0, 1),
            sp("clamp", x, max=1, min=0),
            sp("clip", x, 0, 1),
            sp(aten.clamp.default, x, 0, 1),
        ],
    ),
    (
        Unary,
        ("gelu", x, (("approximate", "tanh"),)),
        [sp(F.gelu, x, approximate="tanh"), sp(aten.gelu.default, x, approximate="tanh")],
    ),
    (
        Unary,
        ("leaky_relu", x, (("negative_slope", 0.2),)),
        [
            sp(F.leaky_relu, x, 0.2),
            sp(F.leaky_relu, x, 0.2, False),
            sp(F.leaky_relu, x, negative_slope=0.2, inplace=False),
        ],
    ),
    (
        InplaceUnary,
        ("relu", x, ()),
        [
            sp(F.relu, x, True),
            sp(F.relu, x, inplace=True),
            sp("relu_", x),
            sp(torch.relu_, x),
        ],
    ),
    (
        InplaceUnary,
        ("clamp", x, (("min", 0), ("max", None))),
        [sp("clamp_", x, 0), sp("clamp_", x, min=0), sp(torch.clamp_, x, 0)],
    ),
    (
        Binary,
        ("add", x, y, (("alpha", 2),)),
        [
            sp(torch.add, x, y, alpha=2),
            sp(torch.add, input=x, other=y, alpha=2),
            sp("add", x, y, alpha=2),
            sp(aten.add.Tensor, x, y, alpha=2),
        ],
    ),
    (
        Binary,
        ("div", x, y, (("rounding_mode", "floor"),)),
        [
            sp(torch.div, x, y, rounding_mode="floor"),
            sp("div", x, y, rounding_mode="floor"),
            sp(torch.divide, x, y, rounding_mode="floor"),
            sp("divide", x, other=y, rounding_mode="floor"),
        ],
    ),
    (
        Binary,
        ("mul", x, 3, ()),
        [
            sp(torch.mul, x, 3),
            sp("mul", x, 3),
            sp("mul", x, other=3),
            sp(operator.mul, x, 3),
            sp("multiply", x, 3),
            sp(torch.multiply, x, 3),
            sp(aten.mul.Tensor, x, 3),
        ],
    ),
    (Binary, ("sub", 2.5, x, (("alpha", 1),)), [sp(operator.sub, 2.5, x)]),
]

"""How matrix products, convolutions and attention are spelled."""

from __future__ import annotations

import operator

import torch
import torch.nn.functional as F
from spellings import (
    Case,
    aten,
    b,
    cube,
    image,
    inner,
    kernel,
    key,
    mask,
    outer,
    query,
    signal,
    sp,
    square,
    taps,
    tokens,
    v,
    value,
    volume,
    x,
    z,
    zt,
)

from passwright.passes.ops import Attention, Convolution, Einsum, Matmul, MultiHeadAttention

PRODUCTS: list[Case] = [
    (
        Matmul,
        (x, v),
        [
            sp(torch.matmul, x, v),
            sp(torch.matmul, input=x, other=v),
            sp("matmul", x, v),
            sp("matmul", x, other=v),
            sp("__matmul__", x, v),
            sp(operator.matmul, x, v),
            sp(torch.mm, x, v),
            sp(torch.mm, x, mat2=v),
            sp("mm", x, v),
            sp(aten.matmul.default, x, v),
            sp(aten.mm.default, x, v),
            sp(torch.tensordot, x, v, 1),
            sp(torch.tensordot, x, v, dims=([-1], [0])),
            sp(torch.tensordot, a=x, b=v, dims=[(1,), (-2,)]),
        ],
    ),
    (
        Matmul,
        (z, zt),
        [
            sp(torch.bmm, z, zt),
            sp("bmm", z, mat2=zt),
            sp(operator.matmul, z, zt),
            sp(aten.bmm.default, z, zt),
        ],
    ),
    (
        Einsum,
        ("bij,bkj->bik", (z, z)),
        [
            sp(torch.einsum, "bij,bkj->bik", z, z),
            sp(torch.einsum, "bij, bkj -> bik", [z, z]),
            sp(torch.functional.einsum, "bij,bkj->bik", z, z),
            sp(aten.einsum.default, "bij,bkj->bik", [z, z]),
        ],
    ),
    (
        Einsum,
        ("abc,dbf->acdf", (z, z)),
        [sp(torch.tensordot, z, z, ([1], [-2])), sp(torch.tensordot, z, z, dims=[[-2], [1]])],
    ),
    (
        MultiHeadAttention,
        (tokens, True, 0.0, False),
        [
            sp(
                F.multi_head_attention_forward,
                *(tokens, tokens, tokens, 4, 2, inner, None, None, None, False, 0.5, outer, None),
                *(False, None, False, square),
            ),
            sp(
                F.multi_head_attention_forward,
                *(tokens, tokens, tokens, 4, 2, inner, None, None, None, False),
                dropout_p=0.0,
                out_proj_weight=outer,
                out_proj_bias=None,
                attn_mask=square,
                need_weights=False,
            ),
        ],
    ),
    (
        Convolution,
        (signal, taps, b, (1,), (2,), (1,), 2),
        [
            sp(F.conv1d, signal, taps, b, 1, 2, 1, 2),
            sp(F.conv1d, signal, taps, b, padding=2, groups=2),
            sp(torch.conv1d, signal, taps, bias=b, padding=(2,), groups=2),
            sp(aten.conv1d.default, signal, taps, b, [1], [2], [1], 2),
        ],
    ),
    (
        Convolution,
        (image, kernel, None, (2, 2), (1, 0), (1, 1), 2),
        [
            sp(F.conv2d, image, kernel, None, 2, (1, 0), groups=2),
            sp(torch.conv2d, image, weight=kernel, stride=(2, 2), padding=[1, 0], groups=2),
            sp(aten.conv2d.default, image, kernel, None, [2, 2], [1, 0], [1, 1], 2),
        ],
    ),
    (
        Convolution,
        (volume, cube, None, (1, 1, 1), (0, 0, 0), (2, 2, 2), 2),
        [
            sp(F.conv3d, volume, cube, dilation=2, groups=2),
            sp(torch.conv3d, volume, cube, dilation=(2, 2, 2), groups=2),
            sp(aten.conv3d.default, volume, cube, None, [1, 1, 1], [0, 0, 0], [2, 2, 2], 2),
        ],
    ),
    (
        Attention,
        (query, key, value, mask, False, 0.5),
        [
            sp(F.scaled_dot_product_attention, query, key, value, mask, scale=0.5),
            sp(F.scaled_dot_product_attention, query, key, value, mask, 0.0, False, scale=0.5),
            sp(
                aten.scaled_dot_product_attention.default,
                query,
                key,
                value,
                mask,
                0.0,
                False,
                scale=0.5,
            ),
        ],
    ),
    (
        Attention,
        (query, key, value, None, True, None),
        [sp(F.scaled_dot_product_attention, query, key, value, is_causal=True)],
    ),
]

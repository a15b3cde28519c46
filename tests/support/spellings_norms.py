"""How batch norm, softmax, reductions, conversions and copies by broadcasting are spelled."""

from __future__ import annotations

import operator

import torch
import torch.nn.functional as F
from spellings import Case, aten, five, mean, one, scale, shift, sp, var, x, y, z

from passwright.passes.ops import (
    BatchNorm,
    Convert,
    Dropout,
    Expand,
    Identity,
    InplaceBinary,
    Reduce,
    Repeat,
    Softmax,
    Unary,
)

NORMS: list[Case] = [
    (
        BatchNorm,
        (x, mean, var, scale, shift, True, 0.1, 1e-5),
        [
            sp(F.batch_norm, x, mean, var, scale, shift, True),
            sp(F.batch_norm, x, mean, var, weight=scale, bias=shift, training=True, eps=1e-5),
            sp(torch.batch_norm, x, scale, shift, mean, var, True, 0.1, 1e-5, True),
            sp(aten.batch_norm.default, x, scale, shift, mean, var, True, 0.1, 1e-5, False),
        ],
    ),
    (
        BatchNorm,
        (x, mean, var, None, None, False, 0.1, 0.5),
        [sp(F.batch_norm, x, mean, var, eps=0.5), sp(F.batch_norm, x, mean, var, None, eps=0.5)],
    ),
    (
        Softmax,
        (x, 1, False),
        [
            sp(F.softmax, x, -1),
            sp(F.softmax, x, dim=1, _stacklevel=5),
            sp(torch.softmax, x, 1),
            sp("softmax", x, dim=-1),
            sp(aten.softmax.int, x, 1),
            sp(aten._softmax.default, x, 1, False),
        ],
    ),
    (
        Softmax,
        (x, 0, True),
        [
            sp(F.log_softmax, x, 0),
            sp(torch.log_softmax, x, -2),
            sp("log_softmax", x, dim=0),
            sp(aten.log_softmax.int, x, 0),
            sp(aten._log_softmax.default, x, 0, False),
        ],
    ),
    *(
        (
            Reduce,
            (name, z, (0, 2), True),
            [
                sp(getattr(torch, name), z, (0, 2), True),
                sp(getattr(torch, name), z, dim=[-1, 0], keepdim=True),
                sp(name, z, (0, 2), True),
                sp(overload, z, [0, -1], True),
            ],
        )
        for name, overload in (
            ("sum", aten.sum.dim_IntList),
            ("mean", aten.mean.dim),
            ("amax", aten.amax.default),
            ("amin", aten.amin.default),
        )
    ),
    (Reduce, ("sum", x, (1,), False), [sp(torch.sum, x, 1), sp("sum", x, axis=-1)]),
    (Reduce, ("sum", x, (0, 1), False), [sp(torch.sum, x), sp("sum", x)]),
    (
        Dropout,
        (x, 0.5),
        [
            sp(F.dropout, x),
            sp(F.dropout, x, 0.5, True, False),
            sp(torch.dropout, x, 0.5, True),
            sp(aten.dropout.default, x, 0.5, True),
        ],
    ),
    (
        Identity,
        (x,),
        [
            sp(F.dropout, x, 0.5, False),
            sp(F.dropout, x, p=0),
            sp(torch.dropout, x, 0.0, True),
            sp("contiguous", x),
            sp("float", x),
            sp("to", x, torch.float32),
            sp("type", x, torch.float32),
            sp("type_as", x, y),
        ],
    ),
    *(
        (Convert, (x, dtype), [sp(name, x)])
        for name, dtype in (
            ("long", torch.int64),
            ("int", torch.int32),
            ("double", torch.float64),
            ("half", torch.float16),
            ("bfloat16", torch.bfloat16),
            ("bool", torch.bool),
        )
    ),
    (
        Convert,
        (x, torch.int64),
        [
            sp("to", x, torch.int64),
            sp("to", x, dtype=torch.int64),
            sp("type", x, torch.int64),
            sp(aten.to.dtype, x, torch.int64),
            sp(aten._to_copy.default, x, dtype=torch.int64),
            sp(torch.ops.prims.convert_element_type.default, x, torch.int64),
        ],
    ),
    (
        Expand,
        (one, (4, 5, 10)),
        [
            sp("expand", one, 4, 5, 10),
            sp("expand", one, -1, 5, -1),
            sp("expand", one, (4, 5, 10)),
            sp("broadcast_to", one, (4, 5, 10)),
            sp(torch.broadcast_to, one, (4, 5, 10)),
            sp("expand_as", one, five),
            sp(aten.expand.default, one, [4, 5, 10]),
        ],
    ),
    (
        Repeat,
        (x, (1, 2, 3)),
        [
            sp("repeat", x, 1, 2, 3),
            sp("repeat", x, (1, 2, 3)),
            sp(aten.repeat.default, x, [1, 2, 3]),
            sp(torch.tile, x, (1, 2, 3)),
            sp("tile", x, (1, 2, 3)),
        ],
    ),
    (Repeat, (x, (1, 3)), [sp("repeat", x, 1, 3), sp(torch.tile, x, (3,)), sp("tile", x, 3)]),
    (
        Unary,
        ("pow", x, (("exponent", 2),)),
        [sp(torch.pow, x, 2), sp("pow", x, exponent=2), sp(operator.pow, x, 2)],
    ),
    (
        InplaceBinary,
        ("add", x, y, (("alpha", 1),)),
        [sp("add_", x, y), sp(operator.iadd, x, y), sp("add_", x, other=y, alpha=1)],
    ),
]

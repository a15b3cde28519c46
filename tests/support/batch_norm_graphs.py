"""Batch norms in sketched graphs."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import fx

from passwright.passes.patterns.batch_norms import BatchNormsByChannel
from passwright.passes.testing import Rewritten, random_inputs, rewrite_graph

NORMS = BatchNormsByChannel()


def statistics(s: Any, width: int, dtype: torch.dtype = torch.float32) -> tuple[fx.Node, fx.Node]:
    return s.input(width, dtype=dtype), s.input(width, dtype=dtype)


def norm(s: Any, x: fx.Node, *, stats: Any = True, affine: str = "wb", **more: Any) -> fx.Node:
    """A batch norm, in training if not told otherwise, with parameters of its own."""
    width = x.meta[s.key].shape[1]
    dtype = more.pop("dtype", torch.float32)
    mean, var = statistics(s, width, dtype) if stats is True else stats or (None, None)
    w, b = (
        s.input(width, dtype=dtype, requires_grad=True) if letter in affine else None
        for letter in "wb"
    )
    more = {"training": True, "momentum": 0.1, "eps": 1e-5} | more
    return s.call(F.batch_norm, x, mean, var, w, b, **more)


def used(s: Any, *values: fx.Node) -> None:
    """Returns one number a channel of each value, so that nobody sees strides."""
    results = []
    for value in values:
        dims = [dim for dim in range(value.meta[s.key].ndim) if dim != 1]
        results.append(s.call(torch.sum, s.call(torch.tanh, value), dims))
    s.output(*results)


def applied(s: Any, *patterns: Any, gradients: bool = True) -> Rewritten:
    """Rewrites the sketch and compares; no variance is negative."""
    module = s.module()
    inputs = [v if v.requires_grad else v.abs() for v in random_inputs(module.graph)]
    result = rewrite_graph(module, inputs, *(patterns or (NORMS,)))
    result.check(gradients=gradients)
    return result

"""Readers of look-ups besides the plain embedding, and of what scatters rows."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import fx

from passwright.passes.binding import Bound, spelled
from passwright.passes.ops import EmbeddingBag, EmbeddingGradient, IndexAdd, Op
from passwright.passes.read_compute import optional_tensor
from passwright.passes.spec import static

aten = torch.ops.aten
_INDEX_TYPES = (torch.int64, torch.int32)


@spelled(
    "index|input, weight, offsets=None, max_norm=None, norm_type=2, scale_grad_by_freq=False,"
    " mode='mean', sparse=False, per_sample_weights=None, include_last_offset=False,"
    " padding_idx=None",
    F.embedding_bag,
)
def read_embedding_bag(call: Bound) -> Op | None:
    """Not read: `max_norm` (it changes the weight), frequency scaling, sparse gradients, offsets with
    the end of the last bag, the weight given before the index as in old code."""
    odd = ("max_norm", "scale_grad_by_freq", "sparse", "include_last_offset")
    if any(call[name] not in (None, False) for name in odd):
        return None
    index, weight = call.tensor("index"), call.tensor("weight")
    fits_offsets, offsets = optional_tensor(call, "offsets")
    fits_weights, sample_weights = optional_tensor(call, "per_sample_weights")
    if index is None or weight is None or not fits_offsets or not fits_weights:
        return None
    if index[1].dtype.is_floating_point or weight[1].ndim != 2:
        return None
    if index[1].ndim != (2 if offsets is None else 1):
        return None
    padding, rows = call["padding_idx"], static(weight[1].shape[0])
    if padding is not None:
        if type(padding) is not int or not rows:
            return None
        padding %= rows
    if call["mode"] not in ("sum", "mean", "max"):
        return None
    operands = (index[0], weight[0], offsets, sample_weights)
    return EmbeddingBag(call.node, *operands, call["mode"], padding)


@spelled(
    "gradient|grad_output, index|indices, rows|num_weights, padding_idx, scale|scale_grad_by_freq",
    aten.embedding_dense_backward.default,
)
def read_embedding_gradient(call: Bound) -> Op | None:
    """Not read: frequency scaling."""
    gradient, index, rows = call.tensor("gradient"), call.tensor("index"), static(call["rows"])
    padding = call["padding_idx"]
    if gradient is None or index is None or rows is None or call["scale"] is not False:
        return None
    if type(padding) is not int or index[1].dtype not in _INDEX_TYPES:
        return None
    found = padding if padding >= 0 else None
    return EmbeddingGradient(call.node, gradient[0], index[0], rows, found)


def _add(call: Bound, indices: Any, values: str, mask: fx.Node | None = None) -> Op | None:
    """Rows added by one integer index into the first dim."""
    if not isinstance(indices, (tuple, list)) or len(indices) != 1:
        return None
    destination, added = call.tensor(), call.tensor(values)
    spec = call.specs(indices[0]) if isinstance(indices[0], fx.Node) else None
    if destination is None or added is None or getattr(spec, "dtype", None) not in _INDEX_TYPES:
        return None
    return IndexAdd(call.node, destination[0], indices[0], added[0], mask)


@spelled(
    "input, indices, values, accumulate=False",
    torch.index_put, "index_put", aten.index_put.default, aten._unsafe_index_put.default,
)  # fmt: skip
def read_index_put(call: Bound) -> Op | None:
    """Not read: values that overwrite, several indices, masks as indices."""
    return _add(call, call["indices"], "values") if call["accumulate"] is True else None


@spelled("input, mask, indices, values", aten._unsafe_masked_index_put_accumulate.default)
def read_masked_index_put(call: Bound) -> Op | None:
    mask = call.tensor("mask")
    return _add(call, call["indices"], "values", mask[0]) if mask else None


@spelled("input, dim, index, source, alpha=1", torch.index_add, "index_add", aten.index_add.default)
def read_index_add(call: Bound) -> Op | None:
    """Not read: along another dim than the first, a factor."""
    plain = call["dim"] == 0 and call["alpha"] == 1
    return _add(call, [call["index"]], "source") if plain else None

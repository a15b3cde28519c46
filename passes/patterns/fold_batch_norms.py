"""Batch norms of inference that become part of a product."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import fx

from passwright.passes.editor import GraphEditor
from passwright.passes.graph import GraphView
from passwright.passes.legality import batchable, only_user, static_shape, undisturbed
from passwright.passes.ops import BatchNorm, Convolution, Linear
from passwright.passes.pattern import TORCH_IR, Direction, Exactness, Match, Pattern, match
from passwright.passes.patterns.convolutions import convolution

_TYPES = {torch.bfloat16, torch.float32, torch.float64}


class FoldBatchNorm(Pattern):
    """In inference a batch norm is one factor and one summand a channel, which a product can hold.

    batch_norm(linear(x, w, b))      ==>   linear(x, w * f[:, None], (b - mean) * f + bias)
    linear(batch_norm(x), w, b)      ==>   linear(x, w * f, linear(bias - mean * f, w, b))

    with f = weight / sqrt(var + eps). Convolutions likewise. The new weight is computed in every
    call, from parameters alone. Known from torch.nn.utils.fuse_linear_bn_eval and fuse_conv_bn_eval.
    """

    direction = Direction.VERTICAL
    exactness = Exactness.REASSOCIATING
    anchors = frozenset({BatchNorm})
    levels = frozenset({TORCH_IR})
    conditions = (
        "evaluation mode, no gradient recorded",
        "the value between has no other user",
        "a Linear of rows (rank 2), or a convolution; behind the norm without padding and groups",
        "all in bfloat16, float32 or float64 (float16 might overflow); weights of known shape",
    )

    def matches(self, graph: GraphView, norm: BatchNorm) -> Iterator[Match]:
        if norm.training or graph.needs_grad(norm.node) or not batchable(graph, norm.node):
            return
        before = _product(graph, norm.input)
        alone = before is not None and only_user(graph, before.node, norm.node)
        if before is not None and alone and _fits(graph, norm, before):
            yield match(norm, before, product=before, parameters={"into": "producer"})
        after = _product(graph, next(iter(norm.node.users), None))
        if after is not None and after.input is norm.node:
            alone = only_user(graph, norm.node, after.node) and _reads_once(after)
            if alone and _holds_shift(after) and _fits(graph, norm, after):
                yield match(norm, after, product=after, parameters={"into": "user"})

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        norm, product = m.anchor, m.product
        factor, shift = _factor_and_shift(edit, norm)
        rank = edit.view.ndim(product.weight)
        weight = _widened(edit, product.weight)
        given = None if product.bias is None else _widened(edit, product.bias)
        if dict(m.parameters)["into"] == "producer":
            bias = shift if given is None else edit.add(edit.mul(given, factor), shift)
            weight = edit.mul(weight, _along(edit, factor, 0, rank))
            edit.replace(norm.node, _again(edit, product, product.input, weight, bias))
            return
        bias = _shift_behind(edit, product, weight, given, shift)
        weight = edit.mul(weight, _along(edit, factor, 1, rank))
        edit.replace(product.node, _again(edit, product, norm.input, weight, bias))


def _product(graph: GraphView, node: fx.Node | None) -> Linear | Convolution | None:
    op = graph.read(node)
    if isinstance(op, Convolution) or (isinstance(op, Linear) and graph.ndim(op.input) == 2):
        return op
    return None


def _reads_once(product: Linear | Convolution) -> bool:
    return product.input not in (product.weight, product.bias)


def _holds_shift(product: Linear | Convolution) -> bool:
    """Every element of the result sees each channel's summand alike: none is padded with zeros."""
    if isinstance(product, Linear):
        return True
    return product.groups == 1 and not any(product.padding)


def _fits(graph: GraphView, norm: BatchNorm, product: Linear | Convolution) -> bool:
    given = [norm.weight, norm.bias, norm.running_mean, norm.running_var, product.bias]
    given += [norm.input, norm.node, product.node, product.weight, product.input]
    types = {graph.spec(value).dtype for value in given if value is not None}
    if len(types) > 1 or not types <= _TYPES or graph.needs_grad(product.node):
        return False
    if static_shape(graph, product.weight) is None or not batchable(graph, product.node):
        return False
    one_region = graph.region(product.node) == graph.region(norm.node)
    return one_region and undisturbed(graph, product.node, norm.node)


def _factor_and_shift(edit: GraphEditor, norm: BatchNorm) -> tuple[fx.Node, fx.Node]:
    """What each channel is multiplied by, and what is then added."""
    assert norm.running_mean is not None
    assert norm.running_var is not None
    var = _widened(edit, norm.running_var)
    dtype = edit.view.spec(var).dtype
    factor = edit.pointwise(torch.add, var, norm.eps, dtype=dtype)
    factor = edit.pointwise(torch.rsqrt, factor, dtype=dtype)
    if norm.weight is not None:
        factor = edit.mul(factor, _widened(edit, norm.weight))
    moved = edit.mul(_widened(edit, norm.running_mean), factor)
    if norm.bias is None:
        return factor, edit.pointwise(torch.neg, moved, dtype=dtype)
    return factor, edit.pointwise(torch.sub, _widened(edit, norm.bias), moved, dtype=dtype)


def _widened(edit: GraphEditor, value: fx.Node) -> fx.Node:
    """In half precision the arithmetic on parameters is done in float32, and rounded once."""
    dtype = edit.view.spec(value).dtype
    return edit.convert(value, torch.float32 if dtype is torch.bfloat16 else dtype)


def _along(edit: GraphEditor, values: fx.Node, dim: int, rank: int) -> fx.Node:
    """One number for each index of `dim` of a tensor of this rank."""
    shape: Sequence[int] = [1] * rank
    size = edit.view.shape(values)[0]
    return edit.reshape(values, [*shape[:dim], size, *shape[dim + 1 :]])


def _shift_behind(
    edit: GraphEditor,
    product: Linear | Convolution,
    weight: fx.Node,
    bias: fx.Node | None,
    shift: fx.Node,
) -> fx.Node:
    """What the product makes of a summand for each input channel, with its own bias."""
    width, *_ = edit.view.shape(weight)
    if isinstance(product, Linear):
        row = edit.linear(edit.unsqueeze(shift, 0), weight, bias)
        return edit.reshape(row, (width,))
    rank = edit.view.ndim(weight)
    spread = edit.mul(weight, _along(edit, shift, 1, rank))
    total = edit.reduce("sum", spread, range(1, rank), keepdim=False)
    return total if bias is None else edit.add(total, bias)


def _again(
    edit: GraphEditor, product: Linear | Convolution, x: fx.Node, weight: fx.Node, bias: fx.Node
) -> fx.Node:
    dtype = edit.view.spec(x).dtype
    weight, bias = edit.convert(weight, dtype), edit.convert(bias, dtype)
    if isinstance(product, Linear):
        return edit.linear(x, weight, bias)
    return convolution(edit, product, x, weight, bias)

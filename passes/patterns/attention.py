"""Attention written out as products and a softmax, as the one call that has kernels of its own."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import fx

from passwright.passes.bounds import bound
from passwright.passes.contraction import contraction, order
from passwright.passes.editor import GraphEditor
from passwright.passes.graph import GraphView
from passwright.passes.legality import batchable, only_user, same_shape, undisturbed
from passwright.passes.ops import Binary, Convert, Einsum, Identity, Matmul, Op, Operand, Softmax
from passwright.passes.pattern import TORCH_IR, Direction, Exactness, Match, Pattern, match
from passwright.passes.patterns.layouts import settled, without_dim
from passwright.passes.spec import Size, Spec
from passwright.passes.strides import observes_strides

_SINGLE = (torch.float32, torch.float64)
_FLOATS = (*_SINGLE, torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class Product:
    """`matmul(left.permute(left_dims), right.permute(right_dims)).permute(dims)`."""

    left: fx.Node
    right: fx.Node
    left_dims: list[int]
    right_dims: list[int]
    dims: list[int]


@dataclass
class Scores:
    """What lies between the first product and the second one, from below to above."""

    nodes: list[fx.Node] = field(default_factory=list)
    scale: float = 1.0
    mask: fx.Node | None = None


class FuseAttention(Pattern):
    """Attention written out becomes one scaled_dot_product_attention.

    matmul(softmax(matmul(q, k.mT) * s + mask, -1), v)   ==>   attention(q, k, v, mask, scale=s)

    Products may be spelled as einsum; the scale may stand before or after the first one, in several
    places, as a factor or a divisor. Operands of rank 2 and 3 get dims of size 1, as kernels want
    four. The kernels do best with long sequences; with few short heads the written form may win.
    Known from Inductor's fuse_attention, which knows a list of codings and no einsum.
    """

    direction = Direction.VERTICAL
    exactness = Exactness.REASSOCIATING
    anchors = frozenset({Matmul, Einsum})
    levels = frozenset({TORCH_IR})
    conditions = (
        "nothing between the products has another user or is written",
        "the scale is a number; no dropout that is switched on; no conversion to a smaller type",
        "query, key, value and result of one floating type and with the same leading dims",
        "a mask is added, finite, and in single or double precision: a row without any key gives 0",
    )

    def matches(self, graph: GraphView, anchor: Matmul | Einsum) -> Iterator[Match]:
        second = _product(graph, anchor)
        if second is None or second.left_dims != list(range(len(second.left_dims))):
            return
        found = _scores(graph, anchor.node, second.left)
        above = graph.read(found.nodes[-1]) if found is not None else None
        if found is None or not isinstance(above, (Matmul, Einsum)):
            return
        first = _product(graph, above)
        if first is None or first.dims != list(range(len(first.dims))):
            return
        shape = graph.shape(above.node)
        if not _fit(graph, anchor, first, second) or not _mask_fits(graph, found.mask, shape):
            return
        if observes_strides(graph, anchor.node) and not _lies_plainly(graph, anchor.node, second):
            return
        query, query_scale = _unscaled(graph, first.left, above.node)
        key, key_scale = _unscaled(graph, first.right, above.node)
        scale = found.scale * query_scale * key_scale
        scaled = [n for n, source in ((first.left, query), (first.right, key)) if n is not source]
        nodes = [*found.nodes, *scaled]
        if not math.isfinite(scale) or not _together(graph, anchor.node, nodes):
            return
        roles = {"query": query, "key": key, "mask": found.mask, "scale": scale}
        width = graph.shape(query)[first.left_dims[-1]]
        yield match(
            anchor, *nodes, first=first, second=second, parameters={"width": width}, **roles
        )

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        first, second, mask = m.first, m.second, m.mask
        *lead, rows, columns = first.right_dims
        query = edit.permute(m.query, first.left_dims)
        key = edit.permute(m.key, [*lead, columns, rows])
        value = edit.permute(second.right, second.right_dims)
        rank = edit.view.ndim(query)
        for _ in range(4 - rank):
            query, key, value = (edit.unsqueeze(x, rank - 2) for x in (query, key, value))
        if mask is not None and rank == 3 and edit.view.ndim(mask) == 3:
            mask = edit.unsqueeze(mask, 1)
        y = edit.attention(query, key, value, mask=mask, scale=m.scale)
        for _ in range(4 - rank):
            y = without_dim(edit, y, rank - 2)
        old = m.anchor.node
        edit.replace(old, edit.permute(settled(edit, old, y), second.dims))


def _product(graph: GraphView, op: Op | None) -> Product | None:
    """A matrix product of dims as they are, whichever op says it."""
    if isinstance(op, Matmul):
        ranks = [graph.ndim(value) for value in (op.left, op.right, op.node)]
        dims = [list(range(rank)) for rank in ranks]
        return Product(op.left, op.right, *dims)
    parts = contraction(graph, op) if isinstance(op, Einsum) else None
    if parts is None or not len(parts.rows) == len(parts.inner) == len(parts.columns) == 1:
        return None
    left = order(parts.left, parts.batch + parts.rows + parts.inner)
    right = order(parts.right, parts.batch + parts.inner + parts.columns)
    return Product(op.inputs[0], op.inputs[1], left, right, order(parts.product, parts.out))  # type: ignore[union-attr]


def _scores(graph: GraphView, user: fx.Node, node: fx.Node) -> Scores | None:
    """What lies between `user` and the product whose softmax it takes, the product included."""
    found, softmax, kind = Scores(), False, graph.spec(user).dtype
    while only_user(graph, node, user):
        found.nodes.append(node)
        op = graph.read(node)
        if isinstance(op, (Matmul, Einsum)):
            return found if softmax else None
        above: Operand | None = None
        if isinstance(op, (Identity, Convert)) and _keeps(graph.spec(node).dtype, kind):
            above = op.input
        elif isinstance(op, Softmax) and not softmax and not op.log:
            softmax = True
            above = op.input if op.dim == graph.ndim(node) - 1 else None
        elif isinstance(op, Binary) and softmax:
            above = _scaled_or_masked(graph, op, found)
        if not isinstance(above, fx.Node):
            return None
        user, node = node, above
    return None


def _keeps(dtype: torch.dtype, kind: torch.dtype) -> bool:
    """Numbers of type `kind` are not rounded in this one."""
    return dtype in _FLOATS and (dtype == kind or dtype.itemsize > kind.itemsize)


def _scaled_or_masked(graph: GraphView, op: Binary, found: Scores) -> Operand | None:
    """The scores that `op` scales or masks; what it does to them is noted in `found`."""
    factor = _factor(op)
    if factor is not None:
        found.scale *= factor[1]
        return factor[0]
    if op.function != "add" or found.mask is not None or found.scale != 1.0:
        return None
    if dict(op.params).get("alpha", 1) != 1:
        return None
    for scores, mask in ((op.left, op.right), (op.right, op.left)):
        if isinstance(scores, fx.Node) and isinstance(mask, fx.Node):
            fits = same_shape(graph.shape(scores), graph.shape(op.node))
            if fits and bound(graph, mask) is not None:
                found.mask = mask
                return scores
    return None


def _factor(op: Binary) -> tuple[fx.Node, float] | None:
    """The value and the number by which `op` multiplies it."""
    for value, number in ((op.left, op.right), (op.right, op.left)):
        if isinstance(value, fx.Node) and type(number) in (int, float):
            if op.function == "mul":
                return value, float(number)  # type: ignore[arg-type]
            plain = op.function == "div" and value is op.left and number != 0
            if plain and dict(op.params).get("rounding_mode") is None:
                return value, 1 / float(number)  # type: ignore[arg-type]
    return None


def _unscaled(graph: GraphView, value: fx.Node, user: fx.Node) -> tuple[fx.Node, float]:
    """An operand of the first product without the number it was multiplied by for it alone."""
    op = graph.producer(value, Binary)
    factor = _factor(op) if op is not None else None
    if factor is None or not only_user(graph, value, user) or not batchable(graph, value):
        return value, 1.0
    before, after = graph.spec(factor[0]), graph.spec(value)
    alike = before.dtype == after.dtype and same_shape(before.shape, after.shape)
    return factor if alike and graph.region(value) == graph.region(user) else (value, 1.0)


def _fit(graph: GraphView, anchor: Op, first: Product, second: Product) -> bool:
    """Query, key, value and result have one type, and the same leading dims."""
    operands = ((first.left, first.left_dims), (first.right, first.right_dims))
    laid = [*operands, (second.right, second.right_dims)]
    leads: list[list[Size]] = [[graph.shape(x)[d] for d in dims[:-2]] for x, dims in laid]
    specs = [graph.spec(x) for x in (anchor.node, *(x for x, _ in laid))]
    kind = (specs[0].dtype, specs[0].device)
    ranks = {len(dims) for _, dims in laid}
    return (
        ranks <= {2, 3, 4}
        and all((spec.dtype, spec.device) == kind for spec in specs)
        and all(spec.layout is torch.strided for spec in specs)
        and kind[0] in _FLOATS
        and all(same_shape(lead, leads[0]) for lead in leads)
    )


def _lies_plainly(graph: GraphView, node: fx.Node, product: Product) -> bool:
    """The result is contiguous, or a permute of a contiguous product."""
    spec = graph.spec(node)
    back = [product.dims.index(dim) for dim in range(spec.ndim)]
    turned = spec.view([spec.shape[d] for d in back], [spec.stride[d] for d in back])
    return spec.is_contiguous or turned.is_contiguous


def _mask_fits(graph: GraphView, mask: fx.Node | None, scores: tuple[Size, ...]) -> bool:
    if mask is None:
        return True
    spec = graph.spec(mask)
    return spec.dtype in _SINGLE and spec.ndim in (2, len(scores))


def _together(graph: GraphView, anchor: fx.Node, nodes: list[fx.Node]) -> bool:
    """One region, no writes to what is taken out, nor to what it reads while it is computed."""
    regions = {graph.region(node) for node in (anchor, *nodes)}
    specs = [graph.any_spec(node) for node in nodes]
    if len(regions) > 1 or not all(isinstance(spec, Spec) for spec in specs):
        return False
    return all(batchable(graph, n) for n in (anchor, *nodes)) and undisturbed(graph, anchor, *nodes)

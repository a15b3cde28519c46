"""Names and kinds of ops, the same for every spelling of an op."""

from __future__ import annotations

from torch import fx

from passwright.passes import ops
from passwright.passes.address import target_name
from passwright.passes.graph import GraphView

_PRODUCTS = (
    ops.Linear, ops.Matmul, ops.Einsum, ops.Convolution, ops.Attention, ops.MultiHeadAttention,
)  # fmt: skip
_REDUCTIONS = (ops.Reduce, ops.Softmax, ops.LayerNorm, ops.BatchNorm)
_LOOKUPS = (ops.Embedding, ops.EmbeddingBag, ops.EmbeddingGradient, ops.IndexAdd)
_MOVEMENT = (ops.Cat, ops.Stack, ops.Repeat, ops.Convert)
#: Not read as an op: patterns do not look at them. The editor inserts the first.
_COPIES = ("clone", "contiguous", "aten.clone.default")
_POINTWISE = (ops.Unary, ops.InplaceUnary, ops.Binary, ops.InplaceBinary, ops.Dropout)


def word(view: GraphView, node: fx.Node) -> str:
    """What a node does: `Linear`, `Unary relu`; the name of its target where nobody understands it, and
    its kind where it computes nothing: `placeholder`."""
    if node.op in ("placeholder", "output", "get_attr"):
        return node.op
    op = view.read(node)
    if op is None:
        return target_name(node)
    function = getattr(op, "function", None)
    name = type(op).__name__
    return f"{name} {function}" if isinstance(function, str) else name


def kind(view: GraphView, node: fx.Node) -> str:
    """Which of `schema.KINDS` a node is."""
    op = view.read(node)
    if isinstance(op, _PRODUCTS):
        return "product"
    if isinstance(op, _POINTWISE):
        return "pointwise"
    if isinstance(op, _REDUCTIONS):
        return "reduction"
    if isinstance(op, _LOOKUPS):
        return "lookup"
    if isinstance(op, _MOVEMENT):
        return "movement"
    if _moves_at_most(view, node):
        return "view" if is_view(view, node) else "movement"
    return "other"


def is_view(view: GraphView, node: fx.Node) -> bool:
    """It lies in the memory of its input: no clone, and no reshape that has to copy."""
    shared = view.storages([node]) & view.storages(node.all_input_nodes)
    return bool(shared) and _moves_at_most(view, node)


def _moves_at_most(view: GraphView, node: fx.Node) -> bool:
    op = view.read(node)
    return op.is_view if op is not None else target_name(node).lstrip(".") in _COPIES

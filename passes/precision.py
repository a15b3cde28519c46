"""Whether a matrix product and a sum of products may stand for each other.

The maths is the same; the type in which it is done need not be. Autocast runs products in 16 bits and
sums in 32, and a GPU may round float32 operands of a product to 19 bits (TF32). A rewrite may change
the order of additions, not the number of bits.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import fx

from passwright.passes.graph import GraphView


def autocasts(graph: GraphView, node: fx.Node) -> bool:
    """Autocast holds for the node, by the graph or by the caller.

    Dynamo compiles anew where the caller's autocast changes, so what holds now holds for this graph.
    """
    device = graph.spec(node).device.type
    if not torch.amp.is_autocast_available(device):
        return False
    return bool(graph.mode(graph.region(node)).autocasts) or torch.is_autocast_enabled(device)


def one_type(graph: GraphView, node: fx.Node, *operands: fx.Node) -> bool:
    """The value and its operands have one floating-point type, place and layout."""
    specs = [graph.spec(value) for value in (node, *operands)]
    kinds = {(spec.dtype, spec.device, spec.layout) for spec in specs}
    return len(kinds) == 1 and specs[0].dtype.is_floating_point


def products_agree(graph: GraphView, products: Sequence[fx.Node], *operands: fx.Node) -> bool:
    """Matrix products of operands of one type, which have that type as well, or what the graph's
    autocast makes of it. (Of the caller's autocast a builder that foretells types knows nothing.)"""
    if not one_type(graph, *operands) or not one_type(graph, *products):
        return False
    shown = graph.mode(graph.region(products[0])).autocasts
    return bool(shown) or one_type(graph, products[0], *operands)


def sum_may_be_product(graph: GraphView, node: fx.Node, *operands: fx.Node) -> bool:
    """The sum of products `node` loses no precision as a matrix product.

    In 16 bits it wins some: a GEMM adds up before it rounds.
    """
    if not one_type(graph, node, *operands) or autocasts(graph, node):
        return False
    spec = graph.spec(node)
    if spec.device.type == "cuda" and spec.dtype is torch.float32:
        return torch.get_float32_matmul_precision() == "highest"
    return True

"""How much arithmetic a node does: operations of products, exponentials of pointwise functions.

A vectorised loop on a CPU is bound by memory for sums and products, but not for an exponential. The
weights of functions were measured on one AVX2 core, in loops that Inductor (torch 2.13) made over
65,536 elements of float32 in the cache; one exponential took 0.9 ns.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import fx

from passwright.passes.graph import GraphView
from passwright.passes.spec import Spec, hint

PRODUCTS = frozenset(
    """linear mm bmm addmm baddbmm matmul __matmul__ einsum tensordot conv1d conv2d conv3d convolution
    scaled_dot_product_attention multi_head_attention_forward bilinear addbmm mv dot
    linear_saving_float8""".split()
)
_BATCHED = frozenset(["bmm", "baddbmm", "matmul", "__matmul__"])
#: Exponentials that take as long as one evaluation of the function. A loop that picks rows by an index
#: is not vectorised: FFM (9 fields, batch 512) by `pair_products` took 3.5 times as long on two cores.
_WEIGHTS = {
    "celu": 1.2, "cos": 1.4, "elu": 1.2, "erf": 1.9, "exp": 1.0, "expm1": 1.2, "gelu": 1.7,
    "index_select": 8.0, "log": 1.8, "log1p": 2.0, "log2": 1.8, "log_softmax": 1.5,
    "logsigmoid": 3.5, "logsumexp": 1.2, "mish": 8.5, "selu": 1.2, "sigmoid": 1.3, "silu": 1.3,
    "sin": 1.4, "softmax": 1.2, "softplus": 3.6, "tan": 2.0, "tanh": 3.3,
}  # fmt: skip
#: A function of a function waits for it, and the loop has nothing else to do meanwhile. Measured:
#: in chains of three, a function took 1.3 (tanh) to 1.7 (exp, silu) times as long as alone.
_WAIT = 1.45


def op_name(node: fx.Node) -> str:
    """The op's bare name: `mm` for aten.mm.default, `linear` for torch._C._nn.linear."""
    if isinstance(node.target, torch._ops.OpOverload):
        return node.target._schema.name.rpartition("::")[2]
    return str(getattr(node.target, "__name__", node.target))


def exponentials(nodes: Iterable[fx.Node], view: GraphView) -> float:
    """Exponentials that one fused loop computes for each element; nodes in graph order."""
    total, waits = 0.0, False
    # By memory, so that a view between two functions does not hide that one needs the other.
    costly: set[int] = set()
    for node in nodes:
        own = _WEIGHTS.get(op_name(node).strip("_"), 0.0)
        inputs = [view.any_spec(source) for source in node.all_input_nodes]
        follows = any(isinstance(spec, Spec) and spec.storage in costly for spec in inputs)
        waits |= own > 0 and follows
        total += own
        if own or follows:
            costly.add(view.spec(node).storage)
    return total * (_WAIT if waits else 1.0)


def product_flops(view: GraphView, node: fx.Node, out: Spec) -> float:
    """Operations of a product (a multiply-add counts as two), from shapes alone."""
    name = op_name(node)
    inputs = [view.any_spec(source) for source in node.all_input_nodes]
    tensors = [spec for spec in inputs if isinstance(spec, Spec) and spec.ndim]
    if not tensors:
        return 2.0 * out.numel
    if name.startswith("conv") and len(tensors) > 1:
        return 2.0 * out.numel * tensors[1].numel / max(1, hint(tensors[1].shape[0]))
    if name == "tensordot" and len(tensors) > 1 and out.numel:
        # (m k) by (k n): what both have and the result has not, twice over.
        return 2.0 * out.numel * math.sqrt(tensors[0].numel * tensors[1].numel / out.numel)
    if name == "einsum" and isinstance(node.args[0], str):
        return _einsum_flops(node.args[0], tensors)
    biased = name in ("addmm", "baddbmm", "addbmm") and len(tensors) > 2
    return 2.0 * out.numel * hint(tensors[biased].shape[-1])


def product_items(node: fx.Node, out: Spec) -> int:
    """How many products a batched one consists of; 1 for a plain one."""
    if op_name(node) not in _BATCHED:
        return 1
    return math.prod(map(hint, out.shape[:-2]))


def attention_items(node: fx.Node, out: Spec) -> tuple[int, int]:
    """Heads of attention in all, and the queries of each; (0, 0) for anything else."""
    if op_name(node) != "scaled_dot_product_attention" or out.ndim < 3:
        return 0, 0
    return math.prod(map(hint, out.shape[:-2])), hint(out.shape[-2])


def _einsum_flops(equation: str, tensors: list[Spec]) -> float:
    sizes: dict[str, int] = {}
    labels = equation.split("->")[0].replace(" ", "").split(",")
    for names, spec in zip(labels, tensors, strict=False):
        sizes |= dict(zip(names, map(hint, spec.shape), strict=False))
    return 2.0 * math.prod(sizes.values())

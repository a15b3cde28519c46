"""Random inputs for a captured graph, valid where its ops have demands.

Types, shapes, strides and devices come from the graph's placeholders. Indices have to stay within
the tables that they point into: every index is traced back to the inputs that it was made of.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor

from passwright.passes.errors import VerificationError
from passwright.passes.graph import GraphView
from passwright.passes.ops import (
    Binary,
    Cat,
    Embedding,
    Permute,
    Piece,
    Reshape,
    Select,
    Slice,
    Split,
    Stack,
    Unbind,
)
from passwright.passes.spec import Spec, hint

#: Integers that reach no index: small, so that they also do as flags, lengths or classes.
_USUAL_BOUND = 2
_SCALE = 0.1
_MOVES = (Split, Unbind, Piece, Reshape, Permute, Slice, Select)
#: Hand the same numbers on, in another type, place or shape.
_HANDS_ON = frozenset(
    [
        *("to", "long", "int", "short", "type", "type_as", "float", "double", "cpu", "cuda"),
        *("contiguous", "clone", "detach", "expand", "expand_as", "repeat", "alias", "_to_copy"),
        *("repeat_interleave", "tile", "lift_fresh_copy", "relu", "abs"),
    ]
)
#: Name -> positions of table, dim and index.
_INDEXING = {
    "index_select": (0, 1, 2),
    "gather": (0, 1, 2),
    "scatter": (0, 1, 2),
    "scatter_": (0, 1, 2),
    "scatter_add": (0, 1, 2),
    "scatter_add_": (0, 1, 2),
    "scatter_reduce": (0, 1, 2),
    "index_add": (0, 1, 2),
    "index_add_": (0, 1, 2),
    "index_copy": (0, 1, 2),
    "index_fill": (0, 1, 2),
    "take_along_dim": (0, 2, 1),
}


def sample_inputs(
    module: fx.GraphModule, example_inputs: Sequence[Any] | None = None, *, seed: int = 0
) -> list[Any]:
    """One value for every placeholder, the same for the same seed; torch's own stream is untouched.

    Floating-point tensors are normal numbers with a deviation of 0.1. Where a real example is
    given, it is shaken instead: the noise keeps zeros and ones of fresh parameters from hiding an
    error, the example keeps variances positive and deep models in range. Integers are taken from a
    real example as they are, and are drawn within the bounds of the indices that they become
    otherwise; so are floating-point columns that a model casts to indices. A symbolic size gets its
    hint.

    Raises VerificationError for a placeholder of unknown type without an example.
    """
    view = GraphView(module.graph)
    nodes = list(module.graph.find_nodes(op="placeholder"))
    examples = [None] * len(nodes) if example_inputs is None else list(example_inputs)
    bounds = index_bounds(view)
    positive = set(_variances(view))
    generator = torch.Generator().manual_seed(seed)
    values: list[Any] = []
    for node, example in zip(nodes, examples, strict=True):
        known = node.meta.get(view.dialect.value)
        if isinstance(example, torch.Tensor) and not isinstance(example, FakeTensor):
            value = _shaken(example, node in bounds, generator)
        elif isinstance(known, torch.Tensor):
            value = _drawn(known, bounds.get(node), generator)
            value = value.abs() + 0.5 if node in positive else value
        else:
            # A real size goes with the real tensors, whatever size the graph was captured with.
            given = isinstance(example, (int, float))
            values.append(_plain(example if given or known is None else known, node))
            continue
        pattern: Any = known if isinstance(known, torch.Tensor) else example
        values.append(value.detach().requires_grad_(pattern.requires_grad))
    return values


def _plain(value: Any, node: fx.Node) -> Any:
    """A size or another number; a symbolic one by what this run saw."""
    if isinstance(value, torch.SymInt):
        return hint(value)
    if isinstance(value, (torch.SymFloat, torch.SymBool)):
        return value.node.hint
    if value is None:
        raise VerificationError(f"input {node.name} has no known type: give real inputs")
    return value


def _shaken(example: torch.Tensor, is_index: bool, generator: torch.Generator) -> torch.Tensor:
    if is_index or not (example.is_floating_point() or example.is_complex()):
        return example
    value = example.detach()
    size = value.abs().square().mean(dtype=torch.float64 if value.device.type == "cpu" else None)
    scale = float(size.sqrt()) if value.numel() else 0.0
    noise = _like(value, generator) * (_SCALE * (scale if 0 < scale < 1e30 else 1.0))
    # In the example's own memory layout: the sum of two tensors of equal strides has them too.
    return _laid_out(value + noise.to(value.device, value.dtype), value)


def _like(value: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    shape = [hint(size) for size in value.shape]
    dtype = torch.complex128 if value.is_complex() else torch.float64
    return torch.randn(shape, generator=generator, dtype=dtype)


def _laid_out(value: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """`value` with the strides of `like`; where elements share a place, one of them wins."""
    if like.layout is not torch.strided or not value.numel():
        return value
    strides = [hint(step) for step in like.stride()]
    extent = 1 + sum((n - 1) * step for n, step in zip(value.shape, strides, strict=True))
    buffer = torch.zeros(extent, dtype=value.dtype, device=value.device)
    view = buffer.as_strided(value.shape, strides)
    if 0 in [step for n, step in zip(value.shape, strides, strict=True) if n > 1]:
        part = value[tuple(slice(0, 1) if step == 0 else slice(None) for step in strides)]
        buffer.as_strided(part.shape, strides).copy_(part)
    else:
        view.copy_(value)
    return view


def _drawn(known: torch.Tensor, bound: int | None, generator: torch.Generator) -> torch.Tensor:
    shape = [hint(size) for size in known.shape]
    if bound is None and (known.is_floating_point() or known.is_complex()):
        value = _like(known, generator) * _SCALE
    elif known.dtype is torch.bool:
        value = torch.randint(0, 2, shape, generator=generator)
    else:
        value = torch.randint(0, max(bound or _USUAL_BOUND, 1), shape, generator=generator)
    return _laid_out(value.to(known.device, known.dtype), known)


# ---- bounds of indices


def index_bounds(view: GraphView) -> dict[fx.Node, int]:
    """For every placeholder that becomes an index: the least number of rows it may point to."""
    bounds: dict[fx.Node, int] = {}
    for user in view.nodes():
        for index, bound in _indices(view, user):
            _trace(view, index, bound, bounds)
    return {node: bound for node, bound in bounds.items() if node.op == "placeholder"}


def _trace(view: GraphView, index: fx.Node, bound: int, bounds: dict[fx.Node, int]) -> None:
    """Lowers the bounds of everything that the index is made of."""
    pending = [(index, bound)]
    while pending:
        node, limit = pending.pop()
        if bounds.get(node, limit + 1) <= limit:
            continue
        bounds[node] = limit
        pending += _sources(view, node, limit)


def _sources(view: GraphView, node: fx.Node, bound: int) -> Iterator[tuple[fx.Node, int]]:
    op = view.read(node)
    if isinstance(op, (Cat, Stack)):
        yield from ((source, bound) for source in op.inputs)
    elif isinstance(op, _MOVES):
        yield op.input, bound
    elif isinstance(op, Binary) and op.function == "add":
        # Offsets into one big table: both summands stay in the lower half.
        both = isinstance(op.left, fx.Node) and isinstance(op.right, fx.Node)
        for operand, other in ((op.left, op.right), (op.right, op.left)):
            if isinstance(operand, fx.Node):
                least = bound // 2 if both else bound - int(other)  # type: ignore[arg-type]
                yield operand, max(least, 1)
    elif _name(node) in _HANDS_ON and node.args and isinstance(node.args[0], fx.Node):
        yield node.args[0], bound


def _indices(view: GraphView, node: fx.Node) -> Iterator[tuple[fx.Node, int]]:
    """The index arguments of a node, each with its bound."""
    op, name = view.read(node), _name(node)
    if isinstance(op, Embedding):
        yield op.index, hint(view.spec(op.weight).shape[0])
        return
    at = [_argument(node, position) for position in range(4)]
    if name in ("embedding", "embedding_bag", "_embedding_bag", "embedding_renorm_"):
        table_first = node.target not in (F.embedding, F.embedding_bag)
        table, index = (at[0], at[1]) if table_first else (at[1], at[0])
        yield from _within(view, table, 0, index)
        if isinstance(at[2], fx.Node):
            yield at[2], 1
    elif name in _INDEXING:
        table, dim, index = (at[position] for position in _INDEXING[name])
        yield from _within(view, table, dim, index)
    elif name in ("cross_entropy", "nll_loss"):
        yield from _within(view, at[0], 1, at[1])
    elif name == "one_hot" and isinstance(at[0], fx.Node):
        yield at[0], at[1] if type(at[1]) is int and at[1] > 0 else _USUAL_BOUND
    elif name in ("getitem", "setitem", "index", "index_put", "index_put_"):
        items = at[1] if isinstance(at[1], (tuple, list)) else (at[1],)
        for dim, item in enumerate(items):
            yield from _within(view, at[0], dim, item)


def _within(view: GraphView, table: Any, dim: Any, index: Any) -> Iterator[tuple[fx.Node, int]]:
    spec = view.any_spec(table) if isinstance(table, fx.Node) else None
    if not isinstance(spec, Spec) or not isinstance(index, fx.Node) or type(dim) is not int:
        return
    dim = min(dim, spec.ndim - 1)
    if -spec.ndim <= dim:
        yield index, hint(spec.shape[dim])


def _variances(view: GraphView) -> Iterator[fx.Node]:
    """Inputs of the graph that are running variances: a negative one makes every output NaN."""
    for node in view.nodes():
        if "batch_norm" in _name(node) or _name(node) == "instance_norm":
            second = node.target in (F.batch_norm, F.instance_norm)
            value = node.kwargs.get("running_var", _argument(node, 2 if second else 4))
            if isinstance(value, fx.Node):
                yield value


def _argument(node: fx.Node, position: int) -> Any:
    """A positional argument; keywords in the order in which they were given come after them."""
    given = [*node.args, *node.kwargs.values()]
    return given[position] if position < len(given) else None


def _name(node: fx.Node) -> str:
    if node.op not in ("call_function", "call_method"):
        return ""
    return str(getattr(node.target, "__name__", node.target)).partition(".")[0]

"""Other spellings of a call, made from the table of spellings: `x.split(4, -1)` for `torch.split(x, 4, 1)`.

A spelling counts only if torch accepts it and it reads as the very same canonical op, so a new op
needs nothing here: what `binding.TABLE` knows is tried.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import fx

from passwright.passes.binding import _UNIVERSAL_ALIASES, TABLE, Signature, read
from passwright.passes.ops import Op
from passwright.passes.sketch import Sketch
from passwright.passes.spec import AnySpec, spec_of
from passwright.passes.strides import OBSERVERS

#: Target, positional and keyword arguments; a string is a method.
Call = tuple[Any, tuple[Any, ...], dict[str, Any]]
_DIMS = frozenset({"dim", "dim0", "dim1", "start_dim", "end_dim"})


def op_of(s: Sketch, node: fx.Node) -> Op | None:
    """The canonical op of a node of a sketch."""
    return read(node, lambda n: _spec(s, n))


def other_forms(s: Sketch, node: fx.Node) -> list[Call]:
    """Every way to write the call that might be another spelling of it; none for an unread node."""
    entry = TABLE.get(("method", node.target) if node.op == "call_method" else node.target)
    bound = entry[0].bind(node) if entry else None
    if entry is None or bound is None or op_of(s, node) is None:
        return []
    is_aten = isinstance(node.target, torch._ops.OpOverload)
    forms: list[Call] = []
    rank = _rank(s, node)
    for target, signature in _relatives(frozenset(bound), len(TABLE)):
        other_dialect = isinstance(target, torch._ops.OpOverload) != is_aten
        # `view` lets no rewrite change strides above it: another op in that respect.
        observes = target in OBSERVERS and node.target not in OBSERVERS
        if not other_dialect and not observes:
            forms += [(target, *rest) for rest in _arguments(signature, bound, rank)]
    return forms


@functools.cache
def _relatives(names: frozenset[str], _size: int) -> list[tuple[Any, Signature]]:
    """Targets with parameters of these names; a table that grew is read again."""
    return [
        (key[1] if isinstance(key, tuple) else key, signature)
        for key, (signature, _) in TABLE.items()
        if set(signature.names) == names
    ]


def respelled(s: Sketch, node: fx.Node, form: Call) -> fx.Node | None:
    """The node in this form, put after it; None where torch or the reader takes it for another."""
    target, args, kwargs = form
    if not _reads_as(s, node, form):
        return None
    try:
        with quiet():
            made = s.call(target, *args, **kwargs)
    except Exception:  # whatever torch says about a call that does not exist
        s.graph.erase_node(next(reversed(s.graph.nodes)))
        return None
    if same_op(op_of(s, node), op_of(s, made)) and _looks(s, node) == _looks(s, made):
        return made
    s.graph.erase_node(made)
    return None


def _reads_as(s: Sketch, node: fx.Node, form: Call) -> bool:
    """The form would be read as the node's op, if torch gave it the node's result: much is sorted out
    here without running anything."""
    target, args, kwargs = form
    make = s.graph.call_method if isinstance(target, str) else s.graph.call_function
    made = make(target, args, kwargs)
    made.meta[s.key] = node.meta[s.key]
    try:
        return same_op(op_of(s, node), op_of(s, made))
    except Exception:  # a reader need not mind arguments that torch would not take
        return False
    finally:
        s.graph.erase_node(made)


@contextmanager
def quiet() -> Iterator[None]:
    """Torch does not report each call that it refuses."""
    log = logging.getLogger("torch._subclasses.fake_tensor")
    before, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = before


def same_op(first: Op | None, second: Op | None) -> bool:
    """Equal in everything but the node that they were read from."""
    if first is None or type(first) is not type(second):
        return False
    names = [field.name for field in dataclasses.fields(first) if field.name != "node"]
    return all(repr(getattr(first, name)) == repr(getattr(second, name)) for name in names)


def _spec(s: Sketch, node: fx.Node) -> AnySpec:
    return spec_of(node.meta.get(s.key))


def _looks(s: Sketch, node: fx.Node) -> list[str]:
    """Shapes, strides, types and views, which a spelling may not change."""
    found = node.meta[s.key]
    parts = found if isinstance(found, (tuple, list)) else (found,)
    owners = [n for n in node.all_input_nodes if isinstance(n.meta.get(s.key), torch.Tensor)]
    return [
        f"{list(p.shape)} {p.stride()} {p.dtype}"
        f" {[p.untyped_storage()._cdata == n.meta[s.key].untyped_storage()._cdata for n in owners]}"
        if isinstance(p, torch.Tensor)
        else type(p).__name__
        for p in parts
    ]


def _rank(s: Sketch, node: fx.Node) -> int | None:
    """Number of dims to count a dim from behind: that of the input, one more for a stack."""
    inputs = [n.meta.get(s.key) for n in node.all_input_nodes]
    ranks = [value.ndim for value in inputs if isinstance(value, torch.Tensor)]
    op, result = op_of(s, node), node.meta[s.key]
    grows = isinstance(result, torch.Tensor) and type(op).__name__ in ("Stack", "Reshape")
    return max([*ranks, result.ndim if grows else 0]) if ranks else None


def _arguments(
    signature: Signature, bound: Mapping[str, Any], rank: int | None
) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    """Positional and keyword arguments in every manner; the first dim argument also negative."""
    yield from _manners(signature, bound)
    negative = {
        name: value - rank
        for name, value in bound.items()
        if name in _DIMS and type(value) is int and rank and value >= 0
    }
    if negative:
        yield from _manners(signature, {**bound, **negative})


def _manners(
    signature: Signature, bound: Mapping[str, Any]
) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    given = [name for name in signature.names if not _is_default(signature, name, bound[name])]
    if not given:
        return
    if signature.variadic is not None:
        head = tuple(bound[name] for name in signature.names if name != signature.variadic)
        value = bound[signature.variadic]
        items = tuple(value) if isinstance(value, (tuple, list)) else (value,)
        yield (*head, *items), {}
        yield (*head, items), {}
        return
    last = signature.names.index(given[-1])
    yield tuple(bound[name] for name in signature.names[: last + 1]), {}
    first, *rest = given
    if not rest:
        return
    aliases = dict.fromkeys(given, ()) | _names(signature)
    yield (bound[first],), {name: bound[name] for name in rest}
    for name in rest:
        for alias in aliases.get(name, ()):
            yield (bound[first],), {(alias if n == name else n): bound[n] for n in rest}


def _names(signature: Signature) -> dict[str, tuple[str, ...]]:
    """Alternative keyword names by parameter."""
    found: dict[str, tuple[str, ...]] = {}
    for alias, name in (*signature.aliases.items(), *_UNIVERSAL_ALIASES.items()):
        if name in signature.names:
            found[name] = (*found.get(name, ()), alias)
    return found


def _is_default(signature: Signature, name: str, value: Any) -> bool:
    default = signature.defaults[name]
    return type(default) is type(value) and not isinstance(value, fx.Node) and default == value

"""Addresses of values that hold from one process to the next.

A value's address is a hash of how it is computed: its op, its plain arguments, its type and the
addresses of its inputs (a Merkle hash over the graph, as in Git trees). Node names play no part.
Equal expressions are told apart by an ordinal. A value keeps its address through rewrites, because
the editor hands it on to the node that takes the value over; so removing one step from a plan
leaves the addresses of the others intact.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

import torch
from torch import fx

from passwright.passes.spec import AnySpec, Spec

_WIDTH = 12


def digest(*parts: object) -> str:
    """Short hexadecimal hash of the parts' text."""
    text = "\x1f".join(map(str, parts))
    return hashlib.blake2b(text.encode(), digest_size=_WIDTH // 2).hexdigest()


def addresses(graph: fx.Graph, specs: Mapping[fx.Node, AnySpec]) -> dict[fx.Node, str]:
    """Address of every node of an untouched graph."""
    found: dict[fx.Node, str] = {}
    seen: Counter[str] = Counter()
    inputs = 0
    for node in graph.nodes:
        if node.op in ("placeholder", "get_attr"):
            body = digest(node.op, inputs, _describe(specs.get(node)), _submodule_code(graph, node))
            inputs += 1
        else:
            arguments = (_argument(value, found) for value in (node.args, node.kwargs))
            body = digest(target_name(node), *arguments, _describe(specs.get(node)))
        seen[body] += 1
        found[node] = body if seen[body] == 1 else f"{body}.{seen[body]}"
    return found


def fingerprint(graph: fx.Graph, found: Mapping[fx.Node, str]) -> str:
    """Hash of the whole graph: equal for equal graphs in any process, whatever the names."""
    return digest(*(found[node] for node in graph.nodes)) + digest(
        "pairs", *(found[node] for node in graph.nodes)
    )


def target_name(node: fx.Node) -> str:
    """`cat`, `.view`, `aten.mm.default`: the target as a reader of the graph would write it."""
    if node.op == "call_method":
        return f".{node.target}"
    if isinstance(node.target, torch._ops.OpOverload):
        return str(node.target)
    return str(getattr(node.target, "__name__", node.target))


def _submodule_code(graph: fx.Graph, node: fx.Node) -> str:
    """The body of a higher-order op, which the graph names by an attribute."""
    owner = graph.owning_module
    if node.op != "get_attr" or owner is None:
        return ""
    held = getattr(owner, str(node.target), None)
    return held.code if isinstance(held, fx.GraphModule) else ""


def _describe(spec: AnySpec) -> str:
    if isinstance(spec, Spec):
        return f"{list(spec.shape)}{list(spec.stride)}{spec.dtype}{spec.device.type}"
    if isinstance(spec, tuple):
        return ";".join(map(_describe, spec))
    return "-"


def _argument(value: Any, found: Mapping[fx.Node, str]) -> str:
    if isinstance(value, fx.Node):
        return found[value]
    if isinstance(value, (tuple, list)):
        return "(" + ",".join(_argument(item, found) for item in value) + ")"
    if isinstance(value, dict):
        return "{" + ",".join(f"{k}={_argument(v, found)}" for k, v in value.items()) + "}"
    if isinstance(value, slice):
        return _argument((value.start, value.stop, value.step), found)
    if isinstance(value, (int, float, str, bool, type(None))):
        return repr(value)
    # A function prints with the place where it lies in this process.
    return re.sub(r" at 0x[0-9a-f]+", "", str(value))

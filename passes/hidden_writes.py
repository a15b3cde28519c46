"""Writes to memory that neither a function's name nor its schema shows.

Batch norm in training mode updates its running statistics, an embedding with `max_norm` rescales
the rows that it reads.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx

#: Signature, the argument that switches the write on, its default, and what is written.
_Hidden = tuple[tuple[str, ...], str, Any, tuple[str, ...]]
_STATISTICS = ("running_mean", "running_var")
_F_NORM = ("input", *_STATISTICS, "weight", "bias")
_C_NORM = ("input", "weight", "bias", *_STATISTICS)


def _hidden_table() -> dict[Any, _Hidden]:
    table: dict[Any, _Hidden] = {
        F.batch_norm: ((*_F_NORM, "training"), "training", False, _STATISTICS),
        F.instance_norm: ((*_F_NORM, "use_input_stats"), "use_input_stats", True, _STATISTICS),
        F.embedding: (
            ("input", "weight", "padding_idx", "max_norm"),
            "max_norm",
            None,
            ("weight",),
        ),
        F.embedding_bag: (
            ("input", "weight", "offsets", "max_norm"),
            "max_norm",
            None,
            ("weight",),
        ),
    }
    for namespace in (torch, torch.ops.aten):
        for name, flag in (
            ("batch_norm", "training"),
            ("native_batch_norm", "training"),
            ("cudnn_batch_norm", "training"),
            ("miopen_batch_norm", "training"),
            ("instance_norm", "use_input_stats"),
        ):
            found = getattr(namespace, name, None)
            target = found.default if namespace is not torch and found is not None else found
            if target is not None:
                # No default in torch's signature: a call without the flag does not exist.
                table[target] = ((*_C_NORM, flag), flag, True, _STATISTICS)
    return table


_HIDDEN = _hidden_table()


def hidden_writes(node: fx.Node) -> list[fx.Node] | None:
    """What a function of the table writes, given its arguments; None for all other functions."""
    entry = _HIDDEN.get(node.target) if node.op == "call_function" else None
    if entry is None:
        return None
    names, switch, default, written = entry
    bound = {switch: default} | dict(zip(names, node.args, strict=False)) | dict(node.kwargs)
    if bound[switch] is False or bound[switch] is None:
        return []
    return [value for name in written for value in nodes_of(bound.get(name))]


def nodes_of(value: Any) -> Iterator[fx.Node]:
    """The nodes in an argument, however deep in lists."""
    if isinstance(value, fx.Node):
        yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from nodes_of(item)

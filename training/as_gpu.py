"""A graph captured on a CPU, as Dynamo makes it of the same model on a GPU.

Nothing runs: fake tensors say that they lie on the GPU, and arguments name it. So plans that were made on a
GPU find their places, and most of their steps can be performed, on a machine without one. Torch follows
some ops on such tensors only where it is built for GPUs (a batch norm in training, for example).
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import Any

import torch
from torch import Tensor, fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_leaves, tree_map_only

from passwright.passes.dialect import Dialect

_CPU, _GPU = torch.device("cpu"), torch.device("cuda", 0)


def as_on_gpu(graph: fx.Graph) -> None:
    """Moves what would lie on a GPU if the model and its inputs did; views share memory as before.

    What is made there on the CPU all the same stays: tensors made without naming a device, and what is
    computed of such alone.
    """
    key = Dialect.of(graph).value
    here: set[fx.Node] = set()
    for node in graph.nodes:
        node.args, node.kwargs = _moved_arguments(node.args), _moved_arguments(node.kwargs)
        if _stays(node, here, key):
            here.add(node)
    memory: dict[tuple[int, bool], Tensor] = {}

    def moved(stays: bool, value: Tensor) -> Tensor:
        storage = value.untyped_storage()
        base = memory.get((storage._cdata, stays))
        if base is None:
            # A multiple of 16 bytes, which can be read as any type.
            size = -(-storage.nbytes() // 16) * 16
            base = torch.empty(size, dtype=torch.uint8, device="cpu" if stays else "cuda")
            memory[storage._cdata, stays] = base
        there = base.view(value.dtype)
        there = there.as_strided(value.shape, value.stride(), value.storage_offset())
        return there.requires_grad_(value.requires_grad)

    with FakeTensorMode(), torch.no_grad():
        for node in graph.nodes:
            if key in node.meta:
                move = partial(moved, node in here)
                node.meta[key] = tree_map_only(Tensor, move, node.meta[key])


def _moved_arguments(arguments: Any) -> Any:
    return fx.node.map_aggregate(arguments, lambda value: _GPU if value == _CPU else value)


def _stays(node: fx.Node, here: Collection[fx.Node], key: str) -> bool:
    """On the CPU."""
    if node.op not in ("call_function", "call_method"):
        return False
    if _GPU in tree_leaves((node.args, node.kwargs)):
        return False
    return all(n in here for n in node.all_input_nodes if _holds_tensor(n.meta.get(key)))


def _holds_tensor(value: Any) -> bool:
    return any(isinstance(leaf, Tensor) for leaf in tree_leaves(value))

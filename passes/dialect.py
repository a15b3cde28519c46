"""The two dialects in which a graph can reach a pass."""

from __future__ import annotations

from enum import Enum

import torch
from torch import fx


class Dialect(Enum):
    """Torch-IR is what Dynamo captured; ATen-IR is what AOTAutograd made of it.

    The value is the key of `node.meta` under which the fake tensor lies.
    """

    TORCH = "example_value"
    ATEN = "val"

    @classmethod
    def of(cls, graph: fx.Graph) -> Dialect:
        """ATen-IR if any call targets an overload of the aten namespace, else Torch-IR."""
        for node in graph.nodes:
            if node.op == "call_method":
                return cls.TORCH
            if isinstance(node.target, torch._ops.OpOverload) and node.target.namespace == "aten":
                return cls.ATEN
        return cls.TORCH

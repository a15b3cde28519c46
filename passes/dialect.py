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
        """ATen-IR if a call targets an overload of the aten namespace, else Torch-IR.

        A user may call such an overload too; what Dynamo noted at the node tells that apart.
        """
        for node in graph.nodes:
            if node.op == "call_method":
                return cls.TORCH
            if isinstance(node.target, torch._ops.OpOverload) and node.target.namespace == "aten":
                by_user = cls.TORCH.value in node.meta and cls.ATEN.value not in node.meta
                return cls.TORCH if by_user else cls.ATEN
        return cls.TORCH

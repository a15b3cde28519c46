"""Kernels that an estimate imagines: nodes that Inductor will compute in one loop."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import fx

from passwright.passes.graph import GraphView


@dataclass
class Kernel:
    """Nodes that run as one fused kernel over `elements` elements; `first` stands for all."""

    elements: int
    first: fx.Node
    nodes: list[fx.Node] = field(default_factory=list)
    reads: dict[fx.Node, None] = field(default_factory=dict)


def merge(
    into: Kernel, other: Kernel, home: dict[int, Kernel], view: GraphView, fused: dict[int, Kernel]
) -> Kernel:
    """One kernel of two that a consumer joins; the smaller goes into the larger."""
    if len(other.nodes) > len(into.nodes):
        into, other = other, into
    into.first = min(into.first, other.first)
    into.nodes += other.nodes
    into.reads |= other.reads
    for node in other.nodes:
        home[view.spec(node).storage] = into
    del fused[id(other)]
    return into

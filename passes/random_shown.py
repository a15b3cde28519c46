"""Random graphs that return much of what they compute: what a compiler may lay on memory of its own.

A value that nobody sees may share memory with another one, and may be written over when it is not
needed any more. Graphs of models return single values out of the middle, gates and hidden states,
often out of like branches.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence

import torch
from torch import fx

from passwright.passes.address import target_name
from passwright.passes.conformance_copy import Seen
from passwright.passes.dialect import Dialect
from passwright.passes.isolated import run
from passwright.passes.random_graphs import RandomGraph, random_graph

#: Most values that are returned in addition.
_MANY = 6
#: Ops whose backward needs their result, which then is returned and saved at once.
_SAVED = frozenset("softmax log_softmax tanh sigmoid exp relu rsqrt _softmax".split())
_WAYS = ("as it is", "view", "copy")


def shown_graph(seed: int, *, calls: tuple[int, int] = (16, 44)) -> RandomGraph:
    """The random graph of this seed, which returns the results of some like calls as well.

    They are returned as they are, behind a view or as a copy, which may be changed in place though the
    backward needs what was copied. A graph of symbolic sizes stays as it is, and so
    does one that torch does not run any more.
    """
    graph, draw = random_graph(seed, calls=calls), random.Random(seed)
    if graph.shapes is not None:
        return graph
    numbers = _like(graph.module.graph, draw)
    try:
        module = Seen(
            graph.module.graph, numbers, draw.choice(["as it is", "view", "view"])
        ).module()
        run(module, graph.inputs[0], training=False)
    except Exception:  # not every graph can be sketched again; some values were written since
        return graph
    return RandomGraph(seed, graph.traits, module, graph.inputs, None)


class _Shown(Seen):
    """With one more way to return a call: a copy."""

    def _shown(self, node: fx.Node) -> fx.Node:
        if self.how != "copy":
            return super()._shown(node)
        is_aten = self.s.key == Dialect.ATEN.value
        return self.s.call(torch.ops.aten.clone.default if is_aten else torch.clone, node)


def _like(graph: fx.Graph, draw: random.Random) -> Sequence[int]:
    """Numbers of the calls of one or two ops, rather of those that occur more than once."""
    found: dict[str, list[int]] = defaultdict(list)
    calls = [node for node in graph.nodes if node.op.startswith("call")]
    for number, node in enumerate(calls):
        value = node.meta.get("example_value", node.meta.get("val"))
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            found[target_name(node)].append(number)
    names = [name for name, numbers in found.items() if len(numbers) > 1] or list(found)
    saved = [name for name in names if name.strip(".") in _SAVED]
    if saved and draw.random() < 0.7:
        names = saved
    chosen = draw.sample(names, min(len(names), draw.choice([1, 2])))
    return sorted(number for name in chosen for number in found[name][:_MANY])

"""Whole branches side by side: what patterns of single ops do step by step, as one step.

The first steps of batching a branch often lose, and only the last ones pay for them (Optimus' paper
has 0.83x for a part of what gains 11x as a whole), so the whole is a choice of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from passwright.passes.branches import Branches, Chain, Stages
from passwright.passes.editor import GraphEditor
from passwright.passes.graph import GraphView
from passwright.passes.horizontal import HorizontalPattern
from passwright.passes.ops import BatchNorm, LayerNorm, Linear, Op, Unary
from passwright.passes.pattern import TORCH_IR, Direction, Exactness, Match, Pattern, match
from passwright.passes.patterns.batch_norms import BatchNormsByChannel
from passwright.passes.patterns.linears import BatchLinears, WidenLinears
from passwright.passes.patterns.norms import BatchLayerNorms
from passwright.passes.patterns.pointwise import BatchUnaries, JoinUnaries

_WIDEN = WidenLinears()


class _Branches(Pattern):
    """What the two forms have in common: finding the branches, and going through their stages."""

    direction = Direction.HORIZONTAL
    exactness = Exactness.REASSOCIATING
    levels = frozenset({TORCH_IR})
    #: How the ops of each kind become one.
    stages: ClassVar[Stages]
    #: Kinds of op that may only be the first of a branch.
    starts: ClassVar[frozenset[type[Op]]] = frozenset()
    #: Smaller batches to offer, where a group has members for two of them.
    sizes: ClassVar[tuple[int, ...]] = (4, 8)

    def matches(self, graph: GraphView, anchor: Op) -> Iterator[Match]:
        groups = graph.memo((self.name(), "groups"), lambda: self._groups(graph))
        for chains in groups.get(anchor, ()):
            shown = {"members": len(chains), "depth": len(chains[0].ops)}
            nodes = [node for chain in chains for node in chain.nodes]
            yield match(anchor, *nodes, chains=chains, parameters=shown)

    def _groups(self, graph: GraphView) -> dict[Op, list[tuple[Chain, ...]]]:
        """The branches that may be one, and parts of them, by the first op of the first branch."""
        branches = Branches(graph, self.stages, self.starts)
        found: dict[Op, list[tuple[Chain, ...]]] = {}
        for chains in branches.by_shape().values():
            # Of pointwise functions alone a compiler makes one kernel anyway; `unary_above_split` and
            # `join_unaries` spare it the pieces without another layout.
            if all(isinstance(op, Unary) for op in chains[0].ops):
                continue
            for group in branches.groups(chains):
                if self.fits([chain.ops[0] for chain in group]):
                    for part in _parts(tuple(group), self.sizes):
                        found.setdefault(part[0].ops[0], []).append(part)
        return found

    def fits(self, first: list[Op]) -> bool:
        """Branches that start with these ops may be one."""
        raise NotImplementedError

    def stage(self, ops: list[Op]) -> HorizontalPattern:
        """What makes these ops one."""
        return self.stages[type(ops[0])]

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        for place in range(len(m.chains[0].ops)):
            nodes = [chain.nodes[place] for chain in m.chains]
            # Read again: by now they take what the stage before has made.
            ops = [op for op in map(edit.view.read, nodes) if op is not None]
            stage = self.stage(ops)
            stage.rewrite(match(ops[0], *ops, members=tuple(ops)), edit)
            for node in nodes:
                if not edit.view.is_buried(node):
                    edit.remove(node)


class BatchBranches(_Branches):
    """Branches of equal shapes become one branch with a batch dim, in one step.

    linear_i -> batch_norm_i -> relu -> linear'_i   ==>   baddbmm -> batch_norm -> relu -> baddbmm

    A branch is a chain of Linears, batch and layer norms and pointwise functions of one tensor. Where
    all begin with a Linear of one and the same input, that becomes one wide GEMM.
    """

    anchors = frozenset({Linear, BatchNorm, LayerNorm, Unary})
    stages: ClassVar[Stages] = {
        Linear: BatchLinears(),
        BatchNorm: BatchNormsByChannel(),
        LayerNorm: BatchLayerNorms(),
        Unary: BatchUnaries(),
    }
    conditions = (
        "op by op those of batch_linears, batch_norms_by_channel, batch_layer_norms, batch_unaries",
        "each op is the only user of the one before it, and not all are pointwise",
        "no branch reaches another, and nobody writes what they read between them",
    )

    def fits(self, first: list[Op]) -> bool:
        inputs = {op.input for op in first}  # type: ignore[attr-defined]
        return isinstance(first[0], Linear) or len(inputs) == len(first)

    def stage(self, ops: list[Op]) -> HorizontalPattern:
        shared = len({op.input for op in ops}) == 1  # type: ignore[attr-defined]
        return _WIDEN if shared else super().stage(ops)


class WidenBranches(_Branches):
    """Branches of any widths that begin with Linears of one input become one wide branch.

    linear(x, w_i) -> batch_norm_i -> relu   ==>   linear(x, cat(w)) -> batch_norm -> relu -> split

    It ends where a branch mixes its features again: at its next Linear.
    """

    anchors = frozenset({Linear})
    stages: ClassVar[Stages] = {
        Linear: _WIDEN,
        BatchNorm: BatchNormsByChannel(),
        Unary: JoinUnaries(),
    }
    starts = frozenset({Linear})
    conditions = (
        "op by op those of widen_linears, batch_norms_by_channel and join_unaries",
        "each op is the only user of the one before it",
        "no branch reaches another, and nobody writes what they read between them",
    )

    def fits(self, first: list[Op]) -> bool:
        return isinstance(first[0], Linear)


def _parts(group: tuple[Chain, ...], sizes: tuple[int, ...]) -> Iterator[tuple[Chain, ...]]:
    yield group
    for size in sizes:
        if len(group) >= 2 * size:
            parts = [group[start : start + size] for start in range(0, len(group), size)]
            yield from (part for part in parts if len(part) > 1)

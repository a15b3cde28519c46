"""Results whose strides no graph can foretell, and dims that kernels want."""

from __future__ import annotations

from torch import fx

from passwright.passes.editor import GraphEditor
from passwright.passes.graph import GraphView
from passwright.passes.legality import can_reshape_to, is_written
from passwright.passes.ops import Reshape
from passwright.passes.strides import observes_strides


def settled(edit: GraphEditor, old: fx.Node, new: fx.Node) -> fx.Node:
    """`new`, or a contiguous copy of it where somebody could see how it lies in memory.

    An attention kernel lays its result as it likes, and which kernel runs is decided later: by the
    device, the grad mode and the user's settings. So what fake tensors say of its strides is no
    proof, neither of what a reader of strides sees nor of where `contiguous` and `reshape` copy. A
    `contiguous` that fake tensors find needless would be taken out, and a `view` after it fail.
    Compilers make one copy of this one and a `contiguous` behind it.
    """
    return edit.contiguous_copy(new) if _is_seen(edit.view, old) else new


def _is_seen(graph: GraphView, old: fx.Node) -> bool:
    """Strides of the value are observed, or what may or may not lie in its memory is written or
    leaves the graph in several places."""
    if observes_strides(graph, old):
        return True
    pending, seen, exits = [old], {old}, 0
    while pending:
        for user in pending.pop().users:
            exits += user.op == "output"
            shares = bool(graph.storages([user]) & graph.storages(user.all_input_nodes))
            op = graph.read(user)
            if user in seen or not (shares or op is None or isinstance(op, Reshape)):
                continue
            seen.add(user)
            if is_written(graph, user):
                return True
            pending.append(user)
    return exits > 1


def without_dim(edit: GraphEditor, x: fx.Node, dim: int) -> fx.Node:
    """`x` without a dim of size 1; a reshape where sizes allow, as those cancel each other."""
    shape = edit.view.shape(x)
    rest = (*shape[:dim], *shape[dim + 1 :])
    return edit.reshape(x, rest) if can_reshape_to(rest) else edit.select(x, dim, 0)

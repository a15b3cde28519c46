"""What an outsider can tell of a value besides its numbers: strides, shared memory, gradient.

The editor asks here before one value takes the place of another. The answer is that it may do so as
it is, that a contiguous copy of it may, or IllegalRewrite.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch
from torch import fx

from passwright.passes.build import view_strides
from passwright.passes.errors import IllegalRewrite
from passwright.passes.graph import GraphView
from passwright.passes.legality import escapes, is_written, one_grad_mode, same, stays_in_grad_mode
from passwright.passes.ops import Op, Permute, Piece, Reshape
from passwright.passes.spec import Spec, static
from passwright.passes.strides import hides_strides, is_observer, observes_strides

#: See the memory behind a value, beyond its own elements.
_SEES_MEMORY = frozenset(
    {
        *("as_strided", "data_ptr", "untyped_storage", "storage", "storage_offset", "set_"),
        torch.as_strided,
        torch.ops.aten.as_strided.default,
    }
)


def must_copy(
    view: GraphView,
    old: fx.Node,
    new: fx.Node,
    *,
    inserted: Collection[fx.Node],
    undoing: fx.Node | None = None,
) -> bool:
    """Does only a contiguous copy of `new` look like `old` from outside?

    `inserted` are the nodes of this step; a write by `undoing` does not count. Raises
    IllegalRewrite where a copy is no help.
    """
    before, after = view.spec(old), view.spec(new)
    copy = False
    if before.storage != after.storage:
        if is_written(view, old, new, besides=undoing):
            raise IllegalRewrite(f"memory of {old.name} or {new.name} is written elsewhere")
        if escapes(view, old):
            if _shared_outside(view, old):
                raise IllegalRewrite(f"{old.name} shares memory that can be seen outside")
            copy = not _is_alone(view, new, inserted) or escapes(view, new)
    moved = before.storage != after.storage or not same(before.offset, after.offset)
    if moved and _memory_is_seen(view, old):
        if not same(before.offset, 0) or _shares_memory(view, old):
            raise IllegalRewrite(f"the memory around {old.name} can be seen")
        copy = True
    if not before.same_strides(after) and observes_strides(view, old):
        copy = copy or not _views_stay(view, old, after)
    if copy and not before.is_contiguous:
        raise IllegalRewrite(f"{old.name} is visible outside with strides {before.stride}")
    return copy


def _views_stay(view: GraphView, node: fx.Node, layout: Spec) -> bool:
    """All who observe the strides of the value are `.view()`s that those of `layout` allow too."""
    for user in view.users(node):
        moved = _moved(view.read(user), layout)
        stays = _sees_nothing(view, user) if moved is None else _views_stay(view, user, moved)
        if not stays:
            return False
    return True


def _sees_nothing(view: GraphView, user: fx.Node) -> bool:
    """Neither the node nor anybody below it sees the strides of its inputs."""
    if is_observer(view, user):
        return False
    return hides_strides(view, user) or not observes_strides(view, user)


def _moved(op: Op | None, layout: Spec) -> Spec | None:
    """How a view of a value that lies as `layout` lies itself; None if it is no view, or unknown."""
    if isinstance(op, Permute):
        dims = op.dims
        return layout.view([layout.shape[d] for d in dims], [layout.stride[d] for d in dims])
    if isinstance(op, Reshape) and layout.is_static:
        sizes = [static(size) for size in op.shape]
        shape = [size for size in sizes if size is not None]
        known = len(shape) == len(sizes)
        strides = view_strides(layout.shape, layout.stride, shape) if known else None  # type: ignore[arg-type]
        return None if strides is None else layout.view(shape, strides)
    return None


def refuse_other_outputs(
    view: GraphView, old: fx.Node, before: tuple[Spec, ...], after: tuple[Spec, ...]
) -> None:
    """Raises IllegalRewrite unless several outputs at once look as before: nothing copies them."""
    moved = any(a.storage != b.storage for a, b in zip(before, after, strict=True))
    if moved and (is_written(view, old) or escapes(view, old) or _memory_is_seen(view, old)):
        raise IllegalRewrite(f"the memory of the outputs of {old.name} is visible outside")
    if not all(map(Spec.same_strides, before, after)) and observes_strides(view, old):
        raise IllegalRewrite(f"the strides of the outputs of {old.name} are visible outside")


def refuse_other_gradient(
    view: GraphView, old: fx.Node, new: fx.Node, users: Sequence[fx.Node]
) -> None:
    """Raises IllegalRewrite where `new` would carry a gradient that `old` did not, or lose one."""
    gains = view.needs_grad(new) and not view.needs_grad(old)
    silent = all(view.mode(view.region(user)).enabled is False for user in users)
    # A view of the value carries the gradient on to where it is recorded.
    if gains and not (silent and stays_in_grad_mode(view, old)):
        raise IllegalRewrite(f"{new.name} may carry a gradient where {old.name} did not")
    if view.needs_grad(old) and not view.needs_grad(new):
        raise IllegalRewrite(f"{new.name} carries no gradient, unlike {old.name}")
    leaf = new.op in ("placeholder", "get_attr")
    if not leaf and not one_grad_mode(view, old, new) and not one_grad_mode(view, old, *users):
        raise IllegalRewrite(f"{new.name} may carry a gradient where {old.name} did not")


def refuse_new_sharing(view: GraphView, node: fx.Node, storage: int) -> None:
    """Raises IllegalRewrite where a reshape that copied, and with other strides above it would be a
    view of `storage`, may not be one."""
    if any(write.storages & (view.storages([node]) | {storage}) for write in view.writes):
        raise IllegalRewrite(f"{node.name} would come to share memory that is written")
    if not one_grad_mode(view, node, *node.users):
        raise IllegalRewrite(f"{node.name} would carry a gradient as a view")
    if escapes(view, node):
        ends = [n for n in view.nodes() if n.op in ("placeholder", "get_attr")]
        ends += view.graph.output_node().all_input_nodes
        above = [n for n in node.all_input_nodes if storage in view.storages([n])]
        if storage in view.storages(ends) or any(escapes(view, source) for source in above):
            raise IllegalRewrite(f"{node.name} would come to share memory that can be seen outside")


def _aliasing_inputs(view: GraphView, node: fx.Node) -> list[fx.Node]:
    storages = view.storages([node])
    return [n for n in node.all_input_nodes if view.storages([n]) & storages]


def _shares_memory(view: GraphView, node: fx.Node) -> bool:
    """The value is a view of one of its inputs."""
    return bool(_aliasing_inputs(view, node))


def _is_alone(view: GraphView, node: fx.Node, inserted: Collection[fx.Node]) -> bool:
    """A new value that nothing shares memory with, but new values that only lead to it."""
    if node not in inserted:
        return False
    above = _aliasing_inputs(view, node)
    return all(len(n.users) == 1 and _is_alone(view, n, inserted) for n in above)


def _shared_outside(view: GraphView, node: fx.Node) -> bool:
    """An input of the graph, or a value that escapes by another way, lies in the same memory.

    Other pieces of a split do not count: they do not overlap.
    """
    path = node
    while True:
        if path.op in ("placeholder", "get_attr"):
            return True
        above = _aliasing_inputs(view, path)
        if not above:
            return False
        source = above[0]
        piece = view.producer(path, Piece)
        for user in source.users:
            other = view.producer(user, Piece)
            apart = piece is not None and other is not None and other.index != piece.index
            if user is path or apart:
                continue
            if user.op == "output":
                return True
            if view.storages([user]) & view.storages([node]) and escapes(view, user):
                return True
        path = source


def _memory_is_seen(view: GraphView, node: fx.Node) -> bool:
    """Some user of the value, or of a view of it, sees the memory around it."""
    storages = view.storages([node])
    pending, seen = [node], {node}
    while pending:
        for user in pending.pop().users:
            if user.target in _SEES_MEMORY:
                return True
            if user not in seen and view.storages([user]) & storages:
                seen.add(user)
                pending.append(user)
    return False

"""What torch's fake tensors tell the editor: specs of new calls, and of values that moved."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import torch
from torch import fx
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import FakeTensorMode

from passwright.passes.appearance import refuse_new_sharing
from passwright.passes.errors import IllegalRewrite
from passwright.passes.graph import GraphView
from passwright.passes.legality import same
from passwright.passes.ops import BatchNorm, Binary, Piece, Softmax, Unary
from passwright.passes.spec import AnySpec, Size, Spec, each_part, parts_of, spec_of
from passwright.passes.strides import has_own_layout
from passwright.passes.symbolic import forbid_new_guards


class FakeRuns:
    """Mixin of `GraphEditor`."""

    view: GraphView
    _undo: list[Callable[[], None]]
    #: Nodes that steps inserted, and those that steps laid out anew: both may lack a fake tensor.
    _made: dict[fx.Node, None]
    _stale: dict[fx.Node, None]

    def _run_fake(self, node: fx.Node, region: int) -> AnySpec:
        """Runs the node on fake tensors under its region's autocast, and stores the result."""
        key = self.view.dialect.value
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), self._fake)
        mode = self._fake_mode(node)
        with ExitStack() as stack:
            stack.enter_context(mode)
            stack.enter_context(torch.no_grad())
            # Without it some meta functions cannot take symbolic sizes.
            stack.enter_context(enable_python_dispatcher())
            stack.enter_context(forbid_new_guards(mode))
            for cast in self.view.mode(region).autocasts:
                device, dtype, enabled, cache = cast.args
                stack.enter_context(torch.autocast(device, dtype, enabled, cache))  # type: ignore[arg-type]
            try:
                value = call(node.target, args, kwargs)
            except Exception as error:
                raise IllegalRewrite(f"{node.format_node()} cannot be computed: {error}") from error
        node.meta[key] = tuple(value) if isinstance(value, list) else value
        return self._known(node, spec_of(value))

    def _mark_recorded(self, node: fx.Node) -> None:
        """Says in the fake tensors, made without grad mode, that autograd records the value: whoever
        looks at the graph next asks them."""
        value = node.meta[self.view.dialect.value]
        if not self.view.needs_grad(node) or not self.view.is_pure(node):
            return
        for part in value if isinstance(value, tuple) else (value,):
            smooth = isinstance(part, torch.Tensor) and (
                part.is_floating_point() or part.is_complex()
            )
            if smooth and part.is_leaf:
                part.requires_grad_()

    def _fake(self, node: fx.Node) -> Any:
        """Fake value of a node; made on demand for nodes whose builder foretold the spec."""
        if self.view.dialect.value not in node.meta:
            if node not in self._made and node not in self._stale:
                raise IllegalRewrite(f"{node.name} has no fake tensor")
            self._run_fake(node, self.view.region(node))
        return node.meta[self.view.dialect.value]

    def _fake_mode(self, node: fx.Node) -> FakeTensorMode:
        return self._mode_of(*node.all_input_nodes)

    def _mode_of(self, *values: fx.Node) -> FakeTensorMode:
        """The mode in which the fake tensors of these values were made."""
        for node in values:
            value = self._fake(node)
            for part in value if isinstance(value, (tuple, list)) else (value,):
                mode = getattr(part, "fake_mode", None)
                if isinstance(mode, FakeTensorMode):
                    return mode
        raise IllegalRewrite(f"no fake tensor among {', '.join(n.name for n in values)}")

    def _known(self, node: fx.Node, found: AnySpec) -> AnySpec:
        """`found`, with memory of the node's inputs named as the view names it: a foretold or moved
        value lies elsewhere than its fake tensor."""
        names: dict[int, tuple[int, Size]] = {}
        wanted = {part.storage for part in parts_of(found)}
        for source in node.all_input_nodes:
            value = source.meta.get(self.view.dialect.value)
            fakes = value if isinstance(value, (tuple, list)) else (value,)
            for fake, known in zip(fakes, parts_of(self.view.any_spec(source)), strict=False):
                # A split into hundreds lies in one memory: its first part tells where.
                if not wanted - names.keys():
                    break
                place = spec_of(fake)
                if isinstance(place, Spec):
                    names[place.storage] = (known.storage, known.offset - place.offset)

        def named(part: Spec) -> Spec:
            if part.storage not in names:
                return part
            storage, further = names[part.storage]
            return replace(part, storage=storage, offset=part.offset + further)

        return each_part(found, named)

    # ---- values below one that was replaced

    def _follow(self, users: Iterable[fx.Node], before: Spec, after: Spec) -> None:
        """What is known of the users, now that the value they use lies elsewhere in memory."""
        if not before.same_strides(after):
            self._relayout(users, before)
        elif before.storage != after.storage or not same(before.offset, after.offset):
            self._shift(users, before, after)

    def _shift(self, users: Iterable[fx.Node], before: Spec, after: Spec) -> None:
        """Views lie in the new memory, as far from the value as they were."""

        def moved(part: Spec) -> Spec:
            if part.storage != before.storage:
                return part
            offset = part.offset - before.offset + after.offset
            return replace(part, storage=after.storage, offset=offset)

        pending = list(users)
        while pending:
            node = pending.pop()
            spec = self.view.any_spec(node)
            if before.storage in self.view.storages([node]):
                self._restate(node, each_part(spec, moved))
                pending += node.users

    def _relayout(self, users: Iterable[fx.Node], before: Spec) -> None:
        """Other strides go on through views and pointwise ops, until an op that has its own."""
        left = {before.storage}
        pending = set(users)
        while pending:
            node = min(pending)
            pending.remove(node)
            old = self.view.any_spec(node)
            if old is None or has_own_layout(self.view, node) or self._packs(node, old):
                continue
            self._keep_fake(node)
            new = self._spec_below(node)
            if new is None:
                new = self._run_fake(node, self.view.region(node))
            else:
                node.meta.pop(self.view.dialect.value, None)
                self._stale[node] = None
            shared = self.view.storages(node.all_input_nodes)
            pairs = list(zip(parts_of(old), parts_of(new), strict=True))
            for was, now in pairs:
                if now.storage in shared and was.storage not in shared | left:
                    refuse_new_sharing(self.view, node, now.storage)
            stated = [_keep_memory(was, now, shared, left) for was, now in pairs]
            if any(not _same_place(was, now) for (was, _), now in zip(pairs, stated, strict=True)):
                left |= self.view.storages([node])
                self._restate(node, tuple(stated) if isinstance(old, tuple) else stated[0])
                pending |= set(node.users)

    def _spec_below(self, node: fx.Node) -> AnySpec:
        """Spec of a view of one static tensor or of a function of its elements, told without its fake
        tensor; else None."""
        op = self.view.read(node)
        if op is None or not (op.is_view or isinstance(op, Unary)):
            return None
        if self.view.mode(self.view.region(node)).autocasts:
            return None
        if isinstance(op, Piece):
            parts = parts_of(self.view.any_spec(op.input))
            return parts[op.index] if 0 <= op.index < len(parts) else None
        sources = node.all_input_nodes
        spec = self.view.any_spec(sources[0])
        if len(sources) > 1 or not isinstance(spec, Spec) or not spec.is_static:
            return None
        if spec.layout != torch.strided:
            return None
        base = torch.empty_strided(spec.shape, spec.stride, dtype=spec.dtype, device="meta")
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), lambda _: base)
        try:
            found = spec_of(call(node.target, args, kwargs))
        except Exception:  # fake tensors say what is wrong
            return None
        own = base.untyped_storage()._cdata
        if isinstance(op, Unary) and isinstance(found, Spec) and found.storage != own:
            return replace(found, storage=spec.fresh(()).storage, device=spec.device)
        if found is None or any(part.storage != own for part in parts_of(found)):
            return None

        def there(part: Spec) -> Spec:
            offset = part.offset + spec.offset
            return replace(part, storage=spec.storage, device=spec.device, offset=offset)

        return each_part(found, there)

    def _packs(self, node: fx.Node, old: AnySpec) -> bool:
        """An op that writes new memory in row-major order, as it did before: it goes by the order of
        its tensors' strides, and those fall from dim to dim."""
        op = self.view.read(node)
        if not isinstance(op, (Unary, Binary, BatchNorm, Softmax)) or not isinstance(old, Spec):
            return False
        # From rank 4 on a norm has memory formats to choose from.
        if isinstance(op, BatchNorm) and old.ndim > 3:
            return False
        sources = [op.input] if isinstance(op, (BatchNorm, Softmax)) else node.all_input_nodes
        specs = [self.view.any_spec(source) for source in sources]
        return (
            old.is_static
            and old.is_contiguous
            and all(isinstance(s, Spec) and s.storage != old.storage for s in specs)
            and all(isinstance(s, Spec) and s.shape == old.shape and _falls(s) for s in specs)
        )

    def _restate(self, node: fx.Node, spec: AnySpec) -> None:
        old = self.view.any_spec(node)
        self.view.restate(node, spec)
        self._undo.append(lambda: self.view.restate(node, old))

    def _keep_fake(self, node: fx.Node) -> None:
        """Undoing the step brings the node's present fake tensor back."""
        key = self.view.dialect.value
        value = node.meta.get(key)

        def undo() -> None:
            node.meta.pop(key, None)
            if value is not None:
                node.meta[key] = value

        self._undo.append(undo)


def call(target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """What a node of this target does: a function, or a method by name."""
    if isinstance(target, str):
        return getattr(args[0], target)(*args[1:], **kwargs)
    return target(*args, **kwargs)


def _keep_memory(was: Spec, now: Spec, shared: frozenset[int], left: set[int]) -> Spec:
    """`now`; memory of its own, if the value had such before, keeps its number."""
    own = now.storage not in shared and was.storage not in left
    return replace(now, storage=was.storage) if own else now


def _falls(spec: Spec) -> bool:
    steps = [step for size, step in zip(spec.shape, spec.stride, strict=True) if size != 1]
    return spec.is_static and 0 not in steps and steps == sorted(steps, reverse=True)


def _same_place(first: Spec, second: Spec) -> bool:
    return (
        first.storage == second.storage
        and first.same_strides(second)
        and same(first.offset, second.offset)
    )

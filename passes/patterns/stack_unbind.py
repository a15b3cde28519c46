"""Stacks and cats of parts of one tensor, and the way back.

Batching leaves these behind: what is stacked for a batch was often cut from one tensor, and what is
unbound after it is often put together again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torch import fx

from passwright.passes.build import view_strides
from passwright.passes.editor import GraphEditor
from passwright.passes.graph import GraphView
from passwright.passes.legality import (
    can_reshape_to,
    is_written,
    one_grad_mode,
    stands_in,
    stays_in_grad_mode,
    undisturbed,
)
from passwright.passes.ops import Cat, Op, Select, Stack, Unbind
from passwright.passes.parts import Run, runs_in
from passwright.passes.pattern import Direction, Exactness, Match, Pattern, match
from passwright.passes.spec import Size, Spec, contiguous_strides
from passwright.passes.strides import costs_one_copy

#: The gradient of a part is as large as the whole tensor; with many small parts the additions of
#: these gradients would cost more than the copy that was saved.
_SMALLEST_SHARE = 0.25


class StackOfUnbind(Pattern):
    """A stack of all slices of a tensor in order, or of a run of them, is the tensor itself.

    stack(unbind(x, 1), 0)       ==>   x.permute(1, 0, 2)
    stack(unbind(x, 0)[2:6], 0)  ==>   x[2:6]

    Slices may also be written x[:, i]; other users keep theirs. Also known as Optimus'
    unbind_stack_pass and unbind_stack_to_slices_pass.
    """

    direction = Direction.VERTICAL
    exactness = Exactness.BITWISE
    anchors = frozenset({Stack})
    cleanup = True
    conditions = ("consecutive slices in order", "a quarter of the tensor or more")

    def matches(self, graph: GraphView, stack: Stack) -> Iterator[Match]:
        return _stacked_run(graph, stack, drops=True)

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        edit.replace(m.anchor.node, _stack_run(edit, m.run, m.anchor.dim))


class StackOfPieces(Pattern):
    """A stack of equal pieces of a split, all of them or a run, is the tensor in another shape.

    stack(split(x, w, 1), 0)   ==>   x.reshape(b, n, w).permute(1, 0, 2)

    Also known from Optimus' split_stack_to_cats_pass, which keeps a copy.
    """

    direction = Direction.VERTICAL
    exactness = Exactness.BITWISE
    anchors = frozenset({Stack})
    cleanup = True
    conditions = (
        "consecutive pieces of equal width in order",
        "a quarter of the tensor or more",
        "at most one symbolic size",
    )

    def matches(self, graph: GraphView, stack: Stack) -> Iterator[Match]:
        return _stacked_run(graph, stack, drops=False)

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        edit.replace(m.anchor.node, _stack_run(edit, m.run, m.anchor.dim))


class UnbindOfStack(Pattern):
    """The slices of a stack are what was stacked.

    unbind(stack([a, b], 1), 1)   ==>   a, b

    Other users keep the stack. Also known from Optimus' unbind_stack_pass.
    """

    direction = Direction.VERTICAL
    exactness = Exactness.BITWISE
    anchors = frozenset({Unbind, Select})
    cleanup = True
    conditions = ("same dim", "no slice leaves the graph, where its memory would be seen")

    def matches(self, graph: GraphView, slices: Unbind | Select) -> Iterator[Match]:
        stack = graph.producer(slices.input, Stack)
        if stack is None or stack.dim != slices.dim:
            return
        pairs = _slices_with_inputs(graph, slices, stack)
        values = [value for value, _ in pairs]
        if not one_grad_mode(graph, stack.node, slices.node, *values):
            return
        if pairs and all(stands_in(graph, value, source) for value, source in pairs):
            yield match(slices, stack, *values, pairs=pairs)

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        for value, source in m.pairs:
            edit.replace(value, source)


class CatOfUnbind(Pattern):
    """A cat of consecutive slices of one tensor is that tensor with the dim moved and merged.

    cat(unbind(x, 0), 1)   ==>   x.permute(1, 0, 2).reshape(b, n * w)

    So for equal pieces of a split along another dim than the cat's. Where the cat has other inputs,
    only what needs no copy is merged. Also known as Optimus' unbind_cat_to_view_pass.
    """

    direction = Direction.VERTICAL
    exactness = Exactness.BITWISE
    anchors = frozenset({Cat})
    cleanup = True
    conditions = (
        "consecutive slices in order, a quarter of the tensor or more",
        "at most one symbolic size",
        "no copy beside the one that the cat makes",
    )

    def matches(self, graph: GraphView, cat: Cat) -> Iterator[Match]:
        items = runs_in(graph, cat.inputs)
        whole = len(items) == 1
        runs = [r for r in items if isinstance(r, Run) and _mergeable(graph, cat, r, whole)]
        if not runs:
            return
        nodes = [node for run in runs for node in run.nodes]
        if is_written(graph, cat.node, *(run.source for run in runs if whole)):
            return
        if _undisturbed_here(graph, cat.node, nodes):
            counts = "+".join(str(len(run.parts)) for run in runs)
            yield match(cat, *nodes, items=items, runs=runs, parameters={"slices": counts})

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        inputs: list[fx.Node] = []
        for item in m.items:
            if isinstance(item, fx.Node):
                inputs.append(item)
            elif item in m.runs:
                inputs.append(_cat_run(edit, item, m.anchor.dim))
            else:
                inputs += [part.nodes[-1] for part in item.parts]
        edit.replace(m.anchor.node, edit.cat(inputs, m.anchor.dim))


def _stacked_run(graph: GraphView, stack: Stack, *, drops: bool) -> Iterator[Match]:
    items = runs_in(graph, stack.inputs)
    run = items[0]
    if len(items) != 1 or not isinstance(run, Run) or run.drops != drops:
        return
    if run.share(graph) < _SMALLEST_SHARE or is_written(graph, stack.node, run.source):
        return
    spec = graph.spec(run.source)
    if not drops and not can_reshape_to(_cut(run, spec)):
        return
    shape, stride, _ = run.stacked(spec, stack.dim)
    if not _undisturbed_here(graph, stack.node, run.nodes):
        return
    if _is_row_major(spec, shape, stride) or costs_one_copy(graph, stack.node):
        yield match(stack, *run.nodes, run=run, parameters={"slices": len(run.parts)})


def _undisturbed_here(graph: GraphView, copy: fx.Node, parts: Sequence[fx.Node]) -> bool:
    """Nobody writes between; and a view, which carries a gradient even where none is recorded, may
    stand for the copy as far as its users can see."""
    return undisturbed(graph, copy, *parts) and stays_in_grad_mode(graph, copy)


def _cut(run: Run, spec: Spec) -> list[Size]:
    """Shape of the source with the run's dim as (count, width)."""
    return [*spec.shape[: run.dim], len(run.parts), run.width, *spec.shape[run.dim + 1 :]]


def _stack_run(edit: GraphEditor, run: Run, dim: int) -> fx.Node:
    """The stack of the parts along a new dim, without a copy."""
    spec = edit.view.spec(run.source)
    order = run.stacked(spec, dim)[2]
    x = edit.slice(run.source, run.dim, run.start, run.stop)
    return edit.permute(x if run.drops else edit.reshape(x, _cut(run, spec)), order)


def _mergeable(graph: GraphView, cat: Cat, run: Run, whole: bool) -> bool:
    if (not run.drops and run.dim == cat.dim) or run.share(graph) < _SMALLEST_SHARE:
        return False
    spec = graph.spec(run.source)
    shape, stride, _ = run.stacked(spec, cat.dim)
    merged = _merged(shape, cat.dim)
    if not can_reshape_to(merged) or not (run.drops or can_reshape_to(_cut(run, spec))):
        return False
    strides = view_strides(shape, stride, merged) if spec.is_static else None  # type: ignore[arg-type]
    if not whole:
        return strides is not None
    row_major = spec.is_static and (strides is None or _is_row_major(spec, merged, strides))
    return row_major or costs_one_copy(graph, cat.node)


def _merged(shape: list[Size], dim: int) -> list[Size]:
    """`dim` and the one after it as one."""
    return [*shape[:dim], shape[dim] * shape[dim + 1], *shape[dim + 2 :]]


def _cat_run(edit: GraphEditor, run: Run, dim: int) -> fx.Node:
    """The cat of the parts along `dim`."""
    x = _stack_run(edit, run, dim)
    return edit.reshape(x, _merged(list(edit.view.spec(x).shape), dim))


def _is_row_major(spec: Spec, shape: list[Size], stride: list[Size] | list[int]) -> bool:
    return spec.is_static and all(
        size == 1 or step == expected
        for size, step, expected in zip(shape, stride, contiguous_strides(shape), strict=True)
    )


def _slices_with_inputs(
    graph: GraphView, slices: Op, stack: Stack
) -> list[tuple[fx.Node, fx.Node]]:
    """Every slice that is taken, with the stack's input that it equals."""
    if isinstance(slices, Select):
        return [(slices.node, stack.inputs[slices.index])]
    assert isinstance(slices, Unbind)
    pieces = graph.pieces(slices) or {}
    return [(p.node, stack.inputs[index]) for index, found in pieces.items() for p in found]

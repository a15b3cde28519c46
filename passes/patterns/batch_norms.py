"""Batch norms side by side."""

from __future__ import annotations

from collections.abc import Hashable

from torch import fx

from passwright.passes.editor import GraphEditor
from passwright.passes.graph import GraphView
from passwright.passes.horizontal import HorizontalPattern
from passwright.passes.legality import agreement
from passwright.passes.ops import BatchNorm
from passwright.passes.pattern import TORCH_IR, Exactness, Match
from passwright.passes.spec import static

_AFFINE, _STATISTICS = ("weight", "bias"), ("running_mean", "running_var")


class BatchNormsByChannel(HorizontalPattern):
    """Batch norms of inputs with equal rows become one over all their channels.

    batch_norm(x_i, mean_i, var_i, w_i, b_i)   ==>   split(batch_norm(cat(x, 1), cat(mean), ...), 1)

    A channel knows nothing of its neighbours, so that unequal widths may stand side by side. In
    training the step's own copy of the running statistics is overwritten and then written back:

    _foreach_copy_([mean_0, mean_1, ...], split(cat(mean)))

    AOTAutograd takes the op apart, so Torch-IR only.
    """

    exactness = Exactness.REASSOCIATING
    anchors = frozenset({BatchNorm})
    levels = frozenset({TORCH_IR})
    with_state = True
    conditions = (
        "inputs of equal shape but for the channels, the same training flag and numbers",
        "weight in all or none, bias in all or none, of equal types",
        "known numbers of channels",
        "running statistics that training overwrites are nobody else's",
    )

    def key(self, graph: GraphView, op: BatchNorm) -> Hashable | None:
        spec = graph.spec(op.input)
        width = static(spec.shape[1]) if spec.ndim > 1 else None
        given = [getattr(op, name) for name in (*_AFFINE, *_STATISTICS)]
        if width is None or any(v is not None and graph.shape(v) != (width,) for v in given):
            return None
        if op.training and _overwrites_operands(graph, op):
            return None
        rows, *rest = spec.key()
        assert isinstance(rows, tuple)
        kinds = [None if value is None else _kind(graph, value) for value in given]
        momentum = repr(op.momentum) if op.training else None
        plain = (op.training, momentum, repr(op.eps), *kinds)
        return (plain, rows[0], rows[2:], *rest, agreement(graph, op))

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        members: tuple[BatchNorm, ...] = m.members
        widths = [edit.view.shape(op.input)[1] for op in members]
        x = edit.cat([op.input for op in members], 1)
        weight, bias = (_joined(edit, members, name) for name in _AFFINE)
        mean, var = (_joined(edit, members, name) for name in _STATISTICS)
        y = edit.batch_norm(m.anchor, x, weight, bias, mean, var)
        if m.anchor.training and mean is not None and var is not None:
            old = [getattr(op, name) for name in _STATISTICS for op in members]
            new = [piece for value in (mean, var) for piece in edit.split(value, widths, 0)]
            edit.copy_all(old, new)
        for op, output in zip(members, edit.split(y, widths, 1), strict=True):
            edit.replace(op.node, output)
            if not edit.view.is_pure(op.node):
                edit.remove(op.node)


def _joined(edit: GraphEditor, members: tuple[BatchNorm, ...], name: str) -> fx.Node | None:
    """The numbers a channel of all members, or None where they have none."""
    values = [getattr(op, name) for op in members]
    return None if values[0] is None else edit.cat(values, 0)


def _kind(graph: GraphView, value: fx.Node) -> Hashable:
    spec = graph.spec(value)
    return (spec.dtype, spec.device, spec.layout)


def _overwrites_operands(graph: GraphView, op: BatchNorm) -> bool:
    """The statistics lie in memory that the batch norm reads for another purpose as well."""
    written = [value for value in (op.running_mean, op.running_var) if value is not None]
    read = [value for value in (op.input, op.weight, op.bias) if value is not None]
    return bool(graph.storages(written) & graph.storages(read))

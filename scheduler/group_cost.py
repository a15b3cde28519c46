"""What a grouped Triton kernel takes: one launch for all members, forward and for each gradient.

Arithmetic and traffic are counted as those of the separate ops are, so that the two forms differ by
launches and copies alone. How far the kernels' products fall behind the library's is a figure of
its own, `PRODUCT_SHARE`.
"""

from __future__ import annotations

import torch
from torch import fx

from passwright.passes.graph import GraphView
from passwright.passes.spec import Spec, hint
from passwright.scheduler.device import DeviceDescriptor
from passwright.scheduler.estimate import Seconds
from passwright.scheduler.work import op_name

#: Of the speed of a library's products, what those of the grouped kernel reach: in plain float32, and
#: where tensor cores help; forward, and in the two products of the backward. A test compares what
#: follows with the measured rows of data/devices/kernels-h200.json.
PRODUCT_SHARE = {"fp32": (0.09, 0.5), "other": (0.15, 0.14)}
#: Of the memory rate, what grouped norms of narrow rows reach there.
NORM_SHARE = 0.2
#: Backward of a memory-bound kernel against its forward, as for any fused one.
_FUSED_BACKWARD = 1.5
_NAMES = {"grouped_linear", "grouped_layer_norm", "grouped_gather"}


def is_grouped(node: fx.Node) -> bool:
    """The node calls one of Passwright's kernels."""
    target = node.target
    ours = isinstance(target, torch._ops.OpOverload) and target.namespace == "passwright"
    return ours and op_name(node) in _NAMES


def group_seconds(
    view: GraphView, device: DeviceDescriptor, node: fx.Node, *, training: bool
) -> tuple[Seconds, int]:
    """Seconds and launches of a node that `is_grouped`."""
    out, name = view.spec(node), op_name(node)
    if name == "grouped_linear":
        return _linear(view, device, node, out, training)
    # A look-up reads as many rows as it writes, not its tables; so does a norm.
    moved = 2.0 * out.nbytes
    traffic = moved / device.bandwidth_for(moved)
    if name == "grouped_layer_norm":
        traffic /= NORM_SHARE
    once = Seconds(device.fused_launch, traffic=traffic)
    if not training:
        return once, 1
    # Beside the kernel: a sum for weights and one for biases; zeros for the gradients of tables are
    # needed in either form, and counted in neither.
    sums = 2 if name == "grouped_layer_norm" else 0
    back = Seconds(device.fused_launch * (1 + sums), traffic=_FUSED_BACKWARD * traffic)
    return once.plus(back), 2 + sums


def _linear(
    view: GraphView, device: DeviceDescriptor, node: fx.Node, out: Spec, training: bool
) -> tuple[Seconds, int]:
    weights = [view.spec(weight) for weight in _nodes(node.args[1])]
    rows = hint(out.shape[0])
    kind = "fp32" if out.dtype is torch.float32 and not device.tf32 else "other"
    work = 2.0 * rows * sum(weight.numel for weight in weights)
    reads = (*_nodes(node.args[0]), *_nodes(node.args[1]), *_nodes(node.args[2]))
    moved = out.nbytes + sum(view.spec(source).nbytes for source in reads)
    product = device.matmul_seconds(out.dtype, work, out.numel)
    forward, backward = (product / share for share in PRODUCT_SHARE[kind])
    traffic = moved / device.bandwidth_for(moved)
    once = Seconds(device.fused_launch, forward, traffic)
    if not training:
        return once, 1
    # A product for each of two gradients; the activation's and the biases' over the batch, and the
    # sum of the parts of the weights' gradient.
    swept = out.nbytes / device.bandwidth_for(out.nbytes)
    extra = Seconds(device.fused_launch * 2, traffic=2 * swept)
    return once.plus(Seconds(device.fused_launch, backward, traffic).times(2)).plus(extra), 5


def _nodes(value: object) -> tuple[fx.Node, ...]:
    assert isinstance(value, (list, tuple))
    return tuple(item for item in value if isinstance(item, fx.Node))

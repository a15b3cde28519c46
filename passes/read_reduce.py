"""Readers of reductions, softmax and batch norm."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from passwright.passes.binding import Bound, Reader, spelled
from passwright.passes.ops import BatchNorm, Op, Reduce, Softmax
from passwright.passes.read_compute import optional_tensor
from passwright.passes.read_movement import dim_of
from passwright.passes.spec import Spec

aten = torch.ops.aten


def _reduce(function: str) -> Reader:
    def reader(call: Bound) -> Op | None:
        source, result, given = call.tensor(), call.result(), call["dim"]
        if source is None or not isinstance(result, Spec) or type(call["keepdim"]) is not bool:
            return None
        # A type to sum in, as for integers, is another function.
        if call.args.get("dtype") is not None or result.dtype != source[1].dtype:
            return None
        ndim = source[1].ndim
        if given is None or given == [] or given == ():
            return Reduce(call.node, function, source[0], tuple(range(ndim)), call["keepdim"])
        dims = [dim_of(d, ndim) for d in (given if isinstance(given, (tuple, list)) else (given,))]
        if None in dims:
            return None
        found = tuple(sorted(d for d in dims if d is not None))
        return Reduce(call.node, function, source[0], found, call["keepdim"])

    return reader


for _name in ("sum", "mean"):
    _packet = getattr(aten, _name)
    spelled(
        "input, dim=None, keepdim=False, dtype=None",
        getattr(torch, _name), _name, _packet.dim_IntList if _name == "sum" else _packet.dim,
    )(_reduce(_name))  # fmt: skip
for _name in ("amax", "amin"):
    _packet = getattr(aten, _name)
    spelled(
        "input, dim=None, keepdim=False", getattr(torch, _name), _name, _packet.default
    )(_reduce(_name))  # fmt: skip


def _softmax(log: bool) -> Reader:
    def reader(call: Bound) -> Op | None:
        source, result = call.tensor(), call.result()
        if source is None or not isinstance(result, Spec) or call.args.get("dtype") is not None:
            return None
        dim = dim_of(call["dim"], source[1].ndim)
        return None if dim is None else Softmax(call.node, source[0], dim, log)

    return reader


for _log, _name in ((False, "softmax"), (True, "log_softmax")):
    spelled("input, dim=None, _stacklevel=3, dtype=None", getattr(F, _name))(_softmax(_log))
    spelled(
        "input, dim, dtype=None", getattr(torch, _name), _name, getattr(aten, _name).int
    )(_softmax(_log))  # fmt: skip
    spelled("input, dim, half_to_float=False", getattr(aten, "_" + _name).default)(_softmax(_log))


@spelled(
    "input, running_mean, running_var, weight=None, bias=None, training=False, momentum=0.1, eps=1e-05",
    F.batch_norm,
)
@spelled(
    "input, weight, bias, running_mean, running_var, training, momentum, eps, cudnn_enabled",
    torch.batch_norm,
    aten.batch_norm.default,
)
def read_batch_norm(call: Bound) -> Op | None:
    """Not read: a momentum that is no number, statistics of which only one is given."""
    source, training = call.tensor(), call["training"]
    names = ("running_mean", "running_var", "weight", "bias")
    found = [optional_tensor(call, name) for name in names]
    if source is None or type(training) is not bool or not all(fits for fits, _ in found):
        return None
    mean, var, weight, bias = (node for _, node in found)
    numbers = (call["momentum"], call["eps"])
    if (mean is None) != (var is None) or any(type(n) not in (int, float) for n in numbers):
        return None
    if mean is None and not training:
        return None
    momentum, eps = map(float, numbers)
    return BatchNorm(call.node, source[0], mean, var, weight, bias, training, momentum, eps)

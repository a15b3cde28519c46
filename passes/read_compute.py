"""Readers of ops that compute."""

from __future__ import annotations

import operator
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx

from passwright.passes.binding import Bound, Reader, spelled
from passwright.passes.ops import (
    Binary,
    Embedding,
    InplaceBinary,
    InplaceUnary,
    LayerNorm,
    Linear,
    Matmul,
    Op,
    Unary,
)
from passwright.passes.spec import Spec, static

aten = torch.ops.aten


def optional_tensor(call: Bound, name: str) -> tuple[bool, fx.Node | None]:
    """(is it None or a tensor?, the node)."""
    if call[name] is None:
        return True, None
    found = call.tensor(name)
    return found is not None, found[0] if found else None


@spelled("input, weight, bias=None", F.linear, torch._C._nn.linear, aten.linear.default)
def read_linear(call: Bound) -> Op | None:
    source, weight = call.tensor(), call.tensor("weight")
    fits, bias = optional_tensor(call, "bias")
    if source is None or weight is None or weight[1].ndim != 2 or not fits:
        return None
    return Linear(call.node, source[0], weight[0], bias)


#: Targets through which a GEMM is read as a Linear.
READ_THROUGH: tuple[Any, ...] = (aten.t.default, aten.permute.default)


def _transposed_weight(call: Bound, name: str) -> fx.Node | None:
    """`w` where the argument is `w.T`: AOTAutograd writes a Linear as addmm(bias, x, w.T)."""
    found = call.tensor(name)
    if found is None or found[0].op != "call_function":
        return None
    node = found[0]
    turned = node.target is aten.t.default
    if node.target is aten.permute.default:
        turned = node.args[1:] == ([1, 0],)
    source = node.args[0] if turned and node.args else None
    return source if isinstance(source, fx.Node) else None


@spelled("input, mat2", aten.mm.default)
def read_mm(call: Bound) -> Op | None:
    source, weight, other = call.tensor(), _transposed_weight(call, "mat2"), call.tensor("mat2")
    if source is None or other is None:
        return None
    if weight is None:
        return Matmul(call.node, source[0], other[0])
    return Linear(call.node, source[0], weight, None)


@spelled("bias, input|mat1, mat2, beta=1, alpha=1", aten.addmm.default)
def read_addmm(call: Bound) -> Op | None:
    source, bias = call.tensor("input"), call.tensor("bias")
    weight = _transposed_weight(call, "mat2")
    if not source or not bias or not weight or (call["beta"], call["alpha"]) != (1, 1):
        return None
    return Linear(call.node, source[0], weight, bias[0]) if bias[1].ndim == 1 else None


@spelled(
    "input, normalized_shape, weight=None, bias=None, eps=1e-05",
    F.layer_norm,
    aten.layer_norm.default,
)
@spelled(
    "input, normalized_shape, weight=None, bias=None, eps=1e-05, cudnn_enable=True",
    torch.layer_norm,
)
def read_layer_norm(call: Bound) -> Op | None:
    source, sizes, eps = call.tensor(), call["normalized_shape"], call["eps"]
    # With dynamic=True a size or a number may be a node.
    if not isinstance(sizes, (tuple, list)) or not isinstance(eps, (int, float)):
        return None
    shape = tuple(static(size) for size in sizes)
    fits_weight, weight = optional_tensor(call, "weight")
    fits_bias, bias = optional_tensor(call, "bias")
    if source is None or None in shape or not fits_weight or not fits_bias:
        return None
    return LayerNorm(call.node, source[0], shape, weight, bias, float(eps))  # type: ignore[arg-type]


def _embedding(call: Bound) -> Op | None:
    index, weight = call.tensor("index"), call.tensor("weight")
    if index is None or weight is None or weight[1].ndim != 2:
        return None
    padding, rows = call["padding_idx"], static(weight[1].shape[0])
    if padding is not None:
        if type(padding) is not int or not rows:
            return None
        padding = padding % rows if padding >= 0 or call.node.target is F.embedding else None
    return Embedding(call.node, index[0], weight[0], padding)


@spelled(
    "index|input, weight, padding_idx=None, max_norm=None, norm_type=2.0,"
    " scale_grad_by_freq=False, sparse=False",
    F.embedding,
)
def read_embedding(call: Bound) -> Op | None:
    """Not read: `max_norm` (it changes the weight), frequency scaling and sparse gradients."""
    if call["max_norm"] is not None or call["scale_grad_by_freq"] or call["sparse"]:
        return None
    return _embedding(call)


@spelled(
    "weight, index|indices, padding_idx=-1, scale_grad_by_freq=False, sparse=False",
    aten.embedding.default,
    torch.embedding,
)
def read_aten_embedding(call: Bound) -> Op | None:
    return None if call["scale_grad_by_freq"] or call["sparse"] else _embedding(call)


# ---- pointwise

#: Name -> (arguments after the input with defaults, spellings besides torch.NAME and .NAME()).
_UNARY: dict[str, tuple[str, tuple[Any, ...]]] = {
    "tanh": ("", (F.tanh, aten.tanh.default)),
    "sigmoid": ("", (F.sigmoid, torch.special.expit, aten.sigmoid.default)),
    "relu": ("", (aten.relu.default,)),
    "exp": ("", (aten.exp.default,)),
    "log": ("", (aten.log.default,)),
    "log1p": ("", (torch.special.log1p, aten.log1p.default)),
    "sqrt": ("", (aten.sqrt.default,)),
    "rsqrt": ("", (aten.rsqrt.default,)),
    "neg": ("", (torch.negative, operator.neg, aten.neg.default)),
    "abs": ("", (torch.absolute, operator.abs, aten.abs.default)),
    "sin": ("", (aten.sin.default,)),
    "cos": ("", (aten.cos.default,)),
    "square": ("", (aten.square.default,)),
    "erf": ("", (torch.special.erf, aten.erf.default)),
    "reciprocal": ("", (aten.reciprocal.default,)),
    "clamp": (", min=None, max=None", (torch.clip, "clip", aten.clamp.default)),
    "nan_to_num": (", nan=None, posinf=None, neginf=None", (aten.nan_to_num.default,)),
    "gelu": (", approximate='none'", (F.gelu, aten.gelu.default)),
    "logsigmoid": ("", (F.logsigmoid,)),
    "softplus": (", beta=1, threshold=20", (F.softplus, aten.softplus.default)),
    "pow": (", exponent", (operator.pow, aten.pow.Tensor_Scalar)),
}
#: The same for functions with an `inplace` argument, all of torch.nn.functional.
_UNARY_INPLACE: dict[str, tuple[str, tuple[Any, ...]]] = {
    "relu": ("", (F.relu,)),
    "relu6": ("", (F.relu6,)),
    "silu": ("", (F.silu,)),
    "mish": ("", (F.mish,)),
    "elu": (", alpha=1.0", (F.elu,)),
    "leaky_relu": (", negative_slope=0.01", (F.leaky_relu,)),
    "hardtanh": (", min_val=-1.0, max_val=1.0", (F.hardtanh,)),
    "hardsigmoid": ("", (F.hardsigmoid,)),
    "hardswish": ("", (F.hardswish,)),
    "celu": (", alpha=1.0", (F.celu,)),
    "selu": ("", (F.selu,)),
}
#: In-place methods and functions whose out-of-place form is `_UNARY` of the same name.
_UNARY_METHOD_INPLACE = ("relu_", "tanh_", "sigmoid_", "exp_", "neg_", "abs_", "clamp_", "sqrt_")


def _unary(function: str) -> Reader:
    def reader(call: Bound) -> Op | None:
        source = call.tensor()
        params = tuple((k, v) for k, v in call.args.items() if k not in ("input", "inplace"))
        if source is None or any(isinstance(value, fx.Node) for _, value in params):
            return None
        in_place = call.args.get("inplace", False)
        if in_place not in (True, False):
            return None
        return (InplaceUnary if in_place else Unary)(call.node, function, source[0], params)

    return reader


def _inplace_unary(function: str) -> Reader:
    def reader(call: Bound) -> Op | None:
        source = call.tensor()
        params = tuple((key, value) for key, value in call.args.items() if key != "input")
        if source is None or any(isinstance(value, fx.Node) for _, value in params):
            return None
        return InplaceUnary(call.node, function, source[0], params)

    return reader


for _name, (_arguments, _targets) in _UNARY.items():
    own = (getattr(torch, _name),) if hasattr(torch, _name) else ()
    methods = (_name,) if hasattr(torch.Tensor, _name) else ()
    spelled("input" + _arguments, *own, *methods, *_targets)(_unary(_name))
for _name, (_arguments, _targets) in _UNARY_INPLACE.items():
    spelled("input" + _arguments + ", inplace=False", *_targets)(_unary(_name))
for _name in _UNARY_METHOD_INPLACE:
    _base = _name.removesuffix("_")
    _own = (getattr(torch, _name),) if hasattr(torch, _name) else ()
    spelled("input" + _UNARY[_base][0], _name, *_own)(_inplace_unary(_base))

#: Name -> (arguments after the operands with defaults, spellings besides torch.NAME and .NAME()).
_BINARY: dict[str, tuple[str, tuple[Any, ...]]] = {
    "add": (", alpha=1", (operator.add, aten.add.Tensor)),
    "sub": (", alpha=1", (torch.subtract, "subtract", operator.sub, aten.sub.Tensor)),
    "mul": ("", (torch.multiply, "multiply", operator.mul, aten.mul.Tensor)),
    "div": (
        ", rounding_mode=None",
        (torch.divide, "divide", torch.true_divide, operator.truediv, aten.div.Tensor),
    ),
    "maximum": ("", (aten.maximum.default,)),
    "minimum": ("", (aten.minimum.default,)),
}


#: In-place methods and operators, and the `_BINARY` function whose result they write.
_BINARY_INPLACE = {
    "add": ("add_", operator.iadd),
    "sub": ("sub_", operator.isub),
    "mul": ("mul_", operator.imul),
    "div": ("div_", operator.itruediv),
}


def _operand(call: Bound, name: str) -> fx.Node | int | float | bool | None:
    value = call[name]
    if isinstance(value, fx.Node):
        return value if isinstance(call.specs(value), Spec) else None
    return value if isinstance(value, (int, float, bool)) else None


def _inplace_binary(function: str) -> Reader:
    def reader(call: Bound) -> Op | None:
        left, right = call.tensor(), _operand(call, "other")
        params = tuple((k, v) for k, v in call.args.items() if k not in ("input", "other"))
        if left is None or right is None or any(isinstance(v, fx.Node) for _, v in params):
            return None
        return InplaceBinary(call.node, function, left[0], right, params)

    return reader


def _binary(function: str) -> Reader:
    def reader(call: Bound) -> Op | None:
        left, right = _operand(call, "input"), _operand(call, "other")
        params = tuple((k, v) for k, v in call.args.items() if k not in ("input", "other"))
        if left is None or right is None or any(isinstance(v, fx.Node) for _, v in params):
            return None
        if not isinstance(call.result(), Spec):
            return None
        return Binary(call.node, function, left, right, params)

    return reader


for _name, (_arguments, _targets) in _BINARY.items():
    spelled("input, other" + _arguments, getattr(torch, _name), _name, *_targets)(_binary(_name))
for _name, _targets in _BINARY_INPLACE.items():
    spelled("input, other" + _BINARY[_name][0], *_targets)(_inplace_binary(_name))

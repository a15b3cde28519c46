"""Compiles every kernel for an H200 on a machine without a GPU, and traces the ops as for one.

Prints which arguments of each kernel torch takes to be written (a kernel that it cannot read counts as
writing all of them, and costs a copy of each), and how many kernels AOTAutograd's graphs hold.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import torch
import triton
from torch import Tensor
from torch._dynamo.backends.common import aot_autograd
from torch._higher_order_ops import triton_kernel_wrap
from triton.backends.compiler import GPUTarget
from triton.compiler.compiler import ASTSource

from passwright.passes.kernels import grouped_gather, grouped_layer_norm, grouped_linear, version

TARGET = GPUTarget("cuda", 90, 32)
_NAMES = {torch.float32: "*fp32", torch.int64: "*i64"}


class Driver:
    """What torch and Triton ask of a GPU's driver before anything is launched."""

    def get_current_target(self) -> GPUTarget:
        return TARGET

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, *_: Any) -> int:
        return 0


def compile_only(kernel: Any, grid: tuple[Any, ...], *args: Any) -> None:
    """In place of a launch."""
    names = kernel.arg_names
    assert len(grid) in (1, 2)
    assert len(names) == len(args)
    signature = {
        name: _NAMES[a.dtype] if isinstance(a, Tensor) else "i32"
        for name, a in zip(names, args, strict=True)
    }
    aligned = [i for i, a in enumerate(args) if isinstance(a, Tensor) or a % 16 == 0]
    attributes = {(i,): [["tt.divisibility", 16]] for i in aligned}
    made = triton.compile(ASTSource(kernel, signature, {}, attributes), target=TARGET)
    wide = ("ld.global.v4", "cp.async.cg", "st.global.v4")
    assert any(word in made.asm["ptx"] for word in wide), "no access of 16 bytes"
    given = dict(zip(names, args, strict=True))
    accesses = triton_kernel_wrap.identify_accessed_tensors(kernel, given, {})
    written = sorted(dep.name for dep in accesses.read_writes.writes if dep.name in given)
    print(f"{kernel.fn.__name__.rpartition('_')[0]}: writes {' '.join(written)}")  # noqa: T201


def compile_all() -> None:
    inner, out, rows = [64, 128, 32], [32, 64, 64], 512
    xs = [torch.empty(rows, k) for k in inner]
    ws = [torch.empty(n, k) for n, k in zip(out, inner, strict=True)]
    bs = [torch.empty(n) for n in out]
    grouped_linear.forward_kernel(xs, ws, bs, "tanh")
    gradient = torch.empty(rows, sum(out))
    grouped_linear.input_gradient_kernel(gradient, ws)
    grouped_linear.weight_gradient_kernel(gradient, xs, out)
    affine = [torch.empty(k) for k in inner]
    grouped_layer_norm.forward_kernel(xs, affine, affine, 1e-5)
    grouped_layer_norm.backward_kernel(torch.empty(rows, sum(inner)), xs, affine, 1e-5)
    indices = list(torch.zeros(rows, 3, dtype=torch.int64).unbind(1))
    grouped_gather.forward_kernel(indices, [torch.empty(9, 16) for _ in range(3)])
    gradient = torch.empty(rows, 48)
    grouped_gather.backward_kernel(gradient, indices, [9] * 3, [16] * 3, [-1] * 3)


def trace() -> None:
    """A model of all ops, with a dynamic batch."""
    key = version()

    def model(x: Tensor, index: Tensor, w: list[Tensor], b: list[Tensor], t: list[Tensor]) -> Any:
        pieces = x.split([16, 24], 1)
        y = grouped_linear.GROUPED_LINEAR(pieces, w, b, "relu", key)
        y = grouped_layer_norm.GROUPED_LAYER_NORM(y.split([8, 30], 1), b, [], 1e-5, key)
        rows = grouped_gather.GROUPED_GATHER(index.unbind(1), t, [-1, -1], key)
        return torch.cat([y, rows], 1), grouped_layer_norm.GROUPED_LAYER_NORM(
            [x, rows], [], [], 1e-5, key
        )

    counts = []

    def count(graph_module: torch.fx.GraphModule, _: Any) -> Any:
        op = triton_kernel_wrap.triton_kernel_wrapper_functional
        nodes = graph_module.graph.find_nodes(op="call_function", target=op)
        counts.append(len(nodes))
        assert all(len(node.kwargs["tensors_to_clone"]) < 4 for node in nodes)
        return lambda *_: 1 / 0

    def randn(*shape: int) -> Tensor:
        return torch.randn(shape, requires_grad=True)

    x, index = torch.randn(64, 40), torch.randint(0, 4, (64, 2))
    for value in x, index:
        torch._dynamo.mark_dynamic(value, 0)
    backend = aot_autograd(fw_compiler=count, bw_compiler=count)
    given = [randn(8, 16), randn(30, 24)], [randn(8), randn(30)], [randn(9, 4), randn(9, 8)]
    patch = torch._functorch.config.patch(force_non_lazy_backward_lowering=True)
    with patch, suppress(ZeroDivisionError):
        torch.compile(model, backend=backend, fullgraph=True)(x, index, *given)
    print(f"AOTAutograd: {counts[0]} forward, {counts[1]} backward")  # noqa: T201


if __name__ == "__main__":
    triton.runtime.driver.set_active(Driver())
    modules = (grouped_linear, grouped_layer_norm, grouped_gather)
    originals = [module.launch for module in modules]
    for module in modules:
        module.launch = compile_only
    compile_all()
    for module, original in zip(modules, originals, strict=True):
        module.launch = original
        module.has_kernel = lambda tensor, types: tensor.dtype in types
    trace()

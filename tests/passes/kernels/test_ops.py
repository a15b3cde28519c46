"""The grouped ops on a CPU, where plain torch computes them: values, gradients, compiled and traced."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from passwright.passes.kernels import version
from passwright.passes.kernels.grouped_gather import GROUPED_GATHER
from passwright.passes.kernels.grouped_layer_norm import GROUPED_LAYER_NORM
from passwright.passes.kernels.grouped_linear import ACTIVATIONS, GROUPED_LINEAR

TYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]
SIZES = ((3, 4), (5, 1), (2, 6))


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def randn(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, dtype=dtype, requires_grad=True)


def linears(dtype: torch.dtype = torch.float64, rows: int = 7) -> list[list[Tensor]]:
    """Inputs, two of them pieces of one tensor, weights and biases."""
    both = randn(rows, 8, dtype=dtype)
    xs = [both[:, :3], both[:, 3:], randn(rows, 2, dtype=dtype)]
    ws = [randn(out, inner, dtype=dtype) for inner, out in SIZES]
    return [xs, ws, [randn(out, dtype=dtype) for _, out in SIZES]]


def norms(dtype: torch.dtype = torch.float64, rows: int = 7) -> list[list[Tensor]]:
    xs = linears(dtype, rows)[0]
    return [xs, *([randn(x.shape[1], dtype=dtype) for x in xs] for _ in range(2))]


def lookups(dtype: torch.dtype = torch.float64, rows: int = 7) -> list[list[Any]]:
    index = torch.randint(0, 4, (rows, 3))
    tables = [randn(height, width, dtype=dtype) for height, width in ((4, 3), (9, 1), (5, 4))]
    return [list(index.unbind(1)), tables, [-1, 2, -1]]


def separate_linears(
    xs: list[Tensor], ws: list[Tensor], bs: list[Any], activation: str = "none"
) -> Tensor:
    y = torch.cat([F.linear(x, w, b) for x, w, b in zip(xs, ws, bs or [None] * 3, strict=True)], 1)
    return y if activation == "none" else getattr(torch, activation)(y)


def separate_norms(xs: list[Tensor], ws: list[Any], bs: list[Any]) -> Tensor:
    empty = [None] * len(xs)
    members = zip(xs, ws or empty, bs or empty, strict=True)
    return torch.cat([F.layer_norm(x, x.shape[-1:], w, b, 1e-5) for x, w, b in members], 1)


def separate_lookups(indices: list[Tensor], tables: list[Tensor], padding: list[int]) -> Tensor:
    members = zip(indices, tables, padding, strict=True)
    return torch.cat([F.embedding(i, t, p if p >= 0 else None) for i, t, p in members], 1)


def grouped_linears(*lists: Any, activation: str = "none") -> Any:
    return GROUPED_LINEAR(*lists, activation, version())


def grouped_norms(*lists: Any) -> Any:
    return GROUPED_LAYER_NORM(*lists, 1e-5, version())


def grouped_lookups(*lists: Any) -> Any:
    return GROUPED_GATHER(*lists, version())


#: (grouped, separate, arguments)
CASES = {
    "linear": (grouped_linears, separate_linears, linears),
    "layer norm": (grouped_norms, separate_norms, norms),
    "gather": (grouped_lookups, separate_lookups, lookups),
}
each = pytest.mark.parametrize("name", CASES)


def leaves(lists: list[list[Any]]) -> list[Tensor]:
    return [t for group in lists for t in group if isinstance(t, Tensor) and t.requires_grad]


@each
@pytest.mark.parametrize("dtype", TYPES)
def test_values_and_gradients(name: str, dtype: torch.dtype) -> None:
    grouped, separate, make = CASES[name]
    lists = make(dtype)
    found, expected = grouped(*lists), separate(*lists)
    torch.testing.assert_close(found, expected)
    weight = torch.rand_like(expected)
    gradients = [torch.autograd.grad((y * weight).sum(), leaves(lists)) for y in (found, expected)]
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("bias", [True, False])
def test_gradcheck_of_linears(activation: str, bias: bool) -> None:
    xs, ws, bs = linears()
    values = [*xs, *ws, *(bs if bias else [])]

    def call(*flat: Tensor) -> Any:
        lists = list(flat[:3]), list(flat[3:6]), list(flat[6:])
        return grouped_linears(*lists, activation=activation)

    values = [value.detach().requires_grad_() for value in values]
    assert torch.autograd.gradcheck(call, values)


@pytest.mark.parametrize(("weight", "bias"), [(True, True), (True, False), (False, False)])
def test_gradcheck_of_norms(weight: bool, bias: bool) -> None:
    xs, ws, bs = norms()
    lists = [xs, ws if weight else [], bs if bias else []]
    sizes = [len(group) for group in lists]

    def call(*flat: Tensor) -> Any:
        rest = iter(flat)
        return grouped_norms(*([next(rest) for _ in range(size)] for size in sizes))

    values = [value.detach().requires_grad_() for group in lists for value in group]
    assert torch.autograd.gradcheck(call, values)


def test_gradcheck_of_lookups() -> None:
    indices, tables, _ = lookups()
    assert torch.autograd.gradcheck(
        lambda *given: grouped_lookups(indices, list(given), [-1] * 3), tables
    )


def test_only_what_needs_a_gradient_gets_one() -> None:
    xs, ws, bs = linears()
    frozen = [x.detach() for x in xs]
    grouped_linears(frozen, [ws[0], ws[1].detach(), ws[2]], bs).sum().backward()
    assert ws[0].grad is not None
    assert ws[1].grad is None


def test_padding_and_an_index_outside() -> None:
    indices, tables, padding = lookups()
    indices[1][0] = 2
    grouped_lookups(indices, tables, padding).sum().backward()
    assert not tables[1].grad[2].any()
    indices[0][0] = 4
    with pytest.raises(IndexError):
        grouped_lookups(indices, tables, padding)


@each
def test_tuples_will_do(name: str) -> None:
    """What `split` and `unbind` return."""
    grouped, separate, make = CASES[name]
    lists = make()
    given = [tuple(group) for group in lists]
    found = grouped(*given)
    torch.testing.assert_close(found, separate(*lists))
    assert all(g is not None for g in torch.autograd.grad(found.sum(), leaves(lists)))


@each
def test_torch_checks_the_registration(name: str) -> None:
    """Schema, fake tensors, autograd, AOTAutograd with symbolic shapes."""
    _, _, make = CASES[name]
    ops = {"linear": GROUPED_LINEAR, "layer norm": GROUPED_LAYER_NORM, "gather": GROUPED_GATHER}
    rest = {"linear": ["relu"], "layer norm": [1e-5], "gather": []}[name]
    torch.library.opcheck(ops[name], (*make(), *rest, version()))


@each
def test_make_fx_keeps_the_op(name: str) -> None:
    grouped, separate, make = CASES[name]
    lists = make()
    traced = make_fx(lambda: grouped(*lists))()
    assert any("passwright" in str(node.target) for node in traced.graph.nodes)
    torch.testing.assert_close(traced(), separate(*lists))


@pytest.mark.slow
@pytest.mark.inductor
@each
def test_compiles_whole_with_a_dynamic_batch(name: str) -> None:
    _, _, make = CASES[name]
    key = version()
    ops: dict[str, Callable[..., Any]] = {
        "linear": lambda *lists: GROUPED_LINEAR(*lists, "tanh", key).exp(),
        "layer norm": lambda *lists: GROUPED_LAYER_NORM(*lists, 1e-5, key).exp(),
        "gather": lambda *lists: GROUPED_GATHER(*lists, key).exp(),
    }
    plain: dict[str, Callable[..., Any]] = {
        "linear": lambda *lists: separate_linears(*lists, "tanh").exp(),
        "layer norm": lambda *lists: separate_norms(*lists).exp(),
        "gather": lambda *lists: separate_lookups(*lists).exp(),
    }
    counter = torch._dynamo.testing.CompileCounterWithBackend("inductor")
    compiled = torch.compile(ops[name], backend=counter, fullgraph=True)
    for rows in 7, 12:
        lists = make(torch.float32, rows)
        lists = [[_leaf(value) for value in group] for group in lists]
        for value in (v for v in lists[0] if rows == 7):
            torch._dynamo.mark_dynamic(value, 0)
        found, expected = compiled(*lists), plain[name](*lists)
        torch.testing.assert_close(found, expected)
        grads = [torch.autograd.grad(y.sum(), leaves(lists)) for y in (found, expected)]
        # A norm of two numbers has hardly a gradient: what is left is rounding.
        torch.testing.assert_close(*grads, rtol=1e-4, atol=1e-4)
    assert counter.frame_count == 1
    torch._dynamo.reset()


def _leaf(value: Any) -> Any:
    if not isinstance(value, Tensor):
        return value
    return value.detach().clone().requires_grad_(value.requires_grad)


def test_wrong_arguments() -> None:
    xs, ws, bs = linears()
    with pytest.raises(ValueError, match="no activation 'swish'"):
        grouped_linears(xs, ws, bs, activation="swish")
    with pytest.raises(ValueError, match="several types"):
        grouped_linears(xs, [ws[0].float(), *ws[1:]], bs)


def test_without_triton_the_ops_are_plain_torch() -> None:
    """No triton to import, no warning, and Inductor compiles the op all the same."""
    code = """
import sys, torch
sys.modules["triton"] = None
import importlib.util
real = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "triton" else real(name, *rest)
from passwright.passes.kernels import importable, version
from passwright.passes.kernels.grouped_linear import GROUPED_LINEAR
assert not importable()
x, w = torch.randn(4, 3), torch.randn(2, 3, requires_grad=True)
y = GROUPED_LINEAR([x, x], [w, w], [], "relu", version())
y.sum().backward()
torch.testing.assert_close(y, torch.relu(torch.cat([x @ w.T, x @ w.T], 1)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "riton" not in done.stderr


def test_naming_the_patterns_imports_no_kernel() -> None:
    code = (
        "import sys, passwright.passes.patterns.grouped_linear, passwright.passes.kernels;"
        "print([m for m in ('triton', 'torch._inductor.codegen') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"

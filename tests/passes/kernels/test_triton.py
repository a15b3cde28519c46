"""The kernels themselves: in Triton's interpreter, compiled for a GPU without one, and on one."""

from __future__ import annotations

import importlib.util
import inspect
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from passwright.passes.kernels import version
from passwright.passes.kernels.text import Steps, kernel, parts_of, pick, starts_of

triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="Triton is not installed"
)
SCRIPTS = Path(__file__).parent


def run(script: str, *arguments: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, str(SCRIPTS / script), *arguments],
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@triton
@pytest.mark.parametrize("what", ["linear", "norm", "gather", "many"])
def test_interpreted(what: str) -> None:
    assert run("interpreted.py", what, TRITON_INTERPRET="1")


@triton
def test_compiled_for_a_gpu(tmp_path: Path) -> None:
    """PTX for every kernel, no tensor but the result written, and as wide loads as can be."""
    lines = run("cross_compiled.py", TRITON_CACHE_DIR=str(tmp_path)).splitlines()
    assert lines == [
        "grouped_linear: writes y",
        "grouped_linear_input_gradient: writes y",
        "grouped_linear_weight_gradient: writes y",
        "grouped_layer_norm: writes y",
        "grouped_layer_norm_gradient: writes gb gw gx",
        "grouped_gather: writes y",
        "grouped_gather_gradient: writes y",
        "AOTAutograd: 4 forward, 4 backward",
    ]


# ---- the text


def test_pick_is_a_binary_search() -> None:
    for count in range(1, 20):
        sizes = [1 + i % 3 for i in range(count)]
        starts = starts_of(sizes)
        lines = pick("number", starts, [{"found": i, "start": starts[i]} for i in range(count)])
        code = compile("\n".join(lines), "<test>", "exec")
        for number in range(starts[-1]):
            names = {"number": number}
            exec(code, names)
            assert starts[names["found"]] == names["start"] <= number < starts[names["found"] + 1]
        depth = max(len(line) - len(line.lstrip()) for line in lines) // 4
        assert depth == (count - 1).bit_length()


def test_launches_hold_all_members() -> None:
    for count in 1, 63, 64, 65, 200:
        assert [i for part in parts_of(count) for i in part] == list(range(count))


def test_steps_that_are_known_stand_in_the_text() -> None:
    class Symbolic:
        def stride(self, _: int) -> Any:
            return symbol

    symbol = object()
    steps = Steps.of([torch.empty(3, 8), Symbolic(), torch.empty(3, 12)[:, :5]])
    assert steps.texts == [f"tl.cast({step}, tl.int64)" for step in (8, "step1", 12)]
    assert (steps.names, steps.values) == (["step1"], [symbol])


@triton
def test_one_kernel_a_text() -> None:
    made = [kernel("k", ["y"], [f"tl.store(y, {value})"]) for value in (1, 1, 2)]
    assert made[0] is made[1]
    assert made[0].fn.__name__ != made[2].fn.__name__
    assert "tl.store(y, 2)" in inspect.getsource(made[2].fn)


def test_the_version_is_that_of_the_sources() -> None:
    code = "from passwright.passes.kernels import version; print(version())"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert other.stdout.strip() == version()


# ---- on a GPU


needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
CUDA = "cuda"


def randn(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, device=CUDA, dtype=dtype, requires_grad=True)


def functions(dtype: torch.dtype, rows: int) -> dict[str, tuple[Any, Any, list[torch.Tensor]]]:
    """For each op: grouped, separate, and the tensors that both take."""
    from passwright.passes.kernels.grouped_gather import GROUPED_GATHER
    from passwright.passes.kernels.grouped_layer_norm import GROUPED_LAYER_NORM
    from passwright.passes.kernels.grouped_linear import GROUPED_LINEAR

    key, inner, out = version(), [64, 130, 7, 256], [100, 64, 33, 16]
    xs = [randn(rows, k, dtype=dtype) for k in inner]
    ws = [(randn(n, k, dtype=dtype).detach() / k**0.5) for n, k in zip(out, inner, strict=True)]
    ws = [w.requires_grad_() for w in ws]
    bs = [randn(n, dtype=dtype) for n in out]
    scales, shifts = ([randn(k, dtype=dtype) for k in inner] for _ in range(2))
    tables = [randn(50 + i, k, dtype=dtype) for i, k in enumerate((16, 16, 5, 32))]
    index = torch.randint(0, 50, (rows, 4), device=CUDA)

    def linears(*t: Any) -> Any:
        return GROUPED_LINEAR(t[:4], t[4:8], t[8:], "tanh", key)

    def separate_linears(*t: Any) -> Any:
        members = zip(t[:4], t[4:8], t[8:], strict=True)
        return torch.cat([torch.tanh(F.linear(*member)) for member in members], 1)

    def norms(*t: Any) -> Any:
        return GROUPED_LAYER_NORM(t[:4], t[4:8], t[8:], 1e-5, key)

    def separate_norms(*t: Any) -> Any:
        members = zip(t[:4], t[4:8], t[8:], strict=True)
        return torch.cat([F.layer_norm(x, x.shape[1:], w, b) for x, w, b in members], 1)

    def lookups(*t: Any) -> Any:
        return GROUPED_GATHER([index[:, i] for i in range(4)], t, [-1, 3, -1, -1], key)

    def separate_lookups(*t: Any) -> Any:
        padding = (None, 3, None, None)
        found = [F.embedding(index[:, i], t[i], padding[i]) for i in range(4)]
        return torch.cat(found, 1)

    return {
        "linear": (linears, separate_linears, [*xs, *ws, *bs]),
        "norm": (norms, separate_norms, [*xs, *scales, *shifts]),
        "gather": (lookups, separate_lookups, tables),
    }


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("way", ["eager", "compiled", "dynamic"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["linear", "norm", "gather"])
def test_on_a_gpu(name: str, dtype: torch.dtype, way: str) -> None:
    """No farther from a float64 run than torch's own ops of that type are, but for a small factor."""
    torch._dynamo.reset()
    for rows in 1000, 777:
        torch.manual_seed(rows)
        grouped, separate, values = functions(dtype, rows)[name]
        call = grouped
        if way != "eager":
            call = torch.compile(grouped, fullgraph=True, dynamic=way == "dynamic")
        wide = [value.detach().double().requires_grad_() for value in values]
        weight = torch.rand_like(separate(*values).detach())
        found = [outcome(f, v, weight) for f, v in ((call, values), (separate, values))]
        exact = outcome(separate, wide, weight.double())
        for got, own, want in zip(*found, exact, strict=True):
            scale = want.abs().max().item() + 1e-6
            errors = [(v.double() - want).abs().max().item() / scale for v in (got, own)]
            assert errors[0] <= 4 * errors[1] + 4 * torch.finfo(dtype).eps, name


def outcome(call: Any, values: list[torch.Tensor], weight: torch.Tensor) -> list[torch.Tensor]:
    y = call(*values)
    return [y.detach(), *torch.autograd.grad((y * weight).sum(), values)]


@pytest.mark.gpu
@needs_gpu
def test_one_launch_each_when_compiled() -> None:
    from torch._inductor.utils import run_and_get_code

    for name, (grouped, _, values) in functions(torch.float32, 512).items():
        torch._dynamo.reset()
        with torch.no_grad():
            _, (code, *_) = run_and_get_code(torch.compile(grouped, fullgraph=True), *values)
        launches = [line for line in code.splitlines() if ".run(" in line]
        assert len(launches) == 1, name


@pytest.mark.gpu
@needs_gpu
def test_deterministic_gradients_of_tables() -> None:
    grouped, separate, values = functions(torch.float32, 4096)["gather"]
    torch.use_deterministic_algorithms(True)
    try:
        runs = [torch.autograd.grad(grouped(*values).sin().sum(), values) for _ in range(3)]
        expected = torch.autograd.grad(separate(*values).sin().sum(), values)
    finally:
        torch.use_deterministic_algorithms(False)
    for found in runs:
        assert all(map(torch.equal, found, expected))


@pytest.mark.gpu
@needs_gpu
def test_in_a_cuda_graph() -> None:
    for name, (grouped, _, values) in functions(torch.float32, 512).items():
        call = torch.compile(grouped, mode="reduce-overhead")
        with torch.no_grad():
            for _ in range(4):
                found = call(*values).clone()
            torch.testing.assert_close(found, grouped(*values), msg=name)

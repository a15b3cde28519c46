"""Measures a device in a few seconds, where the tables' figures are not good enough.

The best of many tries counts, for whatever else runs on the machine can only make things slower.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from passwright.scheduler.cuda_timing import device_runs
from passwright.scheduler.device import DeviceDescriptor, describe

#: Rows, inner length and columns of the products tried; the best rate counts.
_CPU_PRODUCTS = ((256, 256, 256), (512, 429, 128), (2048, 1024, 1024))
_GPU_PRODUCTS = ((1024, 1024, 1024), (4096, 4096, 4096), (8192, 8192, 8192))
_DTYPES = {
    "fp64": torch.float64,
    "fp32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
}
#: Seconds for one figure.
_PATIENCE = 0.15
#: Calls in one CUDA graph, so that the graph's own launch does not count.
_IN_GRAPH = 20


def probe(device: torch.device) -> DeviceDescriptor:
    """`describe(device)` with measured bandwidths, rates and launch costs.

    Takes under 5 seconds on a CPU. Launch costs are those of a tiny `add` and a tiny `addmm`: on
    CUDA within a CUDA graph, on a CPU called from Python, where they stand in for what a loop nest
    and a library call cost in Inductor's code. Figures differ from run to run, so `save` them:
    plans are stored under `key()`.
    """
    known = describe(device)
    on_cuda = known.kind == "cuda"
    with torch.no_grad():
        cached = _copy_rate(device, known.cache_bytes // 8)
        large = max(min(4 * known.cache_bytes, 256 << 20), 64 << 20)
        memory = _copy_rate(device, 512 << 20 if on_cuda else large)
        rates = dict(known.peak_flops)
        for precision, dtype in _DTYPES.items():
            name = "tf32" if precision == "fp32" and known.tf32 else precision
            # 16 and 64 bits can be slow on a CPU: one size has to do.
            few = not on_cuda and precision != "fp32"
            sizes = _GPU_PRODUCTS if on_cuda else _CPU_PRODUCTS[1:2] if few else _CPU_PRODUCTS
            rates[name] = max(_product_rate(device, dtype, *size) for size in sizes)
        if not on_cuda:
            rates["tf32"] = rates["fp32"]
        x = torch.randn(8, 8, device=device)
        return replace(
            known,
            memory_bandwidth=memory,
            cache_bandwidth=cached,
            peak_flops=rates,
            fused_launch=_seconds(lambda: x + 1, device),
            extern_launch=_seconds(lambda: torch.addmm(x[0], x, x), device),
        )


def _copy_rate(device: torch.device, size: int) -> float:
    """Bytes read and written per second when `size` bytes are copied."""
    source = torch.randn(size // 4, device=device)
    target = torch.empty_like(source)
    return 2 * size / _seconds(lambda: target.copy_(source), device)


def _product_rate(
    device: torch.device, dtype: torch.dtype, rows: int, inner: int, columns: int
) -> float:
    left = torch.randn(rows, inner, device=device).to(dtype)
    right = torch.randn(inner, columns, device=device).to(dtype)
    return 2 * rows * inner * columns / _seconds(lambda: left @ right, device)


def _seconds(call: Callable[[], Tensor], device: torch.device) -> float:
    """Shortest time of one call."""
    return _gpu_seconds(call) if device.type == "cuda" else _cpu_seconds(call)


def _cpu_seconds(call: Callable[[], Tensor]) -> float:
    call()
    end = time.perf_counter() + _PATIENCE
    best, calls = float("inf"), 1
    while True:
        begin = time.perf_counter()
        for _ in range(calls):
            call()
        now = time.perf_counter()
        best = min(best, (now - begin) / calls)
        if now > end:
            return best
        if now - begin < 5e-5:  # too short for the clock
            calls *= 2


def _gpu_seconds(call: Callable[[], Tensor]) -> float:
    def many() -> Tensor:
        for _ in range(_IN_GRAPH - 1):
            call()
        return call()

    many()
    _, runs, _ = device_runs({"many": many})
    end = time.perf_counter() + _PATIENCE
    best = runs["many"](1)
    while time.perf_counter() < end:
        best = min(best, runs["many"](1))
    return best / _IN_GRAPH

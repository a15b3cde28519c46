"""Kernels by name with their times, of one call of a compiled model.

On a GPU torch's profiler sees kernels. On a CPU it sees library calls alone: the loops that Inductor
generates are C++ functions of its wrapper. There each of these is given a name that the profiler notes, for
as long as it runs.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch

from passwright.training.headroom.bound import GEMM, OTHER, POINTWISE, kind_of
from passwright.training.report.model_content import KernelRow, Profile

#: Calls under the profiler; what is quick is called more often.
_CALLS, _SECONDS = 5, 0.2
#: How the names of C++ functions of Inductor's begin.
_GENERATED = ("cpp_fused", "cpp_CppMicro", "cpp_")
#: Library calls by their names on a CPU.
_PRODUCTS = ("mm", "matmul", "linear", "conv")
_ON_GPU = "Device time of kernels by torch's profiler, the mean of {calls} calls."
_ON_CPU = (
    "Time of Inductor's C++ functions (cpp_...) and of library calls (aten::...) by torch's profiler, the"
    " mean of {calls} calls; one function holds many loops. The profiler adds about a microsecond to each"
    " launch, and what Python does between kernels is not listed."
)

#: The names that the code of one compiled graph uses.
Namespace = MutableMapping[str, Any]


@contextmanager
def capture_namespaces() -> Iterator[list[Namespace]]:
    """Collects the namespace of every graph that Inductor compiles or loads from a cache meanwhile.

    Not for several threads at once; may stand inside or around `capture_kernels`.
    """
    from torch._inductor.output_code import CompiledFxGraph

    found: list[Namespace] = []
    original = CompiledFxGraph.post_compile

    def post_compile(self: Any, *arguments: Any) -> None:
        call = getattr(self, "current_callable", None)
        names = getattr(getattr(call, "__func__", call), "__globals__", None)
        if names is not None:
            found.append(names)
        original(self, *arguments)

    CompiledFxGraph.post_compile = post_compile  # type: ignore[method-assign, assignment]
    try:
        yield found
    finally:
        CompiledFxGraph.post_compile = original  # type: ignore[method-assign]


def profiled(
    step: Callable[[], object], device: torch.device, namespaces: Sequence[Namespace]
) -> Profile:
    """Kernels of one call of `step`, which was called before. Raises what the profiler raises: it needs the
    driver's leave on a GPU."""
    from torch.profiler import ProfilerActivity, profile

    on_cuda = device.type == "cuda"
    wait: Callable[[], object] = torch.cuda.synchronize if on_cuda else lambda: None
    activity = ProfilerActivity.CUDA if on_cuda else ProfilerActivity.CPU
    begin = time.perf_counter()
    step()
    wait()
    calls = _calls(time.perf_counter() - begin)
    with nullcontext() if on_cuda else named(namespaces), _quiet():
        # The first use of a profiler sets it up.
        with profile(activities=[activity]):
            step()
            wait()
        with profile(activities=[activity]) as seen:
            begin = time.perf_counter()
            for _ in range(calls):
                step()
            wait()
            took = time.perf_counter() - begin
    events = [
        (str(event.key), int(event.count), _own_time(event, on_cuda))
        for event in seen.key_averages()
        if _is_kernel(event, on_cuda)
    ]
    note = (_ON_GPU if on_cuda else _ON_CPU).format(calls=calls)
    return Profile(tuple(rows_of(events, calls)), took / calls, note)


#: What launches nothing: views, and memory that is allocated.
_KEEPING = "views and allocations"
_NO_KERNEL = frozenset(
    f"aten::{name}"
    for name in (
        "alias as_strided detach empty empty_like empty_strided expand lift_fresh new_empty"
        " new_empty_strided permute reshape resolve_conj resolve_neg select slice split squeeze t transpose"
        " unsqueeze view"
    ).split()
)


def rows_of(events: Sequence[tuple[str, int, float]], calls: int) -> list[KernelRow]:
    """Rows of (kernel, launches, microseconds) over so many calls, the longest first; what launches nothing
    is one row."""
    rows = [
        KernelRow(name, kind(name), count / calls, micros * 1e-6 / calls)
        for name, count, micros in events
        if micros > 0 and name not in _NO_KERNEL
    ]
    keeping = sum(micros for name, _, micros in events if name in _NO_KERNEL)
    if keeping > 0:
        rows.append(KernelRow(_KEEPING, OTHER, 0.0, keeping * 1e-6 / calls))
    return sorted(rows, key=lambda row: (-row.seconds, row.name))


def kind(name: str) -> str:
    """GEMM, reduction, pointwise or other, by the kernel's name."""
    found = kind_of(name)
    if found != OTHER:
        return found
    if any(word in name for word in _PRODUCTS):
        return GEMM
    return POINTWISE if name.startswith(_GENERATED) else OTHER


@contextmanager
def named(namespaces: Sequence[Namespace]) -> Iterator[None]:
    """The profiler notes calls of the C++ functions in these namespaces by their names."""
    kept: list[tuple[Namespace, Mapping[str, Any]]] = []
    for names in {id(names): names for names in namespaces}.values():
        own: Mapping[str, Any] = {
            n: v for n, v in names.items() if n.startswith(_GENERATED) and callable(v)
        }
        kept.append((names, own))
        names.update({name: _noted(function, name) for name, function in own.items()})
    try:
        yield
    finally:
        for names, own in kept:
            names.update(own)


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the lines that the profiler's library writes to stderr when it starts and stops."""
    sys.stderr.flush()
    kept = os.dup(2)
    with open(os.devnull, "wb") as nowhere:  # noqa: PTH123 (a device)
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _noted(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    def run(*arguments: Any) -> Any:
        with torch.profiler.record_function(name):
            return function(*arguments)

    return run


def _calls(seconds: float) -> int:
    return max(_CALLS, min(200, round(_SECONDS / max(seconds, 1e-6))))


def _own_time(event: Any, on_cuda: bool) -> float:
    """Microseconds without those of what it calls."""
    return float(event.self_device_time_total if on_cuda else event.self_cpu_time_total)


def _is_kernel(event: Any, on_cuda: bool) -> bool:
    if on_cuda:  # not what the host does, nor the ranges that it names
        annotation = getattr(event, "is_user_annotation", False)
        return str(event.device_type.name) == "CUDA" and not annotation
    return str(event.key).startswith(("aten::", "mkldnn::", "mkl::", "onednn::", *_GENERATED))

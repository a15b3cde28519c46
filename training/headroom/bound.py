"""What bounds a variant: its kernels by kind, as profiled, beside what the cost model expects."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

#: Calls under the profiler.
_CALLS = 5
GEMM, REDUCTION, POINTWISE, OTHER = KINDS = ("GEMM", "reduction", "pointwise", "other")
#: Inductor's own kernels say what they are first, and then what ops they hold.
_TRITON = {"poi": POINTWISE, "for": POINTWISE, "red": REDUCTION, "per": REDUCTION, "tem": GEMM}
_LIBRARY = {
    GEMM: (
        "gemm",
        "cutlass",
        "cublas",
        "xmma",
        "nvjet",
        "splitk",
        "gemv",
        "dot_kernel",
        "convolve",
    ),
    REDUCTION: ("reduce", "softmax", "norm", "scan"),
    POINTWISE: ("elementwise", "fill", "copy", "memcpy", "memset", "catarray"),
}


def kind_of(kernel: str) -> str:
    """The kind of a kernel by its name. Combo kernels count as pointwise."""
    name = kernel.lower()
    if name.startswith("triton_"):
        return _TRITON.get(name.split("_")[1], OTHER)
    words = _LIBRARY.items()
    return next((kind for kind, found in words if any(word in name for word in found)), OTHER)


def profile(step: Callable[[], object], device: torch.device) -> dict[str, Any] | None:
    """Seconds and launches of one call by kind of kernel; None on a CPU, or without a profiler."""
    if device.type != "cuda":
        return None
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as torch_profile

    step()
    torch.cuda.synchronize(device)
    try:
        with torch_profile(activities=[ProfilerActivity.CUDA]) as found:
            for _ in range(_CALLS):
                step()
            torch.cuda.synchronize(device)
        events = [
            (event.key, event.count, float(event.self_device_time_total))
            for event in found.key_averages()
            # Not what the host does, nor the ranges that it names.
            if event.device_type.name == "CUDA" and not getattr(event, "is_user_annotation", False)
        ]
    except Exception:  # the profiler needs the driver's leave
        return None
    return summed(events, _CALLS)


def summed(events: list[tuple[str, int, float]], calls: int) -> dict[str, Any]:
    """Sums of (kernel, count, microseconds) by kind, a call."""
    sums = {kind: {"seconds": 0.0, "launches": 0.0} for kind in KINDS}
    for name, count, microseconds in events:
        if microseconds > 0:
            own = sums[kind_of(name)]
            own["seconds"] += microseconds * 1e-6 / calls
            own["launches"] += count / calls
    return sums


def sentence(
    seconds: float, profiled: Mapping[str, Any] | None, expected: Mapping[str, float] | None
) -> str:
    """What a call of so many seconds goes into."""
    parts = []
    if profiled:
        kernels = sum(own["seconds"] for own in profiled.values())
        shares = sorted(profiled.items(), key=lambda item: -item[1]["seconds"])
        shown = [
            f"{kind} {_us(own['seconds'])} in {own['launches']:.0f}"
            for kind, own in shares
            if own["seconds"] >= 0.02 * kernels
        ]
        between = max(0.0, seconds - kernels)
        parts.append(f"{', '.join(shown)} launches, {_us(between)} between kernels")
    if expected:
        total = sum(expected.values()) or 1.0
        largest = sorted(expected.items(), key=lambda item: -item[1])
        shown = [f"{what} {value / total:.0%}" for what, value in largest]
        parts.append(f"the cost model expects {_us(total)}: {', '.join(shown)}")
    return f"{_us(seconds)} a call; " + "; ".join(parts) if parts else f"{_us(seconds)} a call"


def _us(seconds: float) -> str:
    return f"{seconds * 1e6:.0f} us"

"""How Inductor chooses among the configurations of a kernel: on a quiet device, by what is then measured.

Inductor times the configurations of each Triton kernel when that is called for the first time. While other
processes use the device, it picks wrong ones: on an H200 default compile was up to 1.7 times slower for it
than the same code compiled again, and so every plan that was compared with it seemed faster. Here kernels
first run as their first configuration says, whereby they can be checked, and are tuned in their next call.

Even on a quiet device Inductor's timing, by events around single launches with empty caches, cannot tell
configurations of kernels of a few microseconds: two compiles of one graph then differ by up to 15 %. Timing
replays of CUDA graphs tells them, as it does the plans that are compared.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch

from passwright.scheduler.cuda_timing import replayed

#: Launches in a CUDA graph last so long together, if so many do.
_SECONDS, _MOST_LAUNCHES = 100e-6, 20
_REPLAYS = 4


@contextmanager
def tuning_put_off() -> Iterator[None]:
    """Kernels that are called in here are tuned in their first call afterwards.

    Does nothing where this torch chooses in another way, or without Triton.
    """
    tuner = _tuner()
    if tuner is None:
        yield
        return
    chosen: list[tuple[Any, list[Any]]] = []

    def first(kernel: Any, *_: Any, **__: Any) -> None:
        chosen.append((kernel, kernel.launchers))
        kernel.launchers = kernel.launchers[:1]

    tune = tuner.autotune_to_one_config
    tuner.autotune_to_one_config = first
    try:
        yield
    finally:
        tuner.autotune_to_one_config = tune
        for kernel, launchers in chosen:
            kernel.launchers = launchers
            # Newer versions of torch remember what they launched last.
            if hasattr(kernel, "_cached_launcher"):
                kernel._cached_launcher = None


@contextmanager
def timed_alone(alone: Callable[[], AbstractContextManager[None]]) -> Iterator[None]:
    """What Inductor times while it compiles, such as whether padding a product pays, it times within
    `alone()`. Does nothing without Triton."""
    timer = _timer()
    if timer is None:
        yield
        return
    theirs = timer.benchmark_gpu

    def timed(*arguments: Any, **named: Any) -> Any:
        with alone():
            return theirs(*arguments, **named)

    timer.benchmark_gpu = timed
    try:
        yield
    finally:
        del timer.benchmark_gpu


@contextmanager
def tuned_by_replays() -> Iterator[None]:
    """Kernels that are tuned in here are timed by replays of CUDA graphs, where they can be captured.

    Does nothing where this torch chooses in another way, or without Triton.
    """
    tuner, timer = _tuner(), _timer()
    if tuner is None or timer is None:
        yield
        return
    theirs, tune = timer.benchmark_gpu, tuner.autotune_to_one_config

    def timed(call: Callable[[], object], *rest: Any, **named: Any) -> float:
        try:
            return 1e3 * _seconds(call)
        except Exception:  # some copy their arguments to the CPU between calls
            torch.cuda.synchronize()
            return float(theirs(call, *rest, **named))

    def on_side_stream(kernel: Any, *args: Any, **named: Any) -> None:
        # Only what is launched on another stream than the usual one can be captured.
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            tune(kernel, *args, **named)
        torch.cuda.current_stream().wait_stream(side)

    timer.benchmark_gpu, tuner.autotune_to_one_config = timed, on_side_stream
    try:
        yield
    finally:
        del timer.benchmark_gpu
        tuner.autotune_to_one_config = tune


def _seconds(call: Callable[[], object]) -> float:
    """Of one launch, on the current stream."""
    side = torch.cuda.current_stream()
    one = replayed(call, side)
    one(1)
    launches = min(_MOST_LAUNCHES, max(1, math.ceil(_SECONDS / one(_REPLAYS) * _REPLAYS)))
    run = replayed(call, side, launches) if launches > 1 else one
    run(1)
    return min(run(_REPLAYS), run(_REPLAYS)) / (_REPLAYS * launches)


def _timer() -> Any:
    """The object of Inductor's that times calls on a GPU."""
    try:
        from torch._inductor.runtime.benchmarking import benchmarker
    except ImportError:
        return None
    return benchmarker


def _tuner() -> Any:
    """The class of Inductor's that tunes kernels."""
    try:
        from torch._inductor.runtime.triton_heuristics import CachingAutotuner
    except ImportError:
        return None
    return CachingAutotuner if hasattr(CachingAutotuner, "autotune_to_one_config") else None

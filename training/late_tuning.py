"""How Inductor chooses among the configurations of a kernel: on a quiet device, by what is then measured.

Inductor times the configurations of each Triton kernel when that is called for the first time. While other
processes use the device, it picks wrong ones: on an H200 default compile was up to 1.7 times slower for it
than the same code compiled again, and so every plan that was compared with it seemed faster. Here kernels
first run as their first configuration says, whereby they can be checked, and are tuned in their next call.

Even on a quiet device Inductor's timing, by events around single launches with empty caches, cannot tell
configurations of kernels of a few microseconds. What a kernel writes over is copied in each launch that it
times, by way of the CPU where memory was short before: 95 us around a kernel of 5 us. Default compile of
one graph, tuned anew, differed by several per cent for that. So configurations are compared as plans are:
by replays of CUDA graphs, several captures of each, in rounds, and of equals the first is taken.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch

from passwright.passes.address import digest
from passwright.scheduler.cuda_timing import PARTS, replayed

#: A replay lasts so long, if so many launches are enough for that.
_SECONDS, _MOST_LAUNCHES = 150e-6, 64
_TRIED = 4
#: Each configuration's captures are replayed once in each round, and its quickest replay counts: what
#: disturbs a device comes in bursts of a millisecond or two, and only ever makes it slower.
_ROUNDS = 5
#: A configuration that is no slower than this does as well as the quickest. Most launches take about two
#: microseconds, of which the quickest of four captures is known to about so much.
_EQUAL = 1.03
#: A device that had nothing to do is slow at first: it works for so many seconds before a single call is
#: timed.
_WARM_SECONDS = 0.03


#: Of kernels, told by what `_what` says: seconds of each configuration.
Known = dict[str, list[float]]


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
    """What Inductor times while it compiles, such as whether padding a product pays, is timed within
    `alone()`, and by replays where it can be captured. Does nothing without Triton."""
    timer = _timer()
    if timer is None:
        yield
        return
    theirs = timer.benchmark_gpu

    def timed(call: Callable[[], object], *arguments: Any, **named: Any) -> Any:
        with alone():
            try:
                with _side_stream():
                    (seconds,) = compared([_warmed(_launches(call))])
            except Exception:
                torch.cuda.synchronize()
                return theirs(call, *arguments, **named)
            return 1e3 * seconds

    with _patched(timer, timed):
        yield


class Noted:
    """What Inductor notes about products, in place of its file."""

    def __init__(self) -> None:
        self._values: dict[tuple[str, ...], Any] = {}

    def lookup(self, *keys: str) -> Any:
        return self._values.get(keys)

    def set_value(self, *keys: str, value: Any) -> None:
        self._values[keys] = value


@contextmanager
def padded_alike(noted: Noted) -> Iterator[None]:
    """Whether padding a product pays is decided once, for all compiles with the same notes.

    Inductor decides by timing, which near its threshold falls now on one side and now on the other, and
    what it notes in its cache others write over. Two plans would differ by it that are not different there.
    """
    pad_mm: Any
    try:
        from torch._inductor.fx_passes import pad_mm
    except ImportError:
        yield
        return
    theirs = getattr(pad_mm, "get_pad_cache", None)
    pad_mm.get_pad_cache = lambda: noted
    try:
        yield
    finally:
        pad_mm.get_pad_cache = theirs


@contextmanager
def tuned_by_replays(known: Known | None = None) -> Iterator[None]:
    """Kernels that are tuned in here are timed by replays of CUDA graphs, where they can be captured.

    What is `known` of a kernel is not timed again: plans of one model share most kernels. Does nothing
    where this torch chooses in another way, or without Triton.
    """
    tuner, timer = _tuner(), _timer()
    if tuner is None or timer is None:
        yield
        return
    tune = tuner.autotune_to_one_config
    remembered = {} if known is None else known

    def by_replays(kernel: Any, *args: Any, **named: Any) -> None:
        key = _what(kernel, args, named)
        with _side_stream():
            found = remembered.get(key) or _times(kernel, args, named, timer)
            if not found:
                tune(kernel, *args, **named)
                return
            if key:
                remembered[key] = found
            rest = iter(found)
            # So Inductor keeps its books on what it takes for its own figures.
            with _patched(timer, lambda *_, **__: 1e3 * next(rest, math.inf)):
                tune(kernel, *args, **named)

    tuner.autotune_to_one_config = by_replays
    try:
        yield
    finally:
        tuner.autotune_to_one_config = tune


def _times(kernel: Any, args: Sequence[Any], named: Mapping[str, Any], timer: Any) -> list[float]:
    """Seconds of each configuration that Inductor would time; none where one cannot be captured."""
    runs = _captured(kernel, args, named, timer)
    if runs is None:
        return []
    try:
        return compared(runs)
    finally:
        runs.clear()  # Inductor may unload what loses


def _what(kernel: Any, args: Sequence[Any], named: Mapping[str, Any]) -> str:
    """What decides how long the configurations of a kernel take: its code, whatever its name, and what it
    is called with. Empty where this torch or Triton does not tell."""
    try:
        code = str(kernel.fn.src).replace(kernel.fn.__name__, "")
        tried = [str(launcher.config) for launcher in kernel.launchers]
        facts = (kernel.size_hints, kernel.triton_meta, kernel.mutated_arg_names)
    except AttributeError:
        return ""
    given = [_given(value) for value in (*args, *named.values())]
    return digest(code, tried, facts, sorted(named), given)


def _given(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{value.dtype}{tuple(value.shape)}{value.stride()}"
    return str(value) if isinstance(value, (int, float, bool, str)) else type(value).__name__


def compared(runs: Sequence[Callable[[], float]]) -> list[float]:
    """Seconds of each, of the quickest of many rounds. What is as quick as the quickest but for noise has
    its figure exactly, so that the first of them is the choice, and the same in every compile."""
    best = [math.inf] * len(runs)
    for _ in range(_ROUNDS):
        best = [min(so_far, run()) for so_far, run in zip(best, runs, strict=True)]
    quickest = min(best, default=0.0)
    return [quickest if seconds <= _EQUAL * quickest else seconds for seconds in best]


def _captured(
    kernel: Any, args: Sequence[Any], named: Mapping[str, Any], timer: Any
) -> list[Callable[[], float]] | None:
    """What gives the seconds of one launch, for each configuration that Inductor would time; None where
    one cannot be captured."""
    runs: list[Callable[[], float]] = []
    failed: list[Exception] = []

    def capture(call: Callable[[], object], *_: Any, **__: Any) -> float:
        try:
            runs.append(_launches(call))
        except Exception as error:
            failed.append(error)
        return 0.0

    with _patched(timer, capture), _copied_once(kernel, args, named):
        for launcher in kernel.launchers:
            kernel.bench(launcher, *args, **named)
    if failed:
        torch.cuda.synchronize()
        return None
    return runs


@contextmanager
def _copied_once(kernel: Any, args: Sequence[Any], named: Mapping[str, Any]) -> Iterator[None]:
    """What the kernel writes over is copied before its launches are timed, not in each of them, and on the
    device.

    Inductor copies it by way of the CPU, in each launch, if a copy would not fit into the most memory that
    was used so far: all of it, once that figure was reset.
    """
    if not hasattr(kernel, "maybe_clone_args"):
        yield
        return
    kernel.copy_args_to_cpu_if_needed = lambda *_, **__: {}
    # What has to be zero before each launch must not be what was copied.
    if not kernel.reset_to_zero_arg_names:
        copies = kernel.maybe_clone_args((), *args, **named)
        kernel.maybe_clone_args = lambda *_, **__: copies
    try:
        yield
    finally:
        for name in ("copy_args_to_cpu_if_needed", "maybe_clone_args"):
            vars(kernel).pop(name, None)


@contextmanager
def _side_stream() -> Iterator[None]:
    """Only what is launched on another stream than the usual one can be captured."""
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        yield
    torch.cuda.current_stream().wait_stream(side)


def _launches(call: Callable[[], object]) -> Callable[[], float]:
    """Replays of several launches on the current stream."""
    side = torch.cuda.current_stream()
    one = replayed(call, side)
    one(1)
    count = min(_MOST_LAUNCHES, max(1, math.ceil(_SECONDS / one(_TRIED) * _TRIED)))
    run = replayed(call, side, count, captures=PARTS)
    run(PARTS)
    return lambda: run(PARTS) / (PARTS * count)


def _warmed(run: Callable[[], float]) -> Callable[[], float]:
    until = time.perf_counter() + _WARM_SECONDS
    while time.perf_counter() < until:
        run()
    return run


@contextmanager
def _patched(timer: Any, timed: Callable[..., float]) -> Iterator[None]:
    """Inductor is told these milliseconds in place of what it would measure."""
    before = vars(timer).get("benchmark_gpu")
    timer.benchmark_gpu = timed
    try:
        yield
    finally:
        if before is None:
            del timer.benchmark_gpu
        else:
            timer.benchmark_gpu = before


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

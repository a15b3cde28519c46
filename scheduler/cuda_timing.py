"""Time on a CUDA device: replays of a captured graph, or events around eager launches."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence

import torch

#: Seconds that so many calls take.
Run = Callable[[int], float]

#: Calls on the capturing stream before a CUDA graph is captured.
_WARM_UP = 3
#: A replay lasts about so many seconds at least, by holding several calls, so many at most: the device
#: runs shorter ones faster than a busy CPU launches them, and the CPU's noise would be measured.
_REPLAY_SECONDS, _MOST_CALLS = 200e-6, 64
#: Replays whose time says how many calls that is.
_TRIED = 4
#: A block is timed in so many parts, and the quickest counts: what disturbs a device (another process's
#: turn on it, a CPU that launches late) comes in bursts and only ever makes it slower. Each part replays a
#: capture of its own, for captures of one function differ for as long as they live: those of short kernels
#: on an H200 by up to several per cent.
PARTS = 4


def device_runs(
    variants: Mapping[str, Callable[[], object]],
) -> tuple[str, dict[str, Run], tuple[str, ...]]:
    """Method, device times of all variants, and notes: CUDA graphs for all, or events for all."""
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    captures: dict[str, list[Callable[[], object]]] = {}
    calls = 1
    for name, variant in variants.items():
        try:
            captures[name] = [_capture(variant, side)]
            run = _device_time(captures[name])
            run(1)
            calls = max(calls, math.ceil(_REPLAY_SECONDS / (run(_TRIED) / _TRIED)))
            calls = min(calls, _MOST_CALLS)
        except Exception as error:
            note = f"timed by events, for {name!r} cannot be captured: {reason(error)}"
            return "cuda-event", {n: _device_time([v]) for n, v in variants.items()}, (note,)
    if calls > 1:  # as many for all, so that all bear the same share of a launch
        captures.clear()
        for name, variant in variants.items():
            captures[name] = [_capture(variant, side, calls)]
    _capture_again(captures, variants, side, calls)
    return (
        "cuda-graph",
        {name: _of_several(_device_time(graphs), calls) for name, graphs in captures.items()},
        (),
    )


def _capture_again(
    captures: Mapping[str, list[Callable[[], object]]],
    variants: Mapping[str, Callable[[], object]],
    side: torch.cuda.Stream,
    calls: int,
) -> None:
    """A capture for each part of a block; fewer, but as many for all, where memory does not suffice."""
    for _ in range(PARTS - 1):
        try:
            more = [_capture(variants[name], side, calls, warm_up=0) for name in captures]
        except Exception:
            return
        for graphs, graph in zip(captures.values(), more, strict=True):
            graphs.append(graph)


def replayed(
    variant: Callable[[], object], side: torch.cuda.Stream, calls: int = 1, captures: int = 1
) -> Run:
    """Device time of replays, each of so many calls, from the quickest of so many captures (a run of fewer
    replays has fewer). Raises what capturing raises."""
    graphs = [_capture(variant, side, calls)]
    graphs += [_capture(variant, side, calls, warm_up=0) for _ in range(captures - 1)]
    return _device_time(graphs)


def _of_several(run: Run, calls: int) -> Run:
    """Seconds of calls, from those of replays that hold so many each."""

    def seconds(wanted: int) -> float:
        replays = max(1, round(wanted / calls))
        return run(replays) * wanted / (replays * calls)

    return seconds


def _capture(
    variant: Callable[[], object],
    side: torch.cuda.Stream,
    calls: int = 1,
    warm_up: int = _WARM_UP,
) -> Callable[[], object]:
    """So many calls as a replayed CUDA graph; what the last returned is kept alive with the graph."""
    graph = torch.cuda.CUDAGraph()
    generator = torch.cuda.default_generators[torch.cuda.current_device()]
    side.wait_stream(torch.cuda.current_stream())
    # A capture that fails leaves its stream current; the outer context sets that right.
    with torch.cuda.stream(side):
        for _ in range(warm_up):
            variant()
        outside = generator.clone_state()
        try:
            with torch.cuda.graph(graph, stream=side, capture_error_mode="thread_local"):
                for _ in range(calls):
                    kept = variant()
        except Exception:
            # It also leaves the random generator in the state of a capture, in which it refuses.
            generator.graphsafe_set_state(outside)
            raise
    torch.cuda.current_stream().wait_stream(side)

    def replay() -> object:
        graph.replay()
        return kept

    return replay


def _device_time(variants: Sequence[Callable[[], object]]) -> Run:
    """Time on the device between events around the calls, from the quickest part of them. Parts call one
    after the other of what does the same."""
    ring = itertools.cycle(variants)

    def run(calls: int) -> float:
        parts = _parts(calls)
        events = [torch.cuda.Event(enable_timing=True) for _ in range(len(parts) + 1)]  # type: ignore[no-untyped-call]
        torch.cuda.synchronize()
        events[0].record()
        for part, after in zip(parts, events[1:], strict=True):
            variant = next(ring)
            for _ in range(part):
                variant()
            after.record()
        events[-1].synchronize()
        spans = zip(parts, itertools.pairwise(events), strict=True)
        return calls * min(float(a.elapsed_time(b)) * 1e-3 / part for part, (a, b) in spans)

    return run


def _parts(calls: int) -> list[int]:
    """Calls of each part: as even as can be, and one call at least."""
    count = min(PARTS, calls)
    return [calls * (n + 1) // count - calls * n // count for n in range(count)]


def reason(error: Exception) -> str:
    """The error's kind and first line."""
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0]}" if text else type(error).__name__

"""Time on a CUDA device: replays of a captured graph, or events around eager launches."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

#: Seconds that so many calls take.
Run = Callable[[int], float]

#: Calls on the capturing stream before a CUDA graph is captured.
_WARM_UP = 3


def device_runs(
    variants: Mapping[str, Callable[[], object]],
) -> tuple[str, dict[str, Run], tuple[str, ...]]:
    """Method, device times of all variants, and notes: CUDA graphs for all, or events for all."""
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    replays: dict[str, Callable[[], object]] = {}
    for name, variant in variants.items():
        try:
            replays[name] = _capture(variant, side)
        except Exception as error:
            note = f"timed by events, for {name!r} cannot be captured: {reason(error)}"
            return "cuda-event", {n: _device_time(v) for n, v in variants.items()}, (note,)
    return "cuda-graph", {name: _device_time(replay) for name, replay in replays.items()}, ()


def _capture(variant: Callable[[], object], side: torch.cuda.Stream) -> Callable[[], object]:
    """The variant as a replayed CUDA graph; what it returned is kept alive with the graph."""
    graph = torch.cuda.CUDAGraph()
    generator = torch.cuda.default_generators[torch.cuda.current_device()]
    side.wait_stream(torch.cuda.current_stream())
    # A capture that fails leaves its stream current; the outer context sets that right.
    with torch.cuda.stream(side):
        for _ in range(_WARM_UP):
            variant()
        outside = generator.clone_state()
        try:
            with torch.cuda.graph(graph, stream=side, capture_error_mode="thread_local"):
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


def _device_time(variant: Callable[[], object]) -> Run:
    """Time on the device between events before and after the calls."""

    def run(calls: int) -> float:
        begin = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        end = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        torch.cuda.synchronize()
        begin.record()
        for _ in range(calls):
            variant()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) * 1e-3

    return run


def reason(error: Exception) -> str:
    """The error's kind and first line."""
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0]}" if text else type(error).__name__

"""A model compiled in several ways, measured against each other in one process.

A way is a set of options of `torch.compile`: with `backend` among them, of that backend.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from passwright.scheduler.inductor import cold_cache
from passwright.scheduler.timing import compare, peak_memory
from passwright.training.bench_final import Judge
from passwright.training.bench_worker import Model

if TYPE_CHECKING:
    from torch import fx

_BLOCKS = 20
#: Settings with which Inductor runs kernels on the device while it compiles.
_MEASURING = ("max_autotune", "benchmark_", "coordinate_descent")
#: A variant that is slower by more than this is not measured to the end.
_HOPELESS = 10.0


def measured(
    model: Model,
    variants: Mapping[str, Mapping[str, Any]],
    *,
    baseline: str,
    only_check: bool,
    cold: Path | None = None,
) -> dict[str, Any]:
    """Compiles every variant and looks whether it is right; unless `only_check`, measures them too.

    With `cold`, a directory, each compiles in empty caches there, so that compile times can be compared.
    One that does not compile is left out with the reason. Raises what the baseline raises.
    """

    judge = Judge(model)
    described: dict[str, dict[str, Any]] = {}
    runs: dict[str, Any] = {}
    if cold:
        # The first compile of a model pays for what no other does.
        with cold_cache(cold):
            _compiled(model, variants[baseline])
    for name, options in variants.items():
        try:
            with cold_cache(cold) if cold else nullcontext():
                run, described[name] = _compiled(model, options)
            with model.lock.shared():
                described[name]["agreement"] = judge.observed_verdict(run)
            runs[name] = run
        except Exception as error:
            if name == baseline:
                raise
            described[name] = {"why": f"{type(error).__name__}: {str(error)[:500]}"}
    found: dict[str, Any] = {"variants": described}
    if only_check:
        return found
    steps = {name: model.subject.step(run) for name, run in runs.items()}
    with model.lock.alone():
        for name, step in steps.items():
            described[name]["peak_bytes"] = peak_memory(step, model.device)
        comparison = compare(
            steps,
            baseline=baseline,
            device=model.device,
            blocks=_BLOCKS,
            time_limit=model.task.final_seconds,
            seed=model.task.seed,
            timeout_factor=_HOPELESS,
            wall=False,
        )
    return {**found, "measured": json.loads(comparison.to_json())}


def _compiled(model: Model, options: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """What was compiled, and its plans, kernels and seconds."""
    import torch

    from passwright.scheduler.backend import passwright
    from passwright.scheduler.inductor import (
        capture_kernels,
        compile_with_inductor,
        eager_backward,
    )
    from passwright.scheduler.optimize import collect_plans

    options = dict(options)
    ours = options.pop("backend", "") == "passwright"

    def backend(gm: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        # Leaves the device to whoever measures while this compiles.
        with model.compiling(measures=any(name.startswith(_MEASURING) for name in options)):
            compiled = passwright(gm, inputs, options=options) if ours else stock(gm, inputs)
        return model.guarded(compiled)

    def stock(gm: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        return compile_with_inductor(gm, inputs, options=options)

    torch.set_float32_matmul_precision(model.task.precision)
    run = torch.compile(model.subject.module, backend=backend)
    begin = time.perf_counter()
    with eager_backward(), capture_kernels() as kernels, collect_plans() as plans:
        model.subject.step(run)()
        if model.device.type == "cuda":
            torch.cuda.synchronize()
    model.lock.release()
    own = "loops" if model.device.type == "cpu" else "fused"
    return run, {
        "compile_seconds": round(time.perf_counter() - begin, 2),
        "kernels": sum(graph.extern + getattr(graph, own) for graph in kernels),
        "plans": [
            {
                "level": applied.plan.level,
                "steps": [step.label for step in applied.plan.steps],
                "predicted": asdict(applied.plan.predicted),
                "ops": [applied.plan.ops_before, applied.plan.ops_after],
                "seconds": round(applied.seconds, 3),
            }
            for applied in plans
        ],
    }

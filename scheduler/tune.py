"""Tune mode: measure the predicted plans against plain Inductor and keep what is faster.

Never slower than doing nothing, by construction: doing nothing is one of the variants, and another
is kept only if its measured interval lies wholly above zero.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import fx

from passwright.passes.address import digest
from passwright.passes.graph import GraphView
from passwright.passes.verify import sample_inputs
from passwright.scheduler.device import describe
from passwright.scheduler.gain import Interval
from passwright.scheduler.inductor import clone_for_compile, eager_backward
from passwright.scheduler.optimize import Applied, Scheduler, device_of, is_training, report
from passwright.scheduler.plan import Plan
from passwright.scheduler.timing import Comparison, compare, graph_step

log = logging.getLogger(__name__)

DEFAULT = "default"
#: Variants to measure: the plan as predicted, and one that also takes what is merely likely.
_BOLD = -0.05


@dataclass
class Variant:
    """One way to compile the graph."""

    name: str
    plan: Plan
    compiled: Callable[..., Any]


@dataclass(frozen=True)
class Tuned:
    """What tuning one graph found; `comparison` is None where no plan differed from default."""

    variants: tuple[Variant, ...]
    best: Variant
    comparison: Comparison | None
    #: Where the winner's plan is kept.
    path: Path


def tune_graph(
    scheduler: Scheduler,
    gm: fx.GraphModule,
    example_inputs: Sequence[Any],
    compile_module: Callable[[fx.GraphModule], Callable[..., Any]],
    *,
    again: bool = False,
    observe: Callable[[Tuned], None] | None = None,
) -> Callable[..., Any]:
    """Compiles the variants, measures them on random inputs, stores and returns the fastest.

    A graph that was tuned before is not measured again unless `again`. `observe` is told what was
    found.
    """
    view = GraphView(gm.graph)
    device = describe(device_of(view))
    training = is_training(gm.graph)
    key = digest(view.fingerprint, training, scheduler.context(device))
    stored = scheduler.store.load(key)
    if stored is not None and stored.origin == "measured" and not again:
        rewritten, _ = scheduler.optimize(gm, example_inputs)
        return compile_module(rewritten)
    start = time.perf_counter()
    # A backward that compiles when it first runs, as they usually do, would clash with the compile
    # that we are in the middle of, or wait for it for ever in a GPU's thread.
    with eager_backward():
        variants = _variants(scheduler, gm, example_inputs, compile_module)
    best, comparison = variants[0], None
    if len(variants) > 1:
        comparison = measure(variants, gm, example_inputs, training, scheduler)
        best = _winner(variants, comparison)
    scheduler.store.save(key, best.plan)
    path = scheduler.store.path(key)
    report(Applied(best.plan, path, stored=False, seconds=time.perf_counter() - start))
    if observe is not None:
        observe(Tuned(tuple(variants), best, comparison, path))
    return best.compiled


def _variants(
    scheduler: Scheduler,
    gm: fx.GraphModule,
    example_inputs: Sequence[Any],
    compile_module: Callable[[fx.GraphModule], Callable[..., Any]],
) -> list[Variant]:
    """Doing nothing first; then every different plan that compiles."""
    ops = sum(node.op not in ("placeholder", "output", "get_attr") for node in gm.graph.nodes)
    nothing = Plan(
        GraphView(gm.graph).fingerprint,
        training=is_training(gm.graph),
        ops_before=ops,
        ops_after=ops,
        stopped="default is faster",
        origin="measured",
    )
    found = [Variant(DEFAULT, nothing, compile_module(clone_for_compile(gm)))]
    seen: set[tuple[str, ...]] = {()}
    usual = scheduler.settings
    for name, step, plan_gain in (
        ("predicted", usual.min_gain, usual.min_plan_gain),
        ("bold", _BOLD, _BOLD),
    ):
        settings = replace(usual, mode="predict", min_gain=step, min_plan_gain=plan_gain)
        rewritten, plan = replace(scheduler, settings=settings).optimize(gm, example_inputs)
        labels = tuple(step.label for step in plan.steps) if plan else ()
        if plan is None or labels in seen:
            continue
        seen.add(labels)
        try:
            found.append(Variant(name, plan, compile_module(rewritten)))
        except Exception as error:
            log.warning(
                "variant %r does not compile and is left out: %s; rerun with TORCH_LOGS=+passwright"
                " for the traceback",
                name,
                error,
            )
            log.debug("traceback", exc_info=True)
    return found


def measure(
    variants: Sequence[Variant],
    gm: fx.GraphModule,
    example_inputs: Sequence[Any],
    training: bool,
    scheduler: Scheduler,
) -> Comparison:
    """Interleaved runs of all variants on one set of inputs that is nobody's but ours."""
    settings = scheduler.settings
    inputs = sample_inputs(gm, example_inputs)
    steps = {v.name: graph_step(v.compiled, inputs, training=training) for v in variants}
    tensors = [value for value in inputs if isinstance(value, torch.Tensor)]
    device = tensors[0].device if tensors else torch.device("cpu")

    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        return compare(
            steps,
            baseline=DEFAULT,
            device=device,
            time_limit=settings.tune_seconds,
            seed=settings.seed,
        )


def _winner(variants: Sequence[Variant], comparison: Comparison) -> Variant:
    """The variant with the best lower bound, if that is above default; its plan says what was
    measured."""
    best, bound = variants[0], 0.0
    for variant in variants[1:]:
        gain = comparison.gains.get(variant.name)
        if gain is not None and gain.lower > bound:
            best, bound = variant, gain.lower
            measured = Interval(gain.median, gain.lower, gain.upper)
            best.plan = replace(variant.plan, origin="measured", measured=measured)
    return best

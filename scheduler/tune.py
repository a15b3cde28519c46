"""Tune mode: measure the predicted plans against plain Inductor and keep what is faster.

Never slower than doing nothing, by construction: doing nothing is one of the variants, and another
is kept only if its measured interval lies wholly above zero.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import fx

from passwright.passes.address import digest
from passwright.passes.graph import GraphView
from passwright.passes.verify import sample_inputs
from passwright.scheduler.allowance import ROUND, Allowance
from passwright.scheduler.choices import UNKNOWN, worth_measuring
from passwright.scheduler.compiler import Compiler
from passwright.scheduler.device import describe
from passwright.scheduler.gain import Interval
from passwright.scheduler.inductor import clone_for_compile, eager_backward
from passwright.scheduler.optimize import Applied, Scheduler, device_of, is_training, report
from passwright.scheduler.plan import Plan
from passwright.scheduler.store import PlanStore
from passwright.scheduler.timing import Comparison, compare, graph_step

log = logging.getLogger(__name__)

DEFAULT = "default"
#: Variants to measure: the plan as predicted, and one that also takes what is merely likely.
_BOLD = -0.05
#: Calls of each variant in the shortest comparison: the first one, those that say how long a call takes,
#: and one round, on a GPU by device time and by wall time.
_CALLS = 8
_NO_TIME = "no time to measure a plan"


class Forgetful(PlanStore):
    """A store that knows nothing and keeps nothing."""

    def load(self, key: str) -> Plan | None:
        return None

    def save(self, key: str, plan: Plan) -> Path | None:
        return None


@dataclass
class Variant:
    """One way to compile the graph."""

    name: str
    plan: Plan
    compiled: Callable[..., Any]


@dataclass(frozen=True)
class Tuned:
    """What tuning one graph found; `comparison` is None where no plan differed from default, or none was
    begun."""

    variants: tuple[Variant, ...]
    best: Variant
    comparison: Comparison | None
    #: Where the winner's plan is kept.
    path: Path
    #: Variants that were not begun, since they might not have been measured by the deadline.
    left_out: tuple[str, ...] = ()

    @property
    def kept(self) -> bool:
        """Whether the winner is used from now on: not where there was no time to compare it with any."""
        return self.comparison is not None or not self.left_out


def tune_graph(
    compiler: Compiler,
    gm: fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    again: bool = False,
    proposals: Sequence[Plan] = (),
    deadline: float = math.inf,
    observe: Callable[[Tuned], None] | None = None,
) -> Callable[..., Any]:
    """Compiles the variants, measures them on random inputs, stores and returns the fastest.

    Plans come first, those of `proposals` that are for this graph before others; then settings of Inductor
    are tried on top of the fastest of them. A graph that was tuned before is not measured again unless
    `again`. `observe` is told what was found.

    Default compile is made in any case. No other variant is begun that may not be planned, compiled and
    measured by `deadline` (by `time.monotonic`), to judge by the slowest so far; where that holds for all,
    nothing is kept. So the deadline is overrun by what the last variant takes beyond that, and by no more
    than default compile where the time is up before.
    """
    scheduler = compiler.scheduler
    view = GraphView(gm.graph)
    device = describe(device_of(view))
    training = is_training(gm.graph)
    key = digest(view.fingerprint, training, scheduler.context(device))
    stored = scheduler.store.load(key)
    if stored is not None and stored.origin == "measured" and not again:
        rewritten, plan = compiler.plan(gm, example_inputs)
        return compiler.compile(rewritten, example_inputs, plan)
    start = time.perf_counter()
    bench = _Bench(compiler, gm, example_inputs, training, again, Allowance(deadline))
    # A backward that compiles when it first runs, as they usually do, would clash with the compile
    # that we are in the middle of, or wait for it for ever in a GPU's thread.
    with eager_backward():
        variants = bench.default()
    bench.time_step(variants[0])
    with eager_backward():
        variants += bench.proposed([p for p in proposals if p.fingerprint == view.fingerprint])
        variants += bench.predicted(unlike=variants)
    best, comparison = bench.fastest(variants)
    if best.plan.later:
        with eager_backward():
            chosen = bench.choices(best)
        if len(chosen) > 1:
            variants += chosen[1:]
            best, comparison = bench.fastest([variants[0], *chosen], unless=best)
    path = scheduler.store.path(key)
    tuned = Tuned(tuple(variants), best, comparison, path, tuple(bench.left_out))
    if tuned.kept:
        scheduler.store.save(key, best.plan)
    else:
        best.plan = replace(best.plan, origin="predicted", stopped=_NO_TIME)
    report(Applied(best.plan, path, stored=False, seconds=time.perf_counter() - start))
    if observe is not None:
        observe(tuned)
    return best.compiled


@dataclass
class _Bench:
    """One graph, and how its variants are made and measured."""

    compiler: Compiler
    gm: fx.GraphModule
    inputs: Sequence[Any]
    training: bool
    #: Plans are made anew, whatever was kept from an earlier measurement.
    again: bool = False
    allowance: Allowance = field(default_factory=Allowance)
    #: Seconds of one call of default compile, if there is a deadline.
    step: float = 0.0
    left_out: list[str] = field(default_factory=list)

    def has_room(self, name: str, made: int) -> bool:
        """Whether there is time for this variant beside so many that were made; noted if there is not."""
        if self.allowance.has_room(_CALLS * self.step * (made + 1)):
            return True
        self.left_out.append(name)
        return False

    def time_step(self, default: Variant) -> None:
        """Learns how long a call takes, so that what measuring takes can be foretold."""
        if math.isinf(self.allowance.deadline) or self.allowance.left <= 0:
            return
        try:
            steps, device = steps_of([default], self.gm, self.inputs, self.training)
            with _other_randomness(device):
                for _ in range(2):  # the first call may take longer
                    start = time.perf_counter()
                    steps[default.name]()
                    if device.type == "cuda":
                        torch.cuda.synchronize(device)
                    self.step = time.perf_counter() - start
        except Exception:  # the comparison will say so
            log.debug("default compile does not run", exc_info=True)

    def default(self) -> list[Variant]:
        """Doing nothing, and nothing else."""
        ops = sum(n.op not in ("placeholder", "output", "get_attr") for n in self.gm.graph.nodes)
        nothing = Plan(
            GraphView(self.gm.graph).fingerprint,
            training=self.training,
            ops_before=ops,
            ops_after=ops,
            stopped="default is faster",
            origin="measured",
            later=False,
        )
        with self.allowance.spent():
            default = self.compiler.default(clone_for_compile(self.gm), self.inputs)
        return [Variant(DEFAULT, nothing, default)]

    def predicted(self, unlike: Sequence[Variant]) -> list[Variant]:
        """Every plan of the gain model that compiles and differs from those."""
        found: list[Variant] = []
        scheduler = self.compiler.scheduler
        usual = scheduler.settings
        seen = {_labels(variant.plan) for variant in unlike[1:]}
        for name, step, plan_gain in (
            ("predicted", usual.min_gain, usual.min_plan_gain),
            ("bold", _BOLD, _BOLD),
        ):
            if not self.has_room(name, len(unlike) + len(found)):
                continue
            settings = replace(usual, mode="predict", min_gain=step, min_plan_gain=plan_gain)
            planning = replace(scheduler, settings=settings)
            if self.again:
                planning = replace(planning, store=Forgetful(scheduler.store.directory))
            planner = replace(self.compiler, scheduler=planning)
            with self.allowance.spent():
                rewritten, plan = planner.plan(self.gm, self.inputs)
                labels = _labels(plan) if plan else ()
                if plan is not None and labels not in seen and (labels or usual.levels != "torch"):
                    seen.add(labels)
                    found += self._compiled(name, rewritten, plan)
        return found

    def proposed(self, plans: Sequence[Plan]) -> list[Variant]:
        """Plans from elsewhere, replayed on the graph."""
        found: list[Variant] = []
        for number, plan in enumerate(plans, 1):
            if not self.has_room(name := f"searched {number}", 1 + len(found)):
                continue
            scheduler = replace(self.compiler.scheduler, given=plan)
            with self.allowance.spent():
                module, replayed = replace(self.compiler, scheduler=scheduler).plan(
                    self.gm, self.inputs
                )
                if replayed is not None and replayed.steps:
                    found += self._compiled(name, module, replayed)
        return found

    def choices(self, best: Variant) -> list[Variant]:
        """The fastest plan, and the same with one more setting of Inductor each."""
        compiler = self.compiler
        settings = compiler.scheduler.settings
        device = describe(device_of(GraphView(self.gm.graph)))
        open_ones = worth_measuring(
            compiler.scheduler.choices,
            device,
            training=self.training,
            settings=settings,
            given=compiler.given,
            taken=best.plan.settings,
        )
        # The plan is replayed for each: a compile owns its graph.
        replaying = replace(compiler, scheduler=replace(compiler.scheduler, given=best.plan))
        found = [best]
        for choice in open_ones[: settings.tune_choices]:
            if not self.has_room(name := f"{best.name} + {choice.name}", 1 + len(found)):
                continue
            plan = best.plan.replaced(steps=(*best.plan.steps, choice.step(UNKNOWN)))
            with self.allowance.spent():
                module, _ = replaying.plan(self.gm, self.inputs)
                found += self._compiled(name, module, plan)
        return found

    def _compiled(self, name: str, module: fx.GraphModule, plan: Plan) -> list[Variant]:
        """The variant, or none if it does not compile."""
        try:
            return [Variant(name, plan, self.compiler.compile(module, self.inputs, plan))]
        except Exception as error:
            log.warning(
                "variant %r does not compile and is left out: %s; rerun with TORCH_LOGS=+passwright"
                " for the traceback",
                name,
                error,
            )
            log.debug("traceback", exc_info=True)
            return []

    def fastest(
        self, variants: Sequence[Variant], *, unless: Variant | None = None
    ) -> tuple[Variant, Comparison | None]:
        """The first where no other is surely faster; nor than `unless`, if one is named."""
        if len(variants) < 2:
            return variants[0], None
        scheduler = self.compiler.scheduler
        left = self.allowance.left - self.step * len(variants)  # each is called once before
        seconds = min(scheduler.settings.tune_seconds, max(ROUND, left))
        comparison = measure(
            variants, self.gm, self.inputs, self.training, scheduler, seconds=seconds
        )
        return _winner(variants, comparison, unless), comparison


def measure(
    variants: Sequence[Variant],
    gm: fx.GraphModule,
    example_inputs: Sequence[Any],
    training: bool,
    scheduler: Scheduler,
    *,
    seconds: float,
) -> Comparison:
    """Interleaved runs of all variants on one set of inputs that is nobody's but ours, for so many seconds
    at most."""
    settings = scheduler.settings
    steps, device = steps_of(variants, gm, example_inputs, training)
    with _other_randomness(device):
        return compare(
            steps,
            baseline=DEFAULT,
            device=device,
            time_limit=seconds,
            seed=settings.seed,
        )


def steps_of(
    variants: Sequence[Variant], gm: fx.GraphModule, example_inputs: Sequence[Any], training: bool
) -> tuple[dict[str, Callable[[], object]], torch.device]:
    """A step of each variant by name, on random inputs that they share, and the device of these."""
    inputs = sample_inputs(gm, example_inputs)
    tensors = [value for value in inputs if isinstance(value, torch.Tensor)]
    device = tensors[0].device if tensors else torch.device("cpu")
    return {v.name: graph_step(v.compiled, inputs, training=training) for v in variants}, device


def _other_randomness(device: torch.device) -> AbstractContextManager[None]:
    """What is drawn inside is nobody's outside."""
    return torch.random.fork_rng(devices=[device] if device.type == "cuda" else [])


def _labels(plan: Plan) -> tuple[str, ...]:
    return tuple(step.label for step in plan.steps)


def _winner(
    variants: Sequence[Variant], comparison: Comparison, unless: Variant | None = None
) -> Variant:
    """The variant with the best lower bound, if that is above default (and above all that `unless` may
    gain); its plan says what was measured."""
    gains = comparison.gains
    # A gain within the noise of the run is none.
    floor = comparison.floor if math.isfinite(comparison.floor) else 0.0
    best, bound = variants[0], 0.0
    if unless is not None and unless.name in gains and gains[unless.name].lower > 0:
        best, bound = unless, gains[unless.name].upper
    for variant in variants[1:]:
        gain = gains.get(variant.name)
        if gain is not None and gain.lower > bound and gain.median > floor:
            best, bound = variant, gain.lower
    if best.name in gains:
        found = gains[best.name]
        measured = Interval(found.median, found.lower, found.upper)
        best.plan = replace(best.plan, origin="measured", measured=measured)
    return best

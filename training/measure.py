"""Measures plans of one model against default compile of it, so that the figures can be trusted as labels.

    records = measure(module, inputs, plans, device)

Each plan is compiled, compared with eager and a float64 run, and then timed in blocks that are interleaved
with those of default compile, all in this process. What Inductor makes the same code of needs no timing and
gains exactly nothing. What fails becomes a censored record with the reason.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from passwright.passes.graph import GraphView
from passwright.scheduler.commands.models import Subject
from passwright.scheduler.comparison import Comparison
from passwright.scheduler.inductor import (
    cold_cache,
    compile_with_inductor,
    eager_backward,
)
from passwright.scheduler.kernel_counts import capture_kernels
from passwright.scheduler.plan import Plan
from passwright.training.device_lock import OwnDevice, Turns
from passwright.training.late_tuning import (
    Known,
    Noted,
    padded_alike,
    timed_alone,
    tuned_by_replays,
)
from passwright.training.model_plan import NOTHING, ModelPlan, applied
from passwright.training.plan_text import graphs_key
from passwright.training.recording import DEFAULT, About, record_of
from passwright.training.records import Record
from passwright.training.variants import Facts, Maker, Variants

if TYPE_CHECKING:
    from torch import fx

#: Blocks of each comparison, at most, and how long they are.
_BLOCKS, _BLOCK_SECONDS = 15, 0.02
#: On a GPU the quickest part of a block counts, so that neither more nor longer ones would tell more: what
#: compiles of one graph differ by is several times what is left.
_GPU_BLOCKS, _GPU_BLOCK_SECONDS = 10, 0.005
#: Where default compile is too far from a float64 run, a plan may be so many times as far.
_LENIENCY = 2.0


def measure(
    module: nn.Module,
    inputs: Any,
    plans: Sequence[ModelPlan | Plan],
    device: torch.device,
    *,
    train: bool = False,
    about: About | None = None,
    seconds: float | None = None,
    timeout_factor: float = 2.0,
    lock: Turns | None = None,
    note: Callable[[str], None] = lambda _: None,
    known: Known | None = None,
) -> list[Record]:
    """A record for each plan, in their order (`Measuring.records`).

    Module and inputs are on the device; `lock` keeps others from it meanwhile. Raises what default compile
    raises.
    """
    on = Measuring(
        module, inputs, device, train=train, about=about, lock=lock, note=note, known=known
    )
    return on.records(plans, seconds=seconds, timeout_factor=timeout_factor)


class Measuring:
    """One model that plans are measured on; its default compile stands, and serves for all of them.

    Between two calls nobody may reset Dynamo, or all would be compiled anew in the middle of timing. What
    is compiled stays with Dynamo until that is reset: after some tens of plans, whoever measures many
    should do that, and begin with a new object.

    `note` is told the key of the plan that is being compiled and checked ("default" for none), and "" while
    timing. `known` keeps how kernels were tuned, for other models and objects.
    """

    def __init__(
        self,
        module: nn.Module,
        inputs: Any,
        device: torch.device,
        *,
        train: bool = False,
        about: About | None = None,
        lock: Turns | None = None,
        note: Callable[[str], None] = lambda _: None,
        known: Known | None = None,
    ) -> None:
        self.about = about or About()
        self._device, self._lock = device, lock or OwnDevice()
        self._subject = Subject(self.about.workload, module, inputs, train)
        self._note = note
        self._known: Known = {} if known is None else known
        self._noted = Noted()
        self._made: Variants | None = None

    def records(
        self,
        plans: Sequence[ModelPlan | Plan],
        *,
        seconds: float | None = None,
        timeout_factor: float = 2.0,
    ) -> list[Record]:
        """A record for each plan, in their order.

        Doing nothing, where it is among the plans, is compiled a second time from the start and its kernels
        are tuned anew, so that its record shows how far two compiles of one graph differ. `seconds` is the
        longest that timing takes, beside one round of all plans; what takes `timeout_factor` times as long
        as default compile is censored. Raises what default compile raises.
        """
        wanted = [plan if isinstance(plan, ModelPlan) else ModelPlan((plan,)) for plan in plans]
        named = {f"{number}": plan for number, plan in enumerate(wanted)}
        made = self._compiled(named)
        try:
            self._judged(made, named)
            self._note("")
            comparison = self._compared(made, named, seconds, timeout_factor)
            how = (self.about, self._subject.train, self._device)
            return [
                record_of(
                    plan, made.described[name], made.described[DEFAULT], comparison, name, *how
                )
                for name, plan in named.items()
            ]
        finally:
            made.drop(named)

    def _compiled(self, named: Mapping[str, ModelPlan]) -> Variants:
        """Default compile, unless it stands already, and the plans."""
        with (
            tempfile.TemporaryDirectory(prefix="passwright-", ignore_cleanup_errors=True) as place,
            padded_alike(self._noted),
        ):
            compiler = _Compiler(self._subject, self._device, self._lock, Path(place), self._note)
            if self._made is None:
                nothing = ModelPlan(key=DEFAULT)
                self._made = Variants(
                    self._subject,
                    {DEFAULT: lambda: compiler.made(nothing, cold=False)},
                    baseline=DEFAULT,
                    device=self._device,
                    lock=self._lock,
                    seed=self.about.seed,
                )
            self._made.add({name: compiler.maker(plan) for name, plan in named.items()})
        return self._made

    @staticmethod
    def _judged(made: Variants, named: Mapping[str, ModelPlan]) -> None:
        """Says of each plan whether it is the same code, or wrong; what is one of both is not timed."""
        default = made.described[DEFAULT]
        for name, plan in named.items():
            facts = made.described[name]
            if "why" not in facts:
                facts["same"] = plan.by != NOTHING and facts["codes"] == default["codes"]
                if not _is_right(facts["agreement"], default["agreement"]):
                    facts["why"] = f"wrong: {facts['agreement']['sentence']}"
            if "why" in facts or facts["same"]:
                made.steps.pop(name, None)

    def _compared(
        self,
        made: Variants,
        named: Mapping[str, ModelPlan],
        seconds: float | None,
        timeout_factor: float,
    ) -> Comparison | None:
        """None where nothing is left that is to be timed."""
        if len(made.steps) < 2:
            return None
        gpu = self._device.type == "cuda"
        # Both sides tuned alike, so that what differs is the plan.
        with self._lock.alone(), tuned_by_replays(self._known):
            for name, plan in named.items():
                if plan.by == NOTHING and name in made.steps:
                    _tune_anew(made.steps[name])
            return made.compared(
                blocks=_GPU_BLOCKS if gpu else _BLOCKS,
                block_seconds=_GPU_BLOCK_SECONDS if gpu else _BLOCK_SECONDS,
                time_limit=seconds,
                timeout_factor=timeout_factor,
                seed=self.about.seed,
            )


def _tune_anew(step: Callable[[], object]) -> None:
    """Calls it for the first time; where it fails, the comparison will say so."""
    with tuned_by_replays(), suppress(Exception):
        step()


def _is_right(found: Mapping[str, Any], default: Mapping[str, Any]) -> bool:
    """Near enough to a float64 run; where default compile is not, no more than twice as far from it."""
    if found["ok"] or default["ok"]:
        return bool(found["ok"])
    errors = [(found[name], default[name]) for name in ("output_error", "gradient_error")]
    # Another shape, or what is not finite, has no error at all.
    return any(mine for mine, _ in errors) and all(
        math.isfinite(mine) and mine <= _LENIENCY * theirs for mine, theirs in errors
    )


class _Compiler:
    """Compiles one model in many ways."""

    def __init__(
        self,
        subject: Subject,
        device: torch.device,
        lock: Turns,
        directory: Path,
        note: Callable[[str], None],
    ) -> None:
        self._subject, self._device, self._lock = subject, device, lock
        self._directory, self._note = directory, note

    def maker(self, plan: ModelPlan) -> Maker:
        return lambda: self.made(plan, cold=plan.by == NOTHING)

    def made(self, plan: ModelPlan, *, cold: bool) -> tuple[Any, Facts]:
        """The compiled model, called once, and what there is to say about it."""
        self._note(plan.key)
        with cold_cache(self._directory) if cold else nullcontext():
            return self._made(plan)

    def _made(self, plan: ModelPlan) -> tuple[Any, Facts]:
        graphs: list[str] = []
        results: list[str] = []
        seconds = 0.0

        def backend(gm: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
            fingerprint = GraphView(gm.graph).fingerprint
            graphs.append(fingerprint)
            self._lock.release()
            # On a CPU, compiling is using the device.
            if self._device.type == "cpu":
                self._lock.share()
            nonlocal seconds
            begin = time.perf_counter()
            there, _ = applied(gm, plan.of(fingerprint))
            results.append(GraphView(there.graph).fingerprint)
            with self._timing():
                compiled = compile_with_inductor(there, inputs, rewritten=plan.steps > 0)
            seconds += time.perf_counter() - begin
            return self._guarded(compiled)

        run = torch.compile(self._subject.module, backend=backend, dynamic=False)
        with eager_backward(), capture_kernels() as kernels:
            self._subject.step(run)()
            if self._device.type == "cuda":
                torch.cuda.synchronize()
        self._lock.release()
        if plan.steps and plan.key and graphs_key(results) != plan.key:
            raise RuntimeError("the plan makes other graphs of this model than it was proposed for")
        own = "loops" if self._device.type == "cpu" else "fused"
        return run, {
            "seconds": round(seconds, 3),
            "graph": graphs_key(graphs),
            "kernels": sum(graph.extern + getattr(graph, own) for graph in kernels),
            "codes": sorted(graph.code for graph in kernels),
        }

    def _timing(self) -> AbstractContextManager[None]:
        """Compiling leaves a GPU to others, but for what it times there."""
        return timed_alone(self._lock.alone) if self._device.type == "cuda" else nullcontext()

    def _guarded(self, compiled: Callable[..., Any]) -> Callable[..., Any]:
        """Says so when it uses the device."""

        def run(*arguments: Any) -> Any:
            self._lock.share()
            return compiled(*arguments)

        return run

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
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from passwright.passes.graph import GraphView
from passwright.passes.table import default_table
from passwright.scheduler.commands.models import Subject
from passwright.scheduler.comparison import Comparison
from passwright.scheduler.device import describe
from passwright.scheduler.inductor import (
    cold_cache,
    compile_with_inductor,
    eager_backward,
    torch_versions,
)
from passwright.scheduler.kernel_counts import capture_kernels
from passwright.scheduler.plan import Plan
from passwright.scheduler.toolchain import gpu_driver, own_version
from passwright.training.device_lock import OwnDevice, Turns
from passwright.training.late_tuning import (
    Known,
    padded_alike,
    timed_alone,
    tuned_by_replays,
)
from passwright.training.model_plan import NOTHING, ModelPlan, applied
from passwright.training.plan_text import graphs_key, plan_key
from passwright.training.records import Record, Status
from passwright.training.variants import Facts, Maker, Variants

if TYPE_CHECKING:
    from torch import fx

DEFAULT = "default"
#: Blocks of each comparison, at most, and how long they are.
_BLOCKS, _BLOCK_SECONDS = 15, 0.02
#: On a GPU the quickest part of a block counts, so that neither more nor longer ones would tell more: what
#: compiles of one graph differ by is several times what is left.
_GPU_BLOCKS, _GPU_BLOCK_SECONDS = 10, 0.005
#: Where default compile is too far from a float64 run, a plan may be so many times as far.
_LENIENCY = 2.0


@dataclass(frozen=True)
class About:
    """What a record says of a workload beside what was found."""

    workload: str = ""
    family: str = ""
    kind: str = "model"
    batch: int = 0
    precision: str = "fp32"
    seed: int = 0
    #: Of the run of the collector.
    run: str = ""


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
    """A record for each plan, in their order.

    Module and inputs are on the device. Doing nothing, where it is among the plans, is compiled a second
    time from the start and its kernels are tuned anew, so that its record shows how far two compiles of one
    graph differ. `seconds` is
    the longest that timing takes, beside one round of all plans; what takes `timeout_factor` times as long
    as default compile is censored; `lock` keeps others from the device
    meanwhile; `note` is told the key of the plan that is being compiled and checked ("default" for none),
    and "" while timing. `known` keeps how kernels were tuned, for further calls: plans share most kernels.
    Raises what default compile raises.
    """
    about = about or About()
    lock = lock or OwnDevice()
    wanted = [plan if isinstance(plan, ModelPlan) else ModelPlan((plan,)) for plan in plans]
    subject = Subject(about.workload, module, inputs, train)
    names = [f"{number}" for number in range(len(wanted))]
    with (
        tempfile.TemporaryDirectory(prefix="passwright-", ignore_cleanup_errors=True) as place,
        padded_alike(),
    ):
        compiler = _Compiler(subject, device, lock, Path(place), note)
        nothing = ModelPlan(key=DEFAULT)
        makers: dict[str, Maker] = {DEFAULT: lambda: compiler.made(nothing, cold=False)}
        makers |= {name: compiler.maker(plan) for name, plan in zip(names, wanted, strict=True)}
        made = Variants(
            subject, makers, baseline=DEFAULT, device=device, lock=lock, seed=about.seed
        )
    default = made.described[DEFAULT]
    for name, plan in zip(names, wanted, strict=True):
        facts = made.described[name]
        if "why" not in facts:
            facts["same"] = plan.by != NOTHING and facts["codes"] == default["codes"]
            if not _is_right(facts["agreement"], default["agreement"]):
                facts["why"] = f"wrong: {facts['agreement']['sentence']}"
        if "why" in facts or facts["same"]:
            made.steps.pop(name, None)
    note("")
    comparison = None
    if len(made.steps) > 1:
        # Both sides tuned alike, so that what differs is the plan.
        with lock.alone(), tuned_by_replays(known):
            for name, plan in zip(names, wanted, strict=True):
                if plan.by == NOTHING and name in made.steps:
                    _tune_anew(made.steps[name])
            comparison = made.compared(
                blocks=_GPU_BLOCKS if device.type == "cuda" else _BLOCKS,
                block_seconds=_GPU_BLOCK_SECONDS if device.type == "cuda" else _BLOCK_SECONDS,
                time_limit=seconds,
                timeout_factor=timeout_factor,
                seed=about.seed,
            )
    return [
        _record(plan, made.described[name], default, comparison, name, about, train, device)
        for name, plan in zip(names, wanted, strict=True)
    ]


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


def unmeasured(
    plan: ModelPlan, about: About, *, train: bool, device: torch.device, why: str
) -> Record:
    """The censored record of a plan, without anything that only a compile tells."""
    return Record(
        workload=about.workload,
        family=about.family,
        kind=about.kind,
        graph="",
        plan=plan.text,
        plan_key=plan_key(plan.plans),
        steps=plan.steps,
        result=plan.key,
        proposed_by=plan.by,
        levels="torch",
        batch=about.batch,
        precision=about.precision,
        train=train,
        seed=about.seed,
        status=Status.CENSORED,
        why=why,
        predicted=plan.predicted.mean if plan.predicted else None,
        predicted_lower=plan.predicted.lower if plan.predicted else None,
        predicted_upper=plan.predicted.upper if plan.predicted else None,
        run=about.run,
        **stamp(device),
    )


def _record(
    plan: ModelPlan,
    facts: Facts,
    default: Facts,
    comparison: Comparison | None,
    name: str,
    about: About,
    train: bool,
    device: torch.device,
) -> Record:
    record = replace(
        unmeasured(plan, about, train=train, device=device, why=facts.get("why", "")),
        graph=default["graph"],
        kernels=facts.get("kernels"),
        default_kernels=default["kernels"],
        compile_seconds=facts.get("seconds"),
        default_compile_seconds=default["seconds"],
    )
    if record.why:
        return record
    if facts.get("same"):
        return replace(record, status=Status.SAME_CODE, gain=0.0, lower=0.0, upper=0.0, floor=0.0)
    assert comparison is not None
    gain, timing = comparison.gains.get(name), comparison.timings.get(name)
    record = replace(
        record,
        floor=comparison.floor,
        default_blocks=comparison.timings[DEFAULT].blocks,
        again_blocks=comparison.again.blocks if comparison.again else (),
        peak_bytes=facts.get("peak_bytes"),
        default_peak_bytes=default.get("peak_bytes"),
    )
    if gain is None or timing is None:
        return replace(record, why=comparison.censored.get(name, comparison.stopped))
    return replace(
        record,
        status=Status.MEASURED,
        gain=gain.median,
        lower=gain.lower,
        upper=gain.upper,
        method=timing.method,
        blocks=timing.blocks,
    )


def stamp(device: torch.device) -> dict[str, Any]:
    """What a record says of the machine, of torch, of us and of the time."""
    date = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {**_where(device.type, device.index), "date": date}


@cache
def _where(kind: str, index: int | None) -> Mapping[str, Any]:
    device = torch.device(kind, index) if index is not None else torch.device(kind)
    versions = torch_versions()
    driver = gpu_driver() if kind == "cuda" else ""
    described = describe(device)
    threads = f", {described.cores} threads" if kind == "cpu" else ""
    return {
        "device": f"{described.name}{threads}",
        "driver": driver,
        "torch": versions["torch"] or "",
        "triton": versions["triton"] or "",
        "passwright": own_version(),
        "patterns": default_table().version,
    }

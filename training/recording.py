"""Records of measured plans: what was found, and where and when."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from typing import Any

import torch

from passwright.passes.table import default_table
from passwright.scheduler.comparison import Comparison
from passwright.scheduler.device import describe
from passwright.scheduler.inductor import torch_versions
from passwright.scheduler.toolchain import gpu_driver, own_version
from passwright.training.model_plan import ModelPlan
from passwright.training.plan_text import plan_key
from passwright.training.records import Record, Status
from passwright.training.variants import Facts

#: The name of default compile among the variants of a model.
DEFAULT = "default"


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


def record_of(
    plan: ModelPlan,
    facts: Facts,
    default: Facts,
    comparison: Comparison | None,
    name: str,
    about: About,
    train: bool,
    device: torch.device,
) -> Record:
    """The record of a plan that was compiled: from facts about it and about default compile, and what
    timing them as `name` and `DEFAULT` found, if they were timed."""
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

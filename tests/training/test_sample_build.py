"""Samples of the committed records, built from names alone."""

from __future__ import annotations

from dataclasses import replace

import deadly_builds
import pytest

from passwright.training.data_stats import records_at
from passwright.training.labels import by_graph
from passwright.training.records import Record
from passwright.training.sample_build import build_samples, device_of


@pytest.fixture(scope="module")
def records() -> list[Record]:
    return records_at(None)


def some(records: list[Record], beginning: str, device: str) -> list[Record]:
    """All of one workload."""
    fitting = [r for r in records if r.workload.startswith(beginning) and r.device == device]
    return by_graph(fitting)[0]


def test_the_device_is_the_one_that_was_measured_on(records: list[Record]) -> None:
    found = {r.device: device_of(r, tf32=False) for r in records}
    gpu, cpu = found["NVIDIA H200"], found["AMD EPYC AVX512, 1 threads"]
    assert (gpu.kind, gpu.name, gpu.tf32) == ("cuda", "NVIDIA H200", False)
    assert (cpu.kind, cpu.name, cpu.cores) == ("cpu", "AMD EPYC AVX512", 1)
    assert device_of(next(r for r in records if r.device == "NVIDIA H200"), tf32=True).tf32


def test_plans_of_a_gpu_are_built_without_one_and_what_cannot_be_is_named(
    records: list[Record],
) -> None:
    group = some(records, "cut:own:norm_branches#", "NVIDIA H200")
    unknown = replace(group[0], workload="own:nobody@batch=2,precision=fp32,mode=infer,seed=0")
    lines: list[str] = []
    built = build_samples([unknown, *group], jobs=2, done=lines.append)
    assert [name for name, _ in built.missing] == [unknown.workload]
    assert "WorkloadError" in built.missing[0][1]
    [found] = built.samples
    assert (found.workload, found.device) == (group[0].workload, "NVIDIA H200")
    assert len(found.plans) == len([r for r in group if r.gain is not None])
    assert max(len(plan.steps) for plan in found.plans) >= 1
    assert len(lines) == 2
    assert {float(step.example.device[0]) for step in found.steps} == {1.0}


def test_one_that_ends_its_process_costs_no_other(records: list[Record]) -> None:
    names = [f"own:{name}@batch=2,precision=fp32,mode=infer,seed=0" for name in "abcdefgh"]
    names[2] = names[2].replace("own:c", f"{deadly_builds.DEADLY}1")
    names[5] = names[5].replace("own:f", f"{deadly_builds.DEADLY}2")
    asked = [replace(records[0], workload=name, graph=name) for name in names]
    built = build_samples(asked, jobs=2, build=deadly_builds.build)
    assert [found.workload for found in built.samples] == [names[n] for n in (0, 1, 3, 4, 6, 7)]
    assert [name for name, _ in built.missing] == [names[2], names[5]]
    assert all("process ended" in why for _, why in built.missing)

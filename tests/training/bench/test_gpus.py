"""Cases are dealt out among the GPUs of a host; the workers only pretend."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from bench_runs import FakeBench, report_of, request

from passwright.scheduler.device import describe_gpu
from passwright.training.bench import devices, tools
from passwright.training.bench import run as bench
from passwright.training.bench.rivals import OPTIMUS
from passwright.training.bench.rows import Report, load
from passwright.training.worker import Question

Note = Callable[[str], None]


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> tuple[torch.device, ...]:
    monkeypatch.setattr(devices, "describe", lambda _: describe_gpu("NVIDIA H200"))
    return tuple(torch.device("cuda", number) for number in range(3))


def test_a_case_is_of_its_workers_gpu_with_all_its_rivals(gpus: tuple[torch.device, ...]) -> None:
    models = FakeBench()
    found = report_of(models, request(*"abc", devices=gpus, jobs=3))
    asked = {question.task.model: question.task.device for question in models.asked}
    assert sorted(asked.values()) == ["cuda:0", "cuda:1", "cuda:2"]
    for one in found.cases:
        assert {f"cuda:{row.gpu}" for row in found.of(one).values()} == {asked[one.model]}
    assert Report.from_json(found.to_json()) == found


def test_a_row_keeps_the_gpu_that_its_rival_failed_on(gpus: tuple[torch.device, ...]) -> None:
    def deadly(question: Question, note: Note) -> Any:
        if OPTIMUS in [rival.name for rival in question.arguments[0]]:
            note(OPTIMUS)
            return EOFError()
        return ...

    found = report_of(FakeBench(a=deadly), request("a", devices=gpus[1:2], jobs=1))
    assert {row.gpu for row in found.rows} == {1}


def test_rows_of_a_cpu_are_of_no_gpu() -> None:
    assert {row.gpu for row in report_of(FakeBench(), request("a")).rows} == {None}


def test_a_report_goes_on_with_other_gpus_of_its_kind_and_knows_the_most(
    gpus: tuple[torch.device, ...], tmp_path: Path
) -> None:
    path = tmp_path / "bench.json"
    report_of(FakeBench(), request("a", devices=gpus), json_file=path)
    assert load(path).options["devices"] == 3
    for wanted in (gpus[:1], gpus):
        earlier = bench._earlier(request("a", devices=wanted), path)
        assert earlier is not None
        assert earlier.options["devices"] == 3


def test_all_gpus_are_asked_for_or_as_many_as_there_is_work_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setattr(devices, "cores", lambda: 40)

    def found(device: str, **how: Any) -> tuple[list[str], int]:
        wanted = tools.request(models=["own:mmoe"], device=torch.device(device), **how)
        return [str(one) for one in wanted.devices], wanted.jobs

    every = [f"cuda:{number}" for number in range(4)]
    assert found("cuda", batch=8, precisions=("fp32", "tf32", "bf16")) == (every, 6)
    assert found("cuda", jobs=3, precisions=("fp32", "bf16")) == (every[:3], 3)
    assert found("cuda") == (every[:2], 2)
    assert found("cuda:2") == (["cuda:2"], 2)

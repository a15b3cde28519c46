"""What the command line asks for, made a request."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from passwright.passes.errors import WorkloadError
from passwright.training.bench import run as bench
from passwright.training.bench import table, tools
from passwright.training.bench.suites import PUBLIC
from passwright.training.workloads import build

SASREC = "zoo:rechub/SASRec"


def test_what_runs_on_a_cpu_alone_is_left_out_on_a_gpu() -> None:
    here = tools.request(suite=PUBLIC, device=torch.device("cpu"))
    assert SASREC in {case.model for case in here.cases}
    assert not here.left_out
    there = tools.request(suite=PUBLIC, device=torch.device("cuda", 0), jobs=1)
    assert list(there.left_out) == [SASREC]
    assert {case.model for case in here.cases} - {case.model for case in there.cases} == {SASREC}


def test_the_report_names_it() -> None:
    wanted = tools.request(models=["own:dlrm"], device=torch.device("cpu"))
    report = bench._empty(replace(wanted, left_out={SASREC: "it says so"}))
    assert f"{SASREC} is left out, since it runs on a CPU alone: it says so." in table.notes(report)


def test_nothing_that_runs_there_is_an_error() -> None:
    with pytest.raises(WorkloadError, match=r"SASRec runs on a CPU alone: .*mask"):
        tools.request(models=[SASREC], device=torch.device("cuda", 0), jobs=1)


def test_it_is_not_built_for_a_gpu() -> None:
    with pytest.raises(WorkloadError, match="runs on a CPU alone"):
        build(SASREC, batch=4, device="cuda")

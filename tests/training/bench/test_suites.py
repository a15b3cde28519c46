"""Suites: their models, batches and precisions, and a user's KernelBench."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from passwright.passes.errors import WorkloadError
from passwright.scheduler.steps import training_step
from passwright.training import workloads
from passwright.training.bench.kernelbench import builder, tasks
from passwright.training.bench.suites import SUITES, of_kernelbench, of_models, suites
from passwright.training.workloads.workload import INSTALL_ZOO

TASK = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = {scale}

    def forward(self, x):
        return torch.relu(x) * self.scale


def get_inputs():
    return [torch.rand(4, 3)]


def get_init_inputs():
    return [3]
"""


def test_every_model_of_a_suite_is_known() -> None:
    for suite in SUITES.values():
        assert suite.note
        for name in suite.models():
            assert workloads.find(name).name == name


def test_the_public_suite_is_the_registry_s() -> None:
    public = SUITES["public"].models()
    assert set(public) == {w.name for w in workloads.workloads() if w.package is not None}
    assert INSTALL_ZOO


def test_cases_of_a_suite() -> None:
    cases = [*SUITES["blocks"].cases("both")]
    assert len(cases) == 5 * 3 * 2
    assert {case.batch for case in cases} == {1, 8, 16}
    assert {case.precision for case in cases} == {"bf16"}
    [one] = SUITES["illustrative"].cases("infer", batch=32, precisions=("fp32",))
    assert (one.batch, one.precision, one.train) == (32, "fp32", False)
    assert one.title == f"{one.model} x32 infer"


def test_several_suites() -> None:
    assert [suite.name for suite in suites("blocks, archetypes")] == ["blocks", "archetypes"]
    with pytest.raises(WorkloadError, match="there are public, archetypes"):
        suites("all")


def test_models_by_name() -> None:
    suite = of_models(["rechub:MMOE", "zoo:torchfm/*", "mine.py:make"])
    assert suite.models()[0] == "zoo:rechub/MMOE"
    assert suite.models()[-1] == "mine.py:make"
    assert len(suite.models()) == 5


# ---- KernelBench


@pytest.fixture
def home(tmp_path: Path) -> Path:
    for name in ("level1/19_ReLU", "level1/2_Scale", "level2/1_Other"):
        path = tmp_path / "KernelBench" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        scale = "nn.Parameter(torch.rand(width))" if "Scale" in name else "2.0"
        path.write_text(TASK.format(scale=scale), encoding="utf-8")
    return tmp_path


def test_tasks_are_found_in_their_order(home: Path) -> None:
    names = [
        "kernelbench:level1/2_Scale",
        "kernelbench:level1/19_ReLU",
        "kernelbench:level2/1_Other",
    ]
    assert tasks(home) == names
    assert tasks(home / "KernelBench") == names
    cases = [*of_kernelbench(home).cases("infer")]
    assert {(c.suite, c.precision, c.batch) for c in cases} == {("kernelbench", "fp32", None)}
    assert all(case.is_kernelbench for case in cases)
    only = [*of_kernelbench(home).cases("infer", only=["kernelbench:level1/*"])]
    assert [case.model for case in only] == names[:2]


def test_where_there_are_no_tasks(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match="holds no KernelBench tasks"):
        tasks(tmp_path)


def test_a_task_is_built_from_its_seed(home: Path) -> None:
    build = builder(home)
    (first, (x,)), (again, (same,)) = (
        build("kernelbench:level1/2_Scale", seed=3) for _ in range(2)
    )
    assert torch.equal(x, same)
    assert torch.equal(first(x), again(x))
    assert torch.equal(first(x), torch.relu(x) * first.scale)
    _, (other,) = build("kernelbench:level1/2_Scale", seed=4)
    assert not torch.equal(x, other)
    assert not first.training


def test_inputs_of_a_task_without_parameters_get_the_gradients(home: Path) -> None:
    module, inputs = builder(home)("kernelbench:level1/19_ReLU", train=True)
    training_step(module, inputs)()
    assert inputs[0].grad is not None
    module, inputs = builder(home)("kernelbench:level1/2_Scale", train=True)
    training_step(module, inputs)()
    assert inputs[0].grad is None
    assert module.scale.grad is not None


def test_what_is_wrong_with_a_task_is_said_in_a_line(home: Path) -> None:
    build = builder(home)
    with pytest.raises(WorkloadError, match=r"there is no file 7_No\.py in level1"):
        build("kernelbench:level1/7_No")
    with pytest.raises(WorkloadError, match="says how many rows"):
        build("kernelbench:level1/19_ReLU", batch=8)
    (home / "KernelBench/level1/3_Bad.py").write_text("import nobody_has_this", encoding="utf-8")
    with pytest.raises(WorkloadError, match="level1/3_Bad: ModuleNotFoundError"):
        build("kernelbench:level1/3_Bad")

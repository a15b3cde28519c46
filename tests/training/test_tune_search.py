"""Searching plans of a user's model: in time, with inputs by name, with dropout but no other randomness."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import collecting
import pytest
import torch
from cli_runs import run_json

from passwright.passes.errors import WorkloadError
from passwright.passes.graph import GraphView
from passwright.scheduler.commands.models import load_model
from passwright.training import tune_search
from passwright.training.collect_worker import censored
from passwright.training.farm import Farm
from passwright.training.model_plan import ModelPlan, applied
from passwright.training.processes import ProcessWorker
from passwright.training.records import Record, Status
from passwright.training.search.study import search
from passwright.training.store import Store
from passwright.training.tune_search import best_plans
from passwright.training.workloads import build
from passwright.training.workloads.capture import captured
from passwright.training.workloads.exact import build_exact

CPU = torch.device("cpu")
BATCHING = {"batch_linears", "batch_branches"}
MODELS = """
import torch
from cli_runs import run_json
from torch import nn

class Towers(nn.Module):
    rate = 0.25

    def __init__(self):
        super().__init__()
        self.towers = nn.ModuleList(nn.Linear(8, 8) for _ in range(4))
        self.drop = nn.Dropout(self.rate)

    def forward(self, x, mask):
        parts = [self.drop(torch.relu(t(p))) for t, p in zip(self.towers, x.split(8, 1))]
        return torch.cat(parts, 1) * mask

class Noisy(Towers):
    def forward(self, x, mask):
        return super().forward(x + 0.1 * torch.randn_like(x), mask)

class Zero(Towers):
    rate = 0

def inputs():
    return {"mask": torch.ones(16, 32), "x": torch.randn(16, 32)}

def make():
    return Towers(), inputs()

def noisy():
    return Noisy(), inputs()

def zero():
    return Zero(), inputs()
"""


class FakeFarm:
    """Says that what batches the towers gains most. Takes a plan only if it is for the graphs of the model
    as workers build it."""

    asked: list[ModelPlan]

    def __init__(self, name: str, *_: Any, **__: Any) -> None:
        self.name, self.asked = name, []
        module, inputs = build_exact(name, CPU)
        graphs = captured(module, inputs, train="mode=train" in name)
        self.known = {GraphView(graph.graph).fingerprint for graph in graphs}

    def __enter__(self) -> FakeFarm:
        return self

    def __exit__(self, *_: Any) -> None: ...

    def records(self, plans: Sequence[ModelPlan], **_: float) -> list[Record]:
        self.asked += plans
        return [self._record(plan) for plan in plans]

    def _record(self, plan: ModelPlan) -> Record:
        assert {p.fingerprint for p in plan.plans} <= self.known
        patterns = {step.pattern for p in plan.plans for step in p.steps}
        gain = 0.5 if patterns & BATCHING else 0.01 * len(patterns)
        return replace(
            censored(self.name, plan, "", "", "cpu"), status=Status.MEASURED, gain=gain, lower=gain
        )


@pytest.fixture
def models(tmp_path: Path) -> str:
    path = tmp_path / "tower_models.py"
    path.write_text(MODELS, encoding="utf-8")
    return str(path)


def searched(name: str, *, train: bool, budget: float = 600.0, **how: Any) -> Any:
    return best_plans(name, batch=None, seed=0, device=CPU, train=train, budget=budget, **how)


def few_trials(problem: Any, **how: Any) -> Any:
    return search(problem, **{**how, "trials": 6, "batch": 3})


@pytest.mark.parametrize("which", ["make", "zero"])
@pytest.mark.parametrize("train", [False, True])
def test_what_is_found_is_for_the_model_as_it_is(
    models: str, which: str, train: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Inputs have names, and there is dropout, whose rate is written in the graph also where it is off."""
    monkeypatch.setattr(tune_search, "Farm", FakeFarm)
    monkeypatch.setattr(tune_search, "search", few_trials)
    found = searched(f"{models}:{which}", train=train)
    assert 1 <= len(found) <= 3
    subject = load_model(f"{models}:{which}", build, device=CPU, train=train)
    [graph] = captured(subject.module, subject.inputs, train=train)
    for plans in found:
        [plan] = plans
        assert plan.fingerprint == GraphView(graph.graph).fingerprint  # by which `tune` takes it
        with torch.set_grad_enabled(train):
            there, done = applied(graph, plan)
        assert done is not None
        assert done.skipped == ()
        assert len(done.steps) == len(plan.steps) > 0
        if train and which == "make":
            assert "dropout" in there.code
            assert "0.25, True" in there.code
    assert BATCHING & {step.pattern for step in found[0][0].steps}


def test_a_model_that_draws_numbers_otherwise_is_refused_before_anything_is_spent(
    models: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tune_search, "Farm", None)
    with pytest.raises(WorkloadError) as caught:
        searched(f"{models}:noisy", train=True)
    for words in ("noisy draws random numbers in training (randn_like)", "leave --budget out"):
        assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_worker_that_never_answers_does_not_hold_the_search_up(
    models: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def never(*_: Any) -> list[Record]:
        time.sleep(600)
        return []

    monkeypatch.setattr(collecting.Stub, "measure", never)
    context = multiprocessing.get_context("fork")
    launch = partial(ProcessWorker, context, collecting.work)
    monkeypatch.setattr(tune_search, "Farm", partial(Farm, launch=launch))
    start = time.monotonic()
    found = searched(f"{models}:make", train=False, budget=8.0, records=tmp_path / "records")
    assert time.monotonic() - start < 8.0
    assert found == []
    assert "longer --budget" in caplog.text
    with Store(tmp_path / "records") as store:
        assert store.records() == []  # what was cut off is no finding about the plan


class SlowFarm(FakeFarm):
    """Plans take 60 seconds to compile, which pass at once."""

    batches: ClassVar[list[int]] = []

    def _record(self, plan: ModelPlan) -> Record:
        return replace(super()._record(plan), compile_seconds=60.0)

    def records(self, plans: Sequence[ModelPlan], **how: float) -> list[Record]:
        self.batches.append(len(plans))
        return super().records(plans, **how)


def test_no_plan_is_begun_that_would_not_be_compiled_in_time(
    models: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of the budget is left when the search ends, since that is less than a plan takes."""
    monkeypatch.setattr(tune_search, "Farm", SlowFarm)
    monkeypatch.setattr(tune_search, "cores", lambda: 2)
    monkeypatch.setattr(SlowFarm, "batches", [])
    said: list[str] = []
    start = time.monotonic()
    assert searched(f"{models}:make", train=False, budget=100.0, say=said.append)
    assert time.monotonic() - start < 40.0
    assert len(SlowFarm.batches) == 1
    assert "plans took up to 60 s to compile" in said[-1]


def test_without_time_the_first_finalist_is_the_only_one() -> None:
    plans: Any = [SimpleNamespace(steps=1, key=key, plans=(key,)) for key in "abc"]
    assert tune_search._finalists(plans, lambda: False) == [("a",)]
    assert tune_search._finalists(plans, lambda: True) == [("a",), ("b",), ("c",)]


def test_finalists_make_different_graphs() -> None:
    plans: Any = [
        SimpleNamespace(steps=steps, key=key, plans=(key, number))
        for number, (steps, key) in enumerate(
            [(1, "a"), (2, "a"), (0, "b"), (1, "c"), (1, "d"), (1, "e")]
        )
    ]
    assert tune_search._finalists(plans) == [("a", 0), ("c", 3), ("d", 4)]


@pytest.mark.slow
@pytest.mark.inductor
def test_the_command_finds_and_keeps_a_plan_that_applies(
    models: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PASSWRIGHT_PLAN_DIRECTORY", str(tmp_path / "plans"))
    arguments = (
        "tune",
        f"{models}:make",
        "--budget",
        "90s",
        "--records",
        str(tmp_path / "records"),
    )
    start = time.monotonic()
    [graph] = run_json(*arguments, "--device", "cpu", "--set", "tune_seconds=2")["graphs"]
    assert time.monotonic() - start < 105.0  # loading the model does not count
    with Store(tmp_path / "records") as store:
        records = store.records()
    assert len(records) > 1
    # On a busy machine a plan may seem hopelessly slow; but none is wrong, or of another model.
    assert all(record.why.startswith("time-out") for record in records if record.why)
    assert any(record.steps and record.gain is not None for record in records)
    assert graph["measured_now"]
    assert Path(graph["path"]).is_file()

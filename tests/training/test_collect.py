"""Collecting: nothing lost, nothing doubled, and whatever goes wrong costs one record."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from functools import partial
from pathlib import Path

import collecting
import pytest

from passwright.passes.errors import WorkloadError
from passwright.scheduler.commands.console import Reporter
from passwright.training import collect_run
from passwright.training.collect import Collector, Request, summary
from passwright.training.model_plan import ModelPlan
from passwright.training.processes import ProcessWorker
from passwright.training.records import Record, Status
from passwright.training.store import Store

NAME = collecting.NAMES[0]


@pytest.fixture
def collected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> object:
    """Collects with workers that compile nothing."""

    def run(**how: object) -> tuple[Collector, list[Record]]:
        context = multiprocessing.get_context("fork")
        request = Request(**{"workloads": [NAME], "device": "cpu", "jobs": 2, **how})  # type: ignore[arg-type]
        with Store(tmp_path / "records") as store:
            launch = partial(ProcessWorker, context, collecting.work)
            collector = Collector(request, store, launch, Reporter(0, None))
            assert collector.run()
            return collector, store.records()

    return run


def named(monkeypatch: pytest.MonkeyPatch, *keys: str) -> None:
    """The workload has plans of these keys."""
    found = [ModelPlan(key=key, by="walk") for key in keys]
    monkeypatch.setattr(collecting, "plans", lambda *_: found)


def test_every_plan_becomes_a_record(collected: object) -> None:
    collector, found = collected(workloads=collecting.NAMES[:3], plans=7)  # type: ignore[operator]
    assert Counter(r.workload for r in found) == dict.fromkeys(collecting.NAMES[:3], 7)
    assert len({(r.workload, r.result) for r in found}) == 21
    assert collector.tally.measured == 21
    assert summary(collector.tally) == "21 records of 3 workloads: 21 measured"


def test_what_is_known_is_not_measured_again(collected: object) -> None:
    collected(plans=3)  # type: ignore[operator]
    collector, found = collected(plans=5)  # type: ignore[operator]
    assert collector.tally.measured == 2
    assert collector.tally.skipped == 3
    assert len(found) == 5


@pytest.mark.parametrize("what", [collecting.CRASH, collecting.FULL])
def test_a_bad_plan_costs_one_record(
    what: str, collected: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    named(monkeypatch, "a", "b", what, "c", "d", "e")
    _, found = collected()  # type: ignore[operator]
    assert sorted(r.result for r in found) == sorted(["a", "b", what, "c", "d", "e"])
    [bad] = [r for r in found if r.status == Status.CENSORED]
    assert bad.result == what
    assert ("signal 11" in bad.why) or (what == collecting.FULL and bad.why == "out of memory")


def test_a_plan_that_hangs_costs_one_record(
    collected: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    named(monkeypatch, "a", collecting.HANG, "b")
    _, found = collected(patience=3.0)  # type: ignore[operator]
    assert {r.result: r.status for r in found} == {
        "a": Status.MEASURED,
        "b": Status.MEASURED,
        collecting.HANG: Status.CENSORED,
    }


def test_a_workload_that_cannot_be_had_is_named(
    collected: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> list[ModelPlan]:
        raise WorkloadError("no such model")

    monkeypatch.setattr(collecting, "plans", refuse)
    collector, found = collected()  # type: ignore[operator]
    assert found == []
    assert "no such model" in collector.tally.failed[NAME]
    assert "1 workloads not to be had" in summary(collector.tally)


def test_the_time_limit_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named(monkeypatch, "a", collecting.HANG)
    context = multiprocessing.get_context("fork")
    request = Request([NAME], "cpu", jobs=1, time_limit=2.0)
    begin = time.monotonic()
    with Store(tmp_path) as store:
        launch = partial(ProcessWorker, context, collecting.work)
        assert not Collector(request, store, launch, Reporter(0, None)).run()
    assert time.monotonic() - begin < 30


def test_killed_at_any_moment_it_goes_on_where_it_was(tmp_path: Path) -> None:
    """SIGKILL, twenty times: what is there stays, and in the end all is there once."""
    draw = random.Random(7)
    seen: set[tuple[str, str]] = set()
    path = os.pathsep.join(
        [str(Path(collecting.__file__).parent), os.environ.get("PYTHONPATH", "")]
    )
    for _ in range(20):
        child = subprocess.Popen(
            [sys.executable, collecting.__file__, str(tmp_path)],
            env={**os.environ, "PYTHONPATH": path},
            start_new_session=True,
            stderr=subprocess.DEVNULL,
        )
        begun = time.monotonic()
        # Not before it has begun to write, or half of all kills would hit the imports.
        while not any(tmp_path.glob("*.parquet")) and time.monotonic() - begun < 60:
            time.sleep(0.02)
        time.sleep(draw.uniform(0.0, 0.4))
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        found = [(r.workload, r.result) for r in Store(tmp_path).records()]
        assert len(found) == len(set(found))
        assert seen <= set(found)
        seen = set(found)
    collecting.main(tmp_path)
    found = [(r.workload, r.result) for r in Store(tmp_path).records()]
    assert len(found) == len(set(found)) == 9 * len(collecting.NAMES)


def test_names_from_the_command_line() -> None:
    how = {"batches": [64, 128], "precisions": ["fp32"], "mode": "both", "seed": 0}
    found = collect_run.exact_names(["own:split_cat"], **how)  # type: ignore[arg-type]
    assert len(found) == 4
    assert found[0] == "own:split_cat@batch=64,precision=fp32,mode=infer,seed=0"
    exact = "own:split_cat@batch=9"
    assert collect_run.exact_names([exact], **how) == [  # type: ignore[arg-type]
        "own:split_cat@batch=9,precision=fp32,mode=infer,seed=0"
    ]
    many = {**how, "batches": [64, 128, 256, 512], "precisions": ["fp32", "bf16"]}
    drawn = collect_run.exact_names(["own:split_cat", "own:dhen"], **many, draw=3)  # type: ignore[arg-type]
    assert len(set(drawn)) == 6
    assert sum(name.startswith("own:dhen@") for name in drawn) == 3
    assert drawn[1::2] == collect_run.exact_names(["own:dhen"], **many, draw=3)  # type: ignore[arg-type]
    assert len(collect_run.exact_names(["own:split_cat"], **many, draw=99)) == 16  # type: ignore[arg-type]
    sized = collect_run.exact_names(["own:*?fields=4"], **how)  # type: ignore[arg-type]
    assert any(name.startswith("own:norm_branches?fields=4@") for name in sized)
    for wrong in ({"mode": "both ways"}, {"precisions": ["fp12"]}):
        with pytest.raises(WorkloadError):
            collect_run.exact_names(["own:split_cat"], **{**how, **wrong})  # type: ignore[arg-type]
    with pytest.raises(WorkloadError, match="no workload is named like"):
        collect_run.exact_names(["nobody:*"], **how)  # type: ignore[arg-type]

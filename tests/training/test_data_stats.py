"""Numbers about hand-made records."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from record_rows import record

from passwright.training import data_stats
from passwright.training.data_stats import Group, records_at, stats_at, summarise
from passwright.training.records import Record, Status
from passwright.training.store import Store, StoreError

CUT = "cut:own:mmoe#widen:aa:bb,3@batch=64,precision=bf16,mode=train,seed=0"


@pytest.fixture
def records() -> list[Record]:
    return [
        record(gain=0.0, proposed_by="nothing"),
        record("batch_linears", gain=0.4, date="2026-12-02T10:00:00Z"),
        record("batch_linears", gain=0.42, run="second"),
        record("batch_linears", "clean_up", "batch_linears", gain=-0.3),
        record("clean_up", gain=0.005),
        record("clean_up", status=Status.SAME_CODE, gain=0.0),
        record("tall", gain=None, why="OutOfMemoryError: 2 GiB"),
        record("tall", gain=None, why="OutOfMemoryError: 3 GiB"),
        record("tall", gain=None, why=""),
        record(
            "tall",
            gain=0.2,
            workload=CUT,
            graph="another",
            kind="cut",
            family="mmoe",
            train=True,
            batch=64,
            precision="bf16",
            device="some GPU",
            driver="13000",
            method="cuda-graph",
        ),
    ]


def test_what_there_is(records: list[Record]) -> None:
    stats = summarise(records)
    assert (stats.records, stats.graphs, stats.workloads, stats.families) == (10, 2, 2, 2)
    assert (stats.models, stats.runs) == (1, 2)
    assert stats.keys == 6
    assert stats.dates == ("2026-11-30", "2026-12-02")
    assert stats.kinds == {"model": Group(9, 1), "cut": Group(1, 1)}
    assert stats.modes == {"infer": Group(9, 1), "train": Group(1, 1)}
    assert stats.batches == {"8": Group(9, 1), "64": Group(1, 1)}
    assert stats.devices == {"some CPU": Group(9, 1), "some GPU": Group(1, 1)}
    assert stats.drivers == {"13000": Group(1, 1)}


def test_models_are_counted_without_how_they_are_run(records: list[Record]) -> None:
    more = [record(workload=f"own:mmoe@batch={n}", graph=str(n)) for n in (8, 16)]
    assert summarise([*records, *more]).models == 2


def test_outcomes(records: list[Record]) -> None:
    stats = summarise(records)
    assert {name: group.records for name, group in stats.status.items()} == {
        "measured": 6,
        "censored": 3,
        "same code": 1,
    }
    assert {name: group.records for name, group in stats.censored.items()} == {
        "OutOfMemoryError": 2,
        "no reason given": 1,
    }
    assert stats.ties == pytest.approx(2 / 6)
    assert stats.faster == pytest.approx(3 / 6)
    assert stats.slower == pytest.approx(1 / 6)
    assert stats.gains[0] == pytest.approx(-0.3)
    assert stats.gains[100] == pytest.approx(0.42)
    assert stats.best_gains[0] == pytest.approx(0.2)
    assert stats.best_gains[100] == pytest.approx(0.42)


def test_a_graph_that_only_loses_is_left_alone() -> None:
    assert set(summarise([record("a", gain=-0.5)]).best_gains.values()) == {0.0}


def test_patterns_by_plans_and_by_steps(records: list[Record]) -> None:
    stats = summarise(records)
    assert stats.patterns["batch_linears"] == Group(3, 1)
    assert stats.patterns["tall"] == Group(4, 2)
    assert stats.pattern_steps == {"batch_linears": 4, "tall": 4, "clean_up": 3}


def test_nothing_measured_has_no_shares() -> None:
    stats = summarise([record("a", gain=None)])
    assert stats.ties is None
    assert stats.gains == {}
    with pytest.raises(ValueError, match="no records"):
        summarise([])


def test_it_is_json(records: list[Record]) -> None:
    assert json.loads(json.dumps(summarise(records).to_json()))["records"] == 10


def test_of_a_directory(records: list[Record], tmp_path: Path) -> None:
    with Store(tmp_path / "records") as store:
        with pytest.raises(StoreError, match="no records yet"):
            stats_at(tmp_path / "records")
        store.append(records)
    assert stats_at(tmp_path / "records") == summarise(records)


def test_the_committed_ones_are_the_default(
    records: list[Record], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_stats.resources, "files", lambda _: tmp_path)
    with pytest.raises(StoreError, match="no data set comes with"):
        records_at(None)
    with Store(tmp_path / data_stats.FOLDER) as store:
        store.append(records[:1])
    assert len(records_at(None)) == 1

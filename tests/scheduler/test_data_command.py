"""`passwright data`: what it prints, and how it ends."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
from cli_runs import assert_refused, run, run_json
from record_rows import record

from passwright.passes.table import default_table
from passwright.training.records import Record, Status
from passwright.training.store import Store

NAME = "own:norm_branches?fields=3@batch=4,precision=fp32,mode=infer,seed=0"


def rows(patterns: str) -> list[Record]:
    """Of a model that there is, with fingerprints of none."""
    how = {"workload": NAME, "patterns": patterns}
    return [
        record(gain=0.0, **how),
        record("batch_linears", gain=0.4, **how),
        record("batch_linears", "clean_up", gain=-0.3, **how),
        record("tall", gain=None, why="OutOfMemoryError: 2 GiB", **how),
        record("tall", status=Status.SAME_CODE, gain=0.0, **how),
    ]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    with Store(tmp_path / "records") as store:
        store.append(rows(default_table().version))
    return tmp_path / "records"


@pytest.mark.parametrize("command", ["stats", "check", "pack"])
def test_each_command_teaches_by_example(command: str) -> None:
    result = run("data", command, "--help")
    assert result.exit_code == 0
    assert f"passwright data {command}" in result.stdout.partition("Examples:")[2]


def test_stats_for_people(directory: Path) -> None:
    result = run("data", "stats", str(directory))
    assert result.exit_code == 0, result.stderr
    for words in (
        "5 records",
        "of 1 graphs in 1 workloads",
        "33% ties, 33% surely faster, 33% surely slower",
        "0.74x",
        "batch_linears, 2 steps",
        "OutOfMemoryError",
        "some CPU",
        "2026-11-30",
    ):
        assert words in result.stdout


def test_stats_for_machines(directory: Path) -> None:
    found = run_json("data", "stats", str(directory))
    assert found["records"] == 5
    assert found["status"]["measured"] == {"records": 3, "graphs": 1}
    assert found["pattern_steps"] == {"batch_linears": 2, "tall": 2, "clean_up": 1}


def test_what_is_not_true_ends_with_1(directory: Path) -> None:
    result = run("data", "check", str(directory), "--share", "1")
    assert result.exit_code == 1
    assert "5 records of 1 workloads replayed" in result.stdout
    assert "5 mismatches" in result.stdout
    assert "graph" in result.stdout
    assert result.stderr.startswith("[1/1] own:norm_branches?fields=3@")
    result = run("data", "check", str(directory), "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["records"] == 1


def test_what_other_patterns_made_is_told_and_is_no_failure(
    directory: Path, tmp_path: Path
) -> None:
    with Store(tmp_path / "old") as store:
        store.append(rows("others"))
    result = run("data", "check", str(tmp_path / "old"), "--share", "1")
    assert result.exit_code == 0, result.stdout
    assert "5 mismatches" in result.stdout
    assert "All of them are of records made with other versions of" in result.stdout
    with Store(directory) as store:
        store.append(rows("others")[:2])
    result = run("data", "check", str(directory), "--share", "1")
    assert result.exit_code == 1
    assert "2 of them are of records made with other versions of" in result.stdout


def test_what_is_true_ends_with_0(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("passwright.training.data_replay._replayed", lambda *_: [])
    result = run("data", "check", str(directory), "--share", "1")
    assert result.exit_code == 0, result.stdout
    assert "no mismatches" in result.stdout


def test_pack_writes_one_file(directory: Path, tmp_path: Path) -> None:
    file = tmp_path / "packed" / "records.parquet"
    result = run("data", "pack", str(directory), "--output", str(file))
    assert result.exit_code == 0, result.stderr
    assert result.stdout == ""
    assert "5 records" in result.stderr
    assert len(pd.read_parquet(file)) == 5
    assert run_json("data", "stats", str(file)) == run_json("data", "stats", str(directory))


def test_what_cannot_be_read_is_named(tmp_path: Path, directory: Path) -> None:
    assert_refused(run("data", "stats", str(tmp_path / "nowhere")), "no records at", "nowhere")
    (directory / "notes.txt").write_text("hello", encoding="utf-8")
    assert_refused(run("data", "check", str(directory)), "notes.txt")
    assert_refused(run("data", "pack", str(directory), "--output", "x.parquet"), "notes.txt")


def test_without_a_path_it_is_the_committed_data_set(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("passwright.training.data_stats.committed", lambda: directory)
    assert run_json("data", "stats")["records"] == 5


def test_a_long_list_is_cut(tmp_path: Path) -> None:
    def one(number: int) -> Record:
        return record(family=f"family{number:02d}")

    with Store(tmp_path / "many") as store:
        store.append([one(number) for number in range(30)])
    result = run("data", "stats", str(tmp_path / "many"))
    assert "family19" in result.stdout
    assert "family20" not in result.stdout
    assert "and 10 more" in result.stdout

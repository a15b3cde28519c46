"""The demo: what is asked for, and its table from recorded runs."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from demo_runs import cells, comparison, compiled_both, measured_row, report
from typer.testing import CliRunner

from passwright.passes.errors import WorkloadError
from passwright.scheduler import cli
from passwright.scheduler.settings import Settings
from passwright.training import demo, demo_table
from passwright.training.demo_report import Row, State, load, save
from passwright.training.demo_rows import TIME_LIMIT
from passwright.training.demo_worker import DEFAULT, PASSWRIGHT


def test_a_row_shows_everything() -> None:
    assert cells(measured_row()) == {
        "model": "own:a",
        "mode": "infer",
        "batch": "64",
        "ops": "30 -> 10",
        "kernels": "23 -> 8",
        "predicted gain": "2.00x [1.00, 4.00]",
        "measured gain, 95 %": "3.00x [2.71, 3.32]",
        "compile s": "30.0 -> 10.0",
        "planning s": "1.5",
        "agrees": "yes",
    }


def test_a_gpu_counts_its_own_kernels() -> None:
    assert cells(measured_row(), "cuda")["kernels"] == "5 -> 5"


def test_rows_say_what_went_otherwise() -> None:
    tie = replace(measured_row(), measured=comparison(gain=0.005, half=0.02))
    assert cells(tie)["measured gain, 95 %"].endswith(" tie")
    noise = replace(measured_row(), measured=comparison(gain=0.2, half=0.01, floor=0.3))
    assert cells(noise)["measured gain, 95 %"].endswith(" tie")
    wrong = cells(measured_row(ok=False))
    assert wrong["agrees"].startswith("NO: output 0 is off by")
    late = cells(Row("own:a", True, None, State.NOT_RUN, TIME_LIMIT))
    assert late["measured gain, 95 %"] == "not run: time limit"
    failed = cells(Row("own:a", True, None, State.FAILED, "RuntimeError: no"))
    assert failed["measured gain, 95 %"] == "failed: RuntimeError: no"
    equal = compiled_both(steps=0) | {DEFAULT: None}
    same = cells(Row("own:a", False, 64, State.EQUAL, "", equal))
    assert same["measured gain, 95 %"] == "no step, same code"
    assert same["compile s"] == "10.0"
    assert same["kernels"] == "8 -> 8"
    slow = comparison() | {"gains": {}, "censored": {PASSWRIGHT: "time-out: 3 times"}}
    censored = cells(replace(measured_row(), measured=slow))
    assert censored["measured gain, 95 %"] == "not measured: time-out: 3 times"


def test_graphs_of_a_level_count_by_their_ops_and_levels_add_up() -> None:
    both = compiled_both()
    first = both[PASSWRIGHT]["plans"][0]
    second = json.loads(json.dumps(first))
    second["plan"] |= {"ops_before": 10, "ops_after": 10}
    second["predicted"] = {"mean": 0.0, "lower": 0.0, "upper": 0.0}
    aten = json.loads(json.dumps(first))
    aten["plan"] |= {"level": "aten", "ops_before": 1000}
    both[PASSWRIGHT]["plans"] += [second, aten]
    row = Row("own:a", False, 64, State.MEASURED, "", both, comparison())
    assert row.ops == (40, 20)
    assert row.steps == 6
    assert row.predicted is not None
    assert row.predicted.mean == pytest.approx(1.75 * math.log(2))


def test_a_report_survives_its_file(tmp_path: Path) -> None:
    path = tmp_path / "demo.json"
    unknown = comparison() | {"floor": None}
    found = report(
        measured_row(),
        replace(measured_row(), measured=unknown),
        Row("own:b", True, None, State.NOT_RUN, TIME_LIMIT),
    )
    save(found, path)
    assert load(path) == found
    assert json.loads(path.read_text())["rows"][0]["measured"]["timings"][DEFAULT]["blocks"]


def test_the_table_is_printed_again_from_its_file(tmp_path: Path) -> None:
    path = tmp_path / "demo.json"
    save(report(measured_row(stored=True)), path)

    def printed(*options: str) -> str:
        result = CliRunner().invoke(
            cli.app, ["demo", "--from", str(path), *options], env={"COLUMNS": "200"}
        )
        assert result.exit_code == 0
        return result.stdout

    table = printed()
    assert "3.00x [2.71, 3.32]" in table
    assert "1 of 1 plans came from the plan store" in table
    assert "Plans: /plans" in table
    assert "abc.json" in table
    markdown = printed("--markdown").splitlines()
    assert markdown[0] == "| " + " | ".join(demo_table.COLUMNS) + " |"
    assert markdown[1].count("---") == len(demo_table.COLUMNS)
    assert markdown[2].startswith("| own:a | infer | 64 | 30 -> 10 |")
    assert "- Some Device, 2 threads; torch 2.13.0, Passwright 0.1.0, Python 3.11;" in markdown[4]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 1, "rows": [{}]}'])
def test_another_file_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "demo.json"
    path.write_text(text, encoding="utf-8")
    result = CliRunner().invoke(cli.app, ["demo", "--from", str(path)])
    assert result.exit_code == 2
    assert str(path) in result.stderr
    assert result.stdout == ""


# ---- what is asked for


def request(**changes: Any) -> demo.Request:
    arguments: dict[str, Any] = {"device": torch.device("cpu"), "settings": Settings()}
    return demo.Request.of(**arguments | changes)


def test_the_usual_demo_has_public_and_own_models_in_both_modes() -> None:
    usual = request()
    jobs = {(name.partition("?")[0], train) for name, train in usual.jobs}
    for name in ("zoo:rechub/MMOE", "zoo:deepctr/PLE", "zoo:deepctr/AutoInt", "zoo:torchfm/FFM"):
        assert {(name, False), (name, True)} <= jobs
    assert {("own:split_cat", False), ("own:norm_branches", False)} <= jobs
    assert usual.time_limit == demo.TIME_LIMIT_SECONDS
    assert usual.skip_equal


def test_full_means_all_fields_and_both_compiles() -> None:
    full = request(full=True)
    assert not any("?" in name for name, _ in full.jobs)
    assert full.time_limit is None
    assert not full.skip_equal
    assert request(full=True, time_limit=9.0).time_limit == 9.0


def test_models_are_named_with_or_without_a_size() -> None:
    named = request(models="zoo:rechub/MMOE?fields=9,experts=3,own:split_cat,own:mmoe").jobs
    assert named == (
        ("zoo:rechub/MMOE?fields=9,experts=3", False),
        ("zoo:rechub/MMOE?fields=9,experts=3", True),
        ("own:split_cat", False),
        ("own:mmoe", False),
        ("own:mmoe", True),
    )
    (small, _), _ = request(models="rechub:MMOE").jobs
    assert small == request().jobs[0][0]


def test_an_unknown_model_is_refused_before_anything_runs() -> None:
    with pytest.raises(WorkloadError, match="zoo:rechub/MMOE"):
        request(models="zoo:rechub/MMoE")
    result = CliRunner().invoke(cli.app, ["demo", "--models", "own:splitcat"])
    assert result.exit_code == 2
    assert "own:split_cat" in result.stderr


def test_little_memory_means_few_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "_available_bytes", lambda: 4e9)
    assert demo.limits_for(torch.device("cpu"), 1.0).alive == 2
    monkeypatch.setattr(demo, "_available_bytes", lambda: 0.0)
    few = demo.limits_for(torch.device("cpu"), 1.0)
    assert (few.parallel, few.alive) == (1, 1)

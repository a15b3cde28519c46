"""How long deciding takes: every part counts once, and a row says what was decided."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from passwright.training import decide_bench
from passwright.training.decide_clock import Clock


def test_a_part_stands_still_while_another_runs_inside() -> None:
    now = [0.0]
    clock = Clock(lambda: now[0])
    with clock.part("outer"):
        now[0] += 1
        with clock.part("inner"):
            now[0] += 10
        now[0] += 2
        with clock.part("inner"):
            now[0] += 20
    now[0] += 100
    assert clock.seconds == {"outer": 3.0, "inner": 30.0}


def test_rows_of_a_device_that_is_not_here(tmp_path: Path) -> None:
    app = typer.Typer()
    app.command()(decide_bench.run)
    file = tmp_path / "rows.json"
    model = "own:norm_branches?fields=4"
    asked = [model, "--for", "NVIDIA H200", "--no-compile", "--times", "1", "--json", str(file)]
    result = CliRunner().invoke(app, asked)
    assert result.exit_code == 0, result.output
    report = json.loads(file.read_text(encoding="utf-8"))
    assert report["device"] == "NVIDIA H200"
    [row] = report["rows"]
    assert row["workload"].startswith(model)
    assert "compile" not in row
    for name in (decide_bench.ANALYTIC, decide_bench.LEARNED):
        found = row[name]
        assert min(found[key] for key in ("nodes", "candidates", "rehearsals", "rounds")) > 0
        assert found["steps"] > 0
        assert sum(found["parts"].values()) == pytest.approx(found["cpu"], abs=0.01)
    assert "network" in row[decide_bench.LEARNED]["parts"]
    assert "network" not in row[decide_bench.ANALYTIC]["parts"]

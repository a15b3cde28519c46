"""Rows: gains from raw blocks, states, and JSON."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from bench_runs import case, facts, report, rivals, row, rows, times

from passwright.passes.errors import WorkloadError
from passwright.training.bench.rivals import COMBO, OPTIMUS, PREDICT, graphs
from passwright.training.bench.rows import (
    Blocks,
    Report,
    State,
    failed,
    gain,
    load,
    rows_of,
    save,
)
from passwright.training.headroom.final import DEFAULT

CASE = case()


def test_a_gain_is_the_median_over_rounds() -> None:
    default = row(CASE, DEFAULT, device=Blocks("wall", (2.0, 4.0, 8.0), (8.0, 4.0, 2.0)))
    mine = row(CASE, PREDICT, device=Blocks("wall", (1.0, 2.0, 4.0)))
    found = gain(mine, default)
    assert found is not None
    # The baseline's two appearances of each round have the mean 4.
    assert found.speedup == pytest.approx(2.0)
    assert found.lower < found.median < found.upper
    assert default.seconds == 4.0


def test_only_like_is_compared_with_like() -> None:
    default = row(CASE, DEFAULT)
    assert gain(row(CASE, PREDICT), default) is not None
    assert gain(row(CASE, PREDICT, device=times(1e-3, "cuda-event")), default) is None
    assert gain(row(CASE, PREDICT, device=None), default) is None
    assert gain(row(CASE, PREDICT, state=State.WRONG), default) is None
    assert gain(None, default) is None
    by_wall = gain(row(CASE, graphs(PREDICT)), default, "wall")
    assert by_wall is not None
    assert by_wall.speedup == pytest.approx(4.0)
    assert math.isfinite(by_wall.lower)


def test_rows_of_an_answer() -> None:
    wanted = rivals(DEFAULT, OPTIMUS, COMBO, PREDICT, graphs(PREDICT))
    bad = {"ok": False, "sentence": "off", "output_error": 1.0, "gradient_error": 0.0}
    answer = {
        "rivals": {
            DEFAULT: facts(DEFAULT),
            OPTIMUS: {"why": "time-out: 120 times the baseline's time"},
            COMBO: facts(COMBO, agreement=bad),
            PREDICT: facts(PREDICT, why="RuntimeError: no memory"),
        }
    }
    found = {one.rival: one for one in rows_of(CASE, wanted, answer)}
    assert [one.state.value for one in found.values()] == [
        "ok",
        "timeout",
        "wrong",
        "failed",
        "not here",
    ]
    assert found[COMBO].why == "off"
    assert found[DEFAULT].seconds == pytest.approx(8e-3)
    assert found[DEFAULT].kernels == 20


def test_what_default_compile_gets_wrong_too_is_not_wrong() -> None:
    bad = {"ok": False, "sentence": "off", "output_error": 1e-3, "gradient_error": 0.0}
    worse = bad | {"output_error": 3e-3}
    answer = {
        "rivals": {
            DEFAULT: facts(DEFAULT, agreement=bad),
            COMBO: facts(COMBO, agreement=bad),
            PREDICT: facts(PREDICT, agreement=worse),
        }
    }
    found = rows_of(CASE, rivals(DEFAULT, COMBO, PREDICT), answer)
    # Nobody but default compile itself can excuse it: it is as far off as itself.
    assert [one.state for one in found] == [State.OK, State.OK, State.WRONG]


def test_a_report_survives_its_file(tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    full = report(
        *rows(CASE),
        *failed(case("own:b"), rivals(DEFAULT), 'died: "so"', late=True),
        not_run=(case("own:c", True),),
    )
    save(full, path)
    assert load(path) == full
    # A row a line, so that a file can be looked through.
    lines = path.read_text(encoding="utf-8").splitlines()
    assert sum(line.startswith('  {"') for line in lines) == len(full.rows)
    save(report(), path)
    assert load(path) == report()


def test_what_is_no_report(tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    for text in ("{}", "[]", "no", json.dumps({"format": 1, "not_run": [], "rows": [{}]})):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(WorkloadError, match=r"not written by `passwright bench --json`"):
            load(path)
    with pytest.raises(ValueError, match="no benchmark report"):
        Report.from_json("{}")


def test_a_case_is_done_when_all_rivals_met() -> None:
    full = report(*rows(CASE))
    assert full.is_done(CASE, [DEFAULT, PREDICT])
    assert not full.is_done(CASE, [DEFAULT, "somebody"])
    assert not full.is_done(case("own:b"), [DEFAULT])
    nothing = report(*failed(CASE, rivals(DEFAULT), "died"))
    assert not nothing.is_done(CASE, [DEFAULT])
    assert full.with_rows([row(CASE, DEFAULT)]).rows == (row(CASE, DEFAULT),)

"""The comparison of levels: its variants, its table, and a row of it for real."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from passwright.training import levels
from passwright.training.headroom.worker import Task
from passwright.training.levels import (
    DEFAULT,
    THREE,
    What,
    choice_rows,
    summary,
    variants_of,
    wrong,
)
from passwright.training.levels_table import markdown


def agreement(ok: bool = True) -> dict[str, Any]:
    return {"agreement": {"ok": ok, "sentence": "agrees" if ok else "off"}, "compile_seconds": 10.0}


def row(mode: str = "infer", gain: float = math.log(2), **variants: Any) -> dict[str, Any]:
    found = variants or {DEFAULT: agreement(), THREE: {**agreement(), "compile_seconds": 5.0}}
    names = list(found)
    measured = {
        "baseline": names[0],
        "timings": {name: {"blocks": [1e-4, 2e-4, 3e-4]} for name in names},
        "gains": {names[-1]: {"median": gain, "lower": gain - 0.1, "upper": gain + 0.1}},
    }
    return {"model": "m", "mode": mode, "batch": 8, "variants": found, "measured": measured}


def report(*rows: dict[str, Any]) -> dict[str, Any]:
    versions = {"torch": "2", "passwright": "1"}
    device = {"name": "toy"}
    return {"rows": rows, "versions": versions, "device": device, "date": "d", "seconds": 1.0}


def test_the_table() -> None:
    text = markdown(report(row(), row(gain=math.log(8)), row("train")))
    lines = text.splitlines()
    assert lines[0] == "| model | mode | default, us | three levels |"
    assert lines[2] == "| m | infer | 200 | 2.00x [1.81, 2.21] |"
    assert "| geometric mean | infer |  | **4.00x** |" in lines
    assert "| geometric mean | train |  | **2.00x** |" in lines
    assert lines[-1] == "- 6 variants agree with a float64 run as well as eager does."


def test_what_is_wrong() -> None:
    assert not wrong(row())
    assert wrong({"model": "m", "mode": "infer", "why": "no memory"})
    assert wrong(row(default=agreement(), other={"why": "does not compile"}))
    assert wrong(row(default=agreement(), other=agreement(ok=False)))
    # What default compile gets wrong as well is no fault of ours.
    assert not wrong(row(default=agreement(ok=False), other=agreement(ok=False)))
    assert summary(row(default=agreement(), other=agreement(ok=False))).startswith(
        "not right: other"
    )


def test_variants() -> None:
    names, baseline = variants_of(What.LEVELS, device="cuda", train=True)
    assert baseline == DEFAULT
    assert names[DEFAULT] == {}
    assert len(names) == 5
    choices, baseline = variants_of(What.CHOICES, device="cpu", train=True)
    assert baseline == THREE
    assert "freezing" not in choices
    assert choices["small_fusions"]["max_fusion_size"] == 16
    on_gpu, _ = variants_of(What.CHOICES, device="cuda", train=False)
    assert on_gpu["combo_kernels"]["without"] == "combine_kernels,fuse_siblings"


def test_gains_for_the_planner() -> None:
    choice = row(**{THREE: agreement(), "wide_cats": {**agreement(), "compile_seconds": 20.0}})
    expected = {
        "choice": "wide_cats",
        "mode": "infer",
        "model": "m",
        "gain": round(math.log(2), 5),
        "compile_cost": None,  # one compiled with what another left in the caches
    }
    assert choice_rows(report(choice)) == [expected]
    assert choice_rows(report({**choice, "cold": True})) == [{**expected, "compile_cost": 2.0}]


def test_names_of_models() -> None:
    assert levels.models_of(["zoo:rechub/MMOE"], None) == ["zoo:rechub/MMOE"]
    some = levels.models_of(["zoo:rechub/*", "zoo:rechub/MMOE"], 10)
    assert "zoo:rechub/MMOE?fields=10" in some
    assert len(set(some)) == len(some)
    with pytest.raises(typer.BadParameter, match="zoo:rechub/MMOE"):
        levels.models_of(["zoo:nobody/*"], None)


def test_settings_are_shared_out_and_done_ones_are_known() -> None:
    task = Task("m", train=False, device="cuda")
    jobs = [*levels.jobs_of(What.CHOICES, task)]
    assert len(jobs) > 1
    assert all(job.baseline == THREE == next(iter(job.variants)) for job in jobs)
    everything, _ = variants_of(What.CHOICES, device="cuda", train=False)
    assert {name for job in jobs for name in job.variants} == everything.keys()
    some = [*levels.jobs_of(What.CHOICES, task, without=["combo*"])]
    assert {n for job in jobs for n in job.variants if n.startswith("combo")}
    assert not {n for job in some for n in job.variants if n.startswith("combo")}
    done = {**jobs[0].row, "variants": dict.fromkeys(jobs[0].variants)}
    assert [job.is_done([done]) for job in jobs[:2]] == [True, False]
    assert not jobs[0].is_done([{**done, "why": "died"}])


@pytest.mark.inductor
def test_a_row_is_measured_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Where a cache knows the graphs of ATen-IR, nothing is planned.
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    app = typer.Typer()
    app.command()(levels.run)
    file = tmp_path / "levels.json"
    arguments = "own:norm_branches?fields=3 --what check --batch 8 --mode infer --device cpu"
    result = CliRunner().invoke(app, [*arguments.split(), "--json", str(file), "--markdown"])
    assert result.exit_code == 0, result.output
    [found] = json.loads(file.read_text(encoding="utf-8"))["rows"]
    assert found["variants"].keys() == {DEFAULT, THREE}
    assert {plan["level"] for plan in found["variants"][THREE]["plans"]} >= {"torch", "aten"}
    assert "2 variants agree" in result.output

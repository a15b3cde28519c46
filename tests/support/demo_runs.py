"""Recorded rows and reports of the demo, and jobs for its workers."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from passwright.training import demo_table
from passwright.training.demo_report import Report, Row, State
from passwright.training.demo_worker import DEFAULT, PASSWRIGHT, Job


def compiled_one(
    *, steps: int = 2, loops: int = 5, seconds: float = 10.0, stored: bool = False, ok: bool = True
) -> dict[str, Any]:
    plan = {"level": "torch", "ops_before": 30, "ops_after": 10, "steps": [{}] * steps}
    return {
        "seconds": {"wall": seconds, "cpu": seconds},
        "kernels": [{"backward": False, "fused": 2, "extern": 3, "loops": loops}],
        "agreement": {
            "ok": ok,
            "sentence": "agrees" if ok else "output 0 is off by 1.0e+00, 1.0e-06 is allowed",
            "output_error": 1e-7,
            "gradient_error": 0.0,
            "oracle": True,
        },
        "plans": [
            {
                "plan": plan,
                "predicted": {"mean": math.log(2), "lower": 0.0, "upper": math.log(4)},
                "path": "/plans/abc.json",
                "stored": stored,
                "seconds": 1.5,
            }
        ],
        "warnings": [],
    }


def compiled_both(**ours: Any) -> dict[str, Any]:
    default = compiled_one(steps=0, loops=20, seconds=30.0)
    return {"batch": 64, DEFAULT: default | {"plans": []}, PASSWRIGHT: compiled_one(**ours)}


def comparison(gain: float = math.log(3), half: float = 0.1, floor: float = 0.01) -> dict[str, Any]:
    def timing(name: str, seconds: float) -> dict[str, Any]:
        return {"name": name, "method": "wall", "blocks": [seconds] * 15, "calls": 7}

    return {
        "baseline": DEFAULT,
        "timings": {DEFAULT: timing(DEFAULT, 3e-3), PASSWRIGHT: timing(PASSWRIGHT, 1e-3)},
        "gains": {PASSWRIGHT: {"median": gain, "lower": gain - half, "upper": gain + half}},
        "floor": floor,
        "stopped": "all blocks measured",
        "censored": {},
        "again": timing(DEFAULT, 3e-3),
        "notes": [],
        "wall": None,
    }


def measured_row(**ours: Any) -> Row:
    return Row("own:a", False, 64, State.MEASURED, "", compiled_both(**ours), comparison())


def report(*rows: Row, kind: str = "cpu") -> Report:
    return Report(
        date="2026-01-02",
        device={"kind": kind, "name": "Some Device"},
        versions={"torch": "2.13.0", "python": "3.11", "passwright": "0.1.0", "triton": None},
        threads=2,
        seed=0,
        plan_directory="/plans",
        seconds=12.0,
        rows=rows,
    )


def job(name: str, **changes: Any) -> Job:
    plain = Job(name, False, None, "cpu", 1, 0, f"/nowhere/{name}", measure_seconds=2.0)
    return replace(plain, **changes)


def cells(row: Row, kind: str = "cpu") -> dict[str, str]:
    return dict(zip(demo_table.COLUMNS, demo_table.cells(row, kind), strict=True))

"""A data set against a gain model: points, calibration, order by pattern, regret, misses."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from record_rows import record
from reports import data_report, plans

from passwright.passes.errors import WorkloadError
from passwright.training.report import of_data
from passwright.training.report.data_charts import search_chart
from passwright.training.report.data_scores import (
    calibration,
    group_of,
    pattern_rows,
    record_of,
    search_rows,
)
from passwright.training.report.of_data import (
    SEEN,
    UNSEEN,
    DataRequest,
    command_for,
    gather_data,
    misses_of,
    points_of,
)
from passwright.training.samples import WorkloadSamples
from passwright.training.store import Store


def test_doing_nothing_is_no_point() -> None:
    points = points_of(plans(), frozenset())
    assert [round(p.gain, 2) for p in points] == [0.3, 0.1, -0.2, 0.5]
    assert [p.is_inside for p in points] == [True, False, False, False]
    assert all(p.unseen for p in points)
    assert not any(p.unseen for p in points_of(plans(), frozenset({"b"})))


def test_calibration_counts_what_lies_inside() -> None:
    # Errors in widths of 90 %: 0.25, 1.25, 1.25, 3.75.
    rows = dict(calibration([plans()]))
    assert rows[0.9] == 0.25
    # 1.25 widths of 90 % are 96 % of a normal distribution.
    assert rows[0.95] == 0.25
    assert rows[0.99] == 0.75
    assert rows[0.1] == 0.0
    assert list(rows.values()) == sorted(rows.values())


def test_without_intervals_there_is_no_calibration() -> None:
    from dataclasses import replace

    assert calibration([replace(plans(), lower=None, upper=None)]) == []
    assert calibration([]) == []


def test_patterns_are_ranked_with_and_without() -> None:
    rows = {row.pattern: row for row in pattern_rows([plans()])}
    # "rare" is in the best plan alone (0.5), which is predicted 0.2: above doing nothing and the walk,
    # below 0.3 (predicted 0.28), and like 0.1 (predicted 0.2).
    assert rows["rare"].told == 4
    assert rows["rare"].pairs == pytest.approx((1 + 1 + 0 + 0.5) / 4)
    assert rows["rare"].plans == 1
    assert rows["rare"].error == pytest.approx(0.3)
    assert rows["rare"].bias == pytest.approx(0.3)
    # The largest error first.
    assert [row.error for row in pattern_rows([plans()])] == sorted(
        (row.error for row in rows.values()), reverse=True
    )


def test_regret_against_search() -> None:
    [row] = search_rows([plans()])
    assert (row.trials, row.best, row.planner) == (1, 0.5, pytest.approx(0.3))
    # The surest plan is the one predicted to gain most.
    assert row.chosen == pytest.approx(0.3)


def test_a_group_holds_the_scores_of_other_reports() -> None:
    group = group_of("all", [plans()])
    assert group.scores["tau"] == pytest.approx(group.scores["pairs"] * 2 - 1)
    assert group.choices["graphs"] == 1
    assert [row["share"] for row in group.risk] == [0.1, 0.25, 0.5, 0.75, 1.0]


def test_a_point_finds_its_record() -> None:
    point = points_of(plans(), frozenset())[0]
    records = [record("good", gain=0.2), record("odd", gain=0.3), record("good", gain=0.3)]
    assert record_of(point, records) is records[2]
    assert record_of(point, records[:2]) is None


def test_misses_are_the_furthest_off_and_not_many_of_one() -> None:
    points = points_of(plans(), frozenset())
    workload = points[0].workload
    known = record("good", "rare", gain=0.5, workload=workload)
    misses = misses_of(points, [known])
    assert [round(miss.point.gain, 2) for miss in misses] == [0.5, 0.1]
    assert misses[0].plan == known.plan
    assert misses[1].plan == ""
    # What noise may explain is no miss.
    quiet = [p for p in points if abs(p.gain - p.predicted) < 0.05]
    assert misses_of(quiet, []) == [] or quiet[0].floor < abs(quiet[0].gain - quiet[0].predicted)


@pytest.mark.parametrize(
    ("workload", "command"),
    [
        (
            "zoo:a/B?fields=3@batch=8,precision=fp32,mode=train,seed=2",
            "passwright report 'zoo:a/B?fields=3' --batch 8 --train --seed 2",
        ),
        (
            "own:dlrm@batch=0,precision=tf32",
            "passwright report own:dlrm --seed 0",
        ),
        (
            "own:dlrm@batch=8,precision=bf16",
            "passwright collect runs/again own:dlrm@batch=8,precision=bf16 --plans 12",
        ),
        (
            "cut:own:dlrm#x@batch=8",
            "passwright collect runs/again cut:own:dlrm#x@batch=8 --plans 12",
        ),
    ],
)
def test_commands_to_look_again(workload: str, command: str) -> None:
    assert (
        command_for(workload).replace("'cut:own:dlrm#x@batch=8'", "cut:own:dlrm#x@batch=8")
        == command
    )


# ---- the whole


@pytest.fixture
def records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Records of a device, with samples of which the predictor says what `plans` has."""
    with Store(tmp_path / "records") as store:
        store.append(
            [
                record(gain=0.0, device="NVIDIA H200"),
                record("good", gain=0.3, device="NVIDIA H200"),
                record("good", gain=0.3, device="some CPU"),
            ]
        )
    sample = WorkloadSamples("zoo:a/B@batch=8", "b", "model", "NVIDIA H200", (None,), ())  # type: ignore[arg-type]
    monkeypatch.setattr(of_data, "samples_at", lambda *_, **__: [sample])
    monkeypatch.setattr(of_data, "plans_of", lambda *_: plans())
    return tmp_path / "records"


def request(where: Path, **changes: object) -> DataRequest:
    usual = dict.fromkeys(("samples", "evaluation", "device", "jobs"))
    return DataRequest(
        **{"records": where, "gain_model": "analytic", **usual, "command": "x", **changes}  # type: ignore[arg-type]
    )


def test_a_report_is_of_one_device(records: Path) -> None:
    said: list[str] = []
    report = gather_data(request(records), said.append)
    assert report.about.device == "NVIDIA H200"
    assert report.about.gain_model == "analytic"
    assert report.stats["records"] == 2
    assert len(report.points) == 4
    assert [group.name for group in report.groups] == [UNSEEN]
    assert "learned nothing" in report.notes[0]
    assert said == ["4 plans of 1 graphs predicted"]
    assert report.floor == pytest.approx(0.01)


def test_families_that_a_model_learned_from_stand_apart(
    records: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "model"
    place.mkdir()
    about = {"about": {"families": ["b"]}}
    (place / "config.json").write_text(json.dumps(about), encoding="utf-8")
    monkeypatch.setattr(of_data, "load", lambda _: None)
    report = gather_data(request(records, gain_model=str(place)), lambda _: None)
    assert [group.name for group in report.groups] == [SEEN]
    assert report.about.gain_model == "model"
    assert "learned from every family" in report.notes[0]
    assert not any(row.unseen for row in report.families)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"device": "a toaster"}, "NVIDIA H200, some CPU"),
        ({"gain_model": "no/such"}, "train one"),
        ({"held_out": "network"}, "--evaluation"),
        ({"records": Path("no/such")}, "no records"),
    ],
)
def test_errors_name_a_next_step(records: Path, changes: dict[str, object], words: str) -> None:
    with pytest.raises(WorkloadError, match=words):
        gather_data(request(records, **changes), lambda _: None)


def test_an_evaluation_is_shown_beside(records: Path, tmp_path: Path) -> None:
    file = tmp_path / "evaluation.json"
    file.write_text(json.dumps({"models": [{"model": "trees", "mean": {"tau": 0.5}}]}))
    report = gather_data(request(records, evaluation=file), lambda _: None)
    assert report.evaluation is not None
    assert report.evaluation["models"][0]["mean"]["tau"] == 0.5
    file.write_text("{}")
    with pytest.raises(WorkloadError, match="passwright evaluate"):
        gather_data(request(records, evaluation=file), lambda _: None)


def test_ctrl_c_leaves_what_records_say(records: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(of_data, "samples_at", interrupt)
    report = gather_data(request(records), lambda _: None)
    assert report.ended == "stopped by Ctrl-C"
    assert report.stats["records"] == 2
    assert report.points == ()


def test_gains_are_finite_on_the_page() -> None:
    report = data_report()
    assert all(math.isfinite(value) for p in report.points for value in (p.gain, p.predicted))
    assert np.isfinite([row.error for row in report.patterns]).all()


def test_a_model_that_was_searched_twice_has_two_rows() -> None:
    found = [plans("zoo:a/B@batch=8"), plans("zoo:a/B@batch=64"), plans("zoo:a/C@batch=8")]
    chart = search_chart(data_report(searches=tuple(search_rows(found))))
    assert chart is not None
    for trace in chart["data"]:
        assert sorted(trace["y"]) == ["zoo:a/B@batch=64", "zoo:a/B@batch=8", "zoo:a/C"]

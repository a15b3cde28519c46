"""Reports to JSON and back, and what becomes of a prediction."""

from __future__ import annotations

import json
import math

import pytest
from reports import data_report, empty_report, model_report

from passwright.passes.errors import WorkloadError
from passwright.scheduler.gain import Interval
from passwright.training.report.content import (
    AS_PREDICTED,
    FASTER,
    SLOWER,
    UNCLEAR,
    UNKNOWN,
    Found,
    from_json,
    plain,
    to_json,
    verdict,
)
from passwright.training.report.run import KINDS

PREDICTED = Interval(0.3, 0.2, 0.4)


@pytest.mark.parametrize("report", [model_report(), empty_report(), data_report()])
def test_a_report_reads_back_as_it_was(report: object) -> None:
    text = to_json(report)
    back = from_json(text, KINDS, "here")
    assert type(back) is type(report)
    assert to_json(back) == text
    assert back.about == report.about  # type: ignore[attr-defined]


def test_a_model_report_is_equal_to_what_was_written() -> None:
    report = model_report()
    assert from_json(to_json(report), KINDS, "here") == report


def test_what_is_not_finite_is_null() -> None:
    assert plain({"a": (math.inf, math.nan, 1.5)}) == {"a": [None, None, 1.5]}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"schema": 99}, "schema 99"),
        ({"kind": "weather"}, "is no report"),
        ({"steps": 3}, "is no report"),
        ({"train": "yes"}, "is no report"),
        ({"about": []}, "is no report"),
    ],
)
def test_other_files_are_refused_with_a_next_step(change: dict[str, object], words: str) -> None:
    data = json.loads(to_json(model_report())) | change
    with pytest.raises(WorkloadError, match=words) as raised:
        from_json(json.dumps(data), KINDS, "some.json")
    assert "passwright report" in str(raised.value)
    assert "some.json" in str(raised.value)


@pytest.mark.parametrize("text", ["", "[]", "{}", "no json"])
def test_what_is_no_json_is_refused(text: str) -> None:
    with pytest.raises(WorkloadError, match=r"some\.json"):
        from_json(text, KINDS, "some.json")


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (Found(0.25, 0.22, 0.28), AS_PREDICTED),
        (Found(0.45, 0.43, 0.47), FASTER),
        (Found(0.15, 0.13, 0.17), SLOWER),
        (Found(0.45, 0.35, 0.55), UNCLEAR),
        (Found(0.15, None, None), UNCLEAR),
        # What is off by less than the noise of the run may not be off.
        (Found(0.15, 0.13, 0.17, floor=0.06), UNCLEAR),
        (None, UNKNOWN),
    ],
)
def test_verdict(found: Found | None, expected: str) -> None:
    assert verdict(PREDICTED, found) == expected


def test_without_a_prediction_there_is_no_verdict() -> None:
    assert verdict(None, Found(0.1, 0.0, 0.2)) == UNKNOWN


def test_misses_are_parts_beyond_their_intervals() -> None:
    assert [part.title for part in model_report().misses] == ["step 2"]
    assert [part.verdict for part in model_report().parts] == [AS_PREDICTED, SLOWER, UNCLEAR]

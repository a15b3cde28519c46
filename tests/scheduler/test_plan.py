"""Plans as text and JSON, and the store that keeps them."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from passwright.passes.errors import PlanFormatError
from passwright.scheduler import store as store_module
from passwright.scheduler.gain import Interval
from passwright.scheduler.plan import LeftOut, Plan, Step, joint_gain, load
from passwright.scheduler.store import PlanStore

PLAN = Plan(
    "0123abcd",
    training=True,
    device="cpu-2",
    context="ff00",
    steps=(
        Step("clean_up", "graph", "all", gain=Interval(0.5, 0.4, 0.6), diff=("- a", "+ b")),
        Step("batch_linears", "ab12.2", "cd34", "{members=4}", Interval(-0.1, -0.2, 0.0)),
    ),
    left=(LeftOut("x @ y:z", "predicted slower"),),
    ops_before=9,
    ops_after=4,
    stopped="no candidate left",
)


def test_json_round_trip_is_exact() -> None:
    assert Plan.from_json(PLAN.to_json()) == PLAN
    assert load(PLAN.to_json()).to_json() == PLAN.to_json()


def test_text_keeps_the_steps_and_the_graph() -> None:
    read = load(PLAN.to_text())
    assert [s.label for s in read.steps] == [s.label for s in PLAN.steps]
    assert (read.fingerprint, read.training, read.device) == ("0123abcd", True, "cpu-2")


def test_lines_may_be_deleted_and_commented_out() -> None:
    lines = PLAN.to_text().splitlines()
    lines[2] = "# " + lines[2]
    assert [s.pattern for s in load("\n".join(lines)).steps] == ["batch_linears"]


def test_gains_add_up() -> None:
    found = PLAN.predicted
    assert (found.mean, found.lower, found.upper) == pytest.approx((0.4, 0.2, 0.6))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "{}",
        "# passwright plan 99\n# graph ab torch inference cpu\n",
        "# passwright plan 1\n# graph ab torch inference cpu\nno step at all\n",
        PLAN.to_json().replace('"format": 1', '"format": 2'),
        PLAN.to_json().replace('"steps"', '"stepz"'),
    ],
)
def test_damage_and_other_versions_are_told_apart_from_plans(text: str) -> None:
    with pytest.raises(PlanFormatError):
        load(text)


def test_store_keeps_and_finds(tmp_path: Path) -> None:
    store = PlanStore(tmp_path / "deep" / "plans")
    assert store.load("k") is None
    assert store.save("k", PLAN) == store.path("k")
    assert store.load("k") == PLAN
    assert [key for key, _ in store] == ["k"]
    assert [p.name for p in store.directory.iterdir()] == ["k.json"], (
        "no temporary file is left behind"
    )


def test_a_damaged_file_counts_as_none_with_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = PlanStore(tmp_path)
    store.path("k").write_text("not a plan")
    with caplog.at_level(logging.WARNING):
        assert store.load("k") is None
        assert store.load("k") is None
    assert len(caplog.records) == 1
    assert "a new one is made" in caplog.text


def test_a_directory_that_cannot_be_written_costs_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    store = PlanStore(blocked / "plans")
    store_module._warned.clear()
    with caplog.at_level(logging.WARNING):
        assert store.save("k", PLAN) is None
        assert store.save("k", PLAN) is None
    assert len(caplog.records) == 1
    assert "PASSWRIGHT_PLAN_DIRECTORY" in caplog.text


def test_a_way_counts_once_and_as_a_whole():
    def sure(gain: float) -> Interval:
        return Interval(gain, gain - 0.1, gain + 0.1)

    single = Step("a", "x", "1", gain=sure(0.2))
    head = Step("b", "x", "2", gain=sure(-0.5), to_go=sure(0.4), way=1)
    follower = Step("c", "x", "3", gain=sure(0.9))
    assert joint_gain([]) == Interval(0, 0, 0)
    found = joint_gain([single, head, follower])
    assert (found.mean, found.lower, found.upper) == pytest.approx((0.6, 0.4, 0.8))
    # A way that is cut off is no more than its steps.
    assert joint_gain([head]) == sure(-0.5)

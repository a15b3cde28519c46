"""Counts of what was measured twice."""

from __future__ import annotations

from record_rows import record

from passwright.training.trust import Trust, trust


def test_counts() -> None:
    found = trust(
        [
            record(proposed_by="nothing", gain=0.01, floor=0.02),
            record(proposed_by="nothing", gain=-0.05, floor=0.02),
            record(plan_key="a", run="1", gain=0.3, floor=0.02),
            record(plan_key="a", run="2", gain=0.2, floor=0.02),
            record(plan_key="b", run="1", gain=0.3, floor=0.02),
            record(plan_key="b", run="2", gain=-0.2, floor=0.02),
            record(plan_key="c", run="1", gain=0.3, floor=0.02),
            record(plan_key="c", run="2", gain=0.01, floor=0.02),
            record(plan_key="d", run="1", gain=0.3, floor=0.02),
        ]
    )
    assert found == Trust(pairs=2, inside=1, repeated=2, agree=1)


def test_nothing_to_count() -> None:
    assert trust([]) == Trust(0, 0, 0, 0)

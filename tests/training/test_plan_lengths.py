"""What is known of long plans is what was measured: hardly one has more steps than errors cancel out in."""

from __future__ import annotations

from passwright.scheduler.gain import CANCELLING
from passwright.training.data_stats import records_at
from passwright.training.records import Status


def test_few_measured_plans_are_longer_than_errors_are_known_to_cancel_out() -> None:
    measured = [one.steps for one in records_at(None) if one.status == Status.MEASURED]
    assert len(measured) > 1000
    longer = sum(steps > CANCELLING for steps in measured) / len(measured)
    # And it is no smaller than what was measured bears out.
    shorter = sum(steps > CANCELLING // 2 for steps in measured) / len(measured)
    assert longer < 0.01 < shorter

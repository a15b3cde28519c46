"""Labels computed from hand-made records."""

from __future__ import annotations

import math

import pytest
from record_rows import plan_of, record

from passwright.training.labels import (
    ZERO,
    Difference,
    Label,
    ablations,
    by_graph,
    gains_to_go,
    label_of,
    measured,
    prefix_differences,
)
from passwright.training.plan_text import Placed, text_of
from passwright.training.records import Record, Status


def names(steps: tuple[Placed, ...]) -> str:
    return "".join(placed.pattern for placed in steps)


def shown(found: list[Difference]) -> dict[tuple[str, str], float]:
    """Gains by what they are of: without, full."""
    return {(names(d.without), names(d.full)): round(d.label.gain, 6) for d in found}


def plans(**gains: float | None) -> list[Record]:
    """Records of plans named by their steps, a letter each."""
    return [record(*letters, gain=gain) for letters, gain in gains.items()]


# ---- one record


def test_a_measured_record_has_gain_interval_and_floor() -> None:
    label = label_of(record("a", gain=0.1))
    assert label == Label(0.1, pytest.approx(0.08), pytest.approx(0.12), 0.01)
    assert not label.is_tie


@pytest.mark.parametrize(
    ("gain", "lower", "upper", "tie"),
    [
        (0.10, 0.08, 0.12, False),
        (-0.10, -0.12, -0.08, False),
        (0.10, -0.01, 0.12, True),
        (0.009, 0.008, 0.0095, True),
        (-0.009, -0.0095, -0.008, True),
    ],
)
def test_ties_are_within_the_interval_or_the_floor(
    gain: float, lower: float, upper: float, tie: bool
) -> None:
    label = label_of(record("a", gain=gain, lower=lower, upper=upper))
    assert label is not None
    assert label.is_tie is tie


def test_the_same_code_gains_exactly_nothing() -> None:
    label = label_of(record("a", status=Status.SAME_CODE, gain=0.0))
    assert label == ZERO
    assert label.is_tie


def test_a_censored_record_has_no_label() -> None:
    assert label_of(record("a", gain=None)) is None
    assert names(next(iter(measured([record("a", gain=None)])))) == ""


def test_without_an_interval_nothing_is_known() -> None:
    label = label_of(record("a", gain=0.5, lower=None, upper=None))
    assert label is not None
    assert label.is_tie
    assert math.isinf(label.minus(label).upper)


# ---- several


def test_repetitions_are_averaged_and_not_narrowed() -> None:
    records = [record("a", gain=0.1), record("a", gain=0.2, floor=0.03)]
    [_, label] = measured(records).values()
    assert label == Label(*map(pytest.approx, (0.15, 0.13, 0.17)), 0.03)


def test_doing_nothing_is_zero_by_definition() -> None:
    assert measured([record(gain=0.05)]) == {(): ZERO}


def test_prefixes_give_what_each_step_adds() -> None:
    found = prefix_differences(plans(a=0.1, ab=0.3, abc=0.25))
    assert shown(found) == {("", "a"): 0.1, ("a", "ab"): 0.2, ("ab", "abc"): -0.05}
    assert [names(d.steps) for d in found] == ["a", "b", "c"]


def test_the_longest_measured_prefix_counts() -> None:
    found = prefix_differences(plans(a=0.1, abc=0.3, xyz=-0.2))
    assert shown(found) == {("", "a"): 0.1, ("a", "abc"): 0.2, ("", "xyz"): -0.2}
    assert {names(d.steps) for d in found} == {"a", "bc", "xyz"}


def test_a_censored_prefix_is_none() -> None:
    assert shown(prefix_differences(plans(a=None, ab=0.3))) == {("", "ab"): 0.3}


def test_the_errors_of_a_difference_add_up() -> None:
    [_, found] = prefix_differences(plans(a=0.1, ab=0.3))
    half = math.hypot(0.02, 0.02)
    expected = (0.2, 0.2 - half, 0.2 + half, math.hypot(0.01, 0.01))
    label = found.label
    assert (label.gain, label.lower, label.upper, label.floor) == pytest.approx(expected)
    [_, near] = prefix_differences(plans(a=0.1, ab=0.125))
    assert near.label.is_tie


def test_lopsided_intervals_keep_their_sides() -> None:
    wide_above = Label(0.3, 0.29, 0.4)
    wide_below = Label(0.1, 0.0, 0.11)
    both = wide_above.minus(wide_below)
    assert both.upper - both.gain == pytest.approx(math.hypot(0.1, 0.1))
    assert both.gain - both.lower == pytest.approx(math.hypot(0.01, 0.01))


def test_ablations_take_one_step_out() -> None:
    found = ablations(plans(abc=0.5, bc=0.1, ac=0.45, ab=0.4, c=0.3))
    assert shown(found) == {
        ("bc", "abc"): 0.4,
        ("ac", "abc"): 0.05,
        # Of two steps, the first.
        ("c", "bc"): -0.2,
        ("c", "ac"): 0.15,
    }
    assert {names(d.steps) for d in found if names(d.full) == "abc"} == {"a", "b"}


def test_gain_to_go_is_the_best_continuation() -> None:
    found = gains_to_go(plans(a=-0.1, ab=0.4, abc=0.3, x=0.2))
    assert shown(found) == {
        ("", "ab"): 0.4,
        ("a", "ab"): 0.5,
        ("x", "x"): 0.0,
        ("ab", "ab"): 0.0,
        ("abc", "abc"): 0.0,
    }
    to_go = {names(d.without): names(d.steps) for d in found}
    assert to_go == {"": "ab", "a": "b", "ab": "", "abc": "", "x": ""}


def test_a_lucky_gain_is_not_the_best() -> None:
    records = [*plans(a=0.3), record("ab"[0], "b", gain=0.4, lower=-0.2, upper=0.9)]
    assert shown(gains_to_go(records))[("", "a")] == 0.3


def test_to_stop_is_a_continuation() -> None:
    found = gains_to_go(plans(a=-0.3, ab=-0.1))
    assert shown(found)[("", "")] == 0.0
    assert shown(found)[("a", "ab")] == 0.2


def test_steps_of_several_graphs_are_told_apart() -> None:
    two = [plan_of("a", graph="1" * 24), plan_of("a", graph="2" * 24)]
    first = text_of([two[0], two[1].replaced(steps=())])
    records = [record("x", gain=0.1, plan=first), record("x", gain=0.3, plan=text_of(two))]
    [_, second] = prefix_differences(records)
    assert [placed.graph for placed in second.steps] == ["2" * 24]
    assert second.label.gain == pytest.approx(0.2)


def test_only_like_is_compared_with_like() -> None:
    one, other = record("a"), record("a", "b", device="another")
    assert [len(group) for group in by_graph([one, other, one])] == [2, 1]


def test_the_same_records_in_any_order_give_the_same_labels() -> None:
    records = plans(abc=0.5, bc=0.1, ac=0.45, ab=0.4, a=0.2, c=0.3)
    for make in (prefix_differences, ablations, gains_to_go):
        assert make(records) == make(records[::-1])

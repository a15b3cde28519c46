"""Sequences that differ by exchanges of commuting steps have one form, and others do not."""

from __future__ import annotations

import itertools
import random

from passwright.training.search.canonical import Canon, canonical
from passwright.training.search.space import Labels

APART = {frozenset("ab"), frozenset("bd"), frozenset("cd")}


def commute(one: str, other: str) -> bool:
    assert one != other
    return frozenset((one, other)) in APART


def equal(sequence: Labels) -> set[Labels]:
    """All that can be reached by exchanging neighbours that commute."""
    found, waiting = {sequence}, [sequence]
    while waiting:
        here = waiting.pop()
        for at in range(len(here) - 1):
            if here[at] != here[at + 1] and commute(here[at], here[at + 1]):
                there = (*here[:at], here[at + 1], here[at], *here[at + 2 :])
                if there not in found:
                    found.add(there)
                    waiting.append(there)
    return found


def test_the_form_is_the_least_of_all_equal_sequences() -> None:
    for sequence in itertools.permutations("abcd"):
        assert canonical(sequence, commute) == min(equal(sequence))


def test_it_holds_where_labels_come_twice() -> None:
    rng = random.Random(0)
    for _ in range(60):
        sequence = tuple(rng.choices("abcd", k=6))
        assert canonical(sequence, commute) == min(equal(sequence))


def test_what_does_not_commute_stays_in_order() -> None:
    assert canonical(("c", "b", "a"), commute) == ("c", "a", "b")
    assert canonical(("d", "a"), commute) == ("d", "a")
    assert canonical((), commute) == ()


def test_a_label_does_not_pass_itself_to_get_ahead() -> None:
    """a b a: the second a commutes with b, and comes before it, but stays behind the first."""
    assert canonical(("b", "a", "a"), commute) == ("a", "a", "b")


def test_each_pair_is_asked_about_once() -> None:
    asked: list[tuple[str, str]] = []

    def ask(one: str, other: str) -> bool:
        asked.append((one, other))
        return True

    canon = Canon(ask)
    assert canon(("c", "b", "a")) == canon(("a", "c", "b")) == ("a", "b", "c")
    assert sorted(asked) == [("a", "b"), ("a", "c"), ("b", "c")]


def test_without_a_predicate_nothing_commutes() -> None:
    assert Canon()(("b", "a")) == ("b", "a")


def test_sequences_that_come_to_the_same_are_one() -> None:
    canon = Canon(result=lambda sequence: len(sequence) or None)
    assert canon.find(("b",)) == ("b",)  # nothing stands for it yet
    assert canon(("a",)) == ("a",)
    assert canon(("b",)) == canon.find(("c",)) == ("a",)
    assert canon.key(("b",)) == canon.key(("c",)) == 1
    assert canon(()) == canon.key(()) == ()  # nobody can tell what it comes to

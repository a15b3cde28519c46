"""The space of sequences, and the neighbours of one."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from passwright.training.search.moves import Kind, neighbours, random_sequence
from passwright.training.search.space import NONE, Space

SPACE = Space(("a", "b", "c"), slots=3)


def test_a_sequence_comes_back_from_its_slots() -> None:
    assert SPACE.encode(("c", "a")) == {"slot_00": "c", "slot_01": "a", "slot_02": NONE}
    for sequence in ((), ("b",), ("c", "b", "a")):
        assert SPACE.decode(SPACE.encode(sequence)) == sequence


def test_gaps_are_closed_and_repetitions_left_out() -> None:
    assert SPACE.decode({"slot_00": NONE, "slot_01": "a", "slot_02": "a"}) == ("a",)
    twice = Space(SPACE.alphabet, 3, repeats=2)
    assert twice.decode({"slot_00": NONE, "slot_01": "a", "slot_02": "a"}) == ("a", "a")


def test_a_point_without_all_slots_is_no_sequence() -> None:
    assert SPACE.decode({"slot_00": "a"}) is None


@pytest.mark.parametrize("wrong", [("d",), ("a", "a"), ("a", "b", "c", "a")])
def test_what_is_not_in_the_space_is_refused(wrong: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="not in the space"):
        SPACE.encode(wrong)


@pytest.mark.parametrize(
    ("alphabet", "slots"), [(("a", "a"), 2), ((NONE,), 2), ((), 2), (("a",), 0)]
)
def test_a_space_that_makes_no_sense_is_refused(alphabet: tuple[str, ...], slots: int) -> None:
    with pytest.raises(ValueError, match=r"alphabet|needs a label"):
        Space(alphabet, slots)


def test_the_neighbours_are_exactly_those_of_each_move() -> None:
    found: dict[Kind, set[str]] = {kind: set() for kind in Kind}
    for kind, sequence in neighbours(("a", "b"), SPACE):
        found[kind].add("".join(sequence))
    assert found == {
        Kind.INSERT: {"cab", "acb", "abc"},
        Kind.REMOVE: {"a", "b"},
        Kind.MOVE: {"ba"},
        Kind.SWAP: {"ba"},
        Kind.REPLACE: {"cb", "ac"},
    }


def test_all_neighbours_are_in_the_space() -> None:
    space = Space(tuple("abcdef"), slots=4, repeats=2)
    found = [sequence for _, sequence in neighbours(tuple("abca"), space)]
    assert all(space.holds(sequence) for sequence in found)
    assert tuple("abca") not in found
    assert max(map(len, found)) == 4


def test_random_sequences_put_first_what_is_predicted_to_gain() -> None:
    space = Space(tuple("abcde"), slots=4)
    gains = {"a": -1.0, "b": -1.0, "c": 3.0, "d": -1.0, "e": -1.0}
    rng = np.random.default_rng(0)
    drawn = [random_sequence(space, rng, gains) for _ in range(200)]
    assert all(space.holds(sequence) for sequence in drawn)
    assert Counter(sequence[0] for sequence in drawn)["c"] > 100
    even = [random_sequence(space, rng) for _ in range(500)]
    assert all(50 < count < 150 for count in Counter(s[0] for s in even).values())
    assert {len(sequence) for sequence in even} == {1, 2, 3, 4}

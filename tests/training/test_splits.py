"""Families on one side of a split."""

from __future__ import annotations

from passwright.training.splits import folds


def test_every_family_is_in_one_part_and_parts_are_about_as_large() -> None:
    families = ["mmoe"] * 10 + ["dcn"] * 6 + ["ple"] * 4 + ["din"] * 3 + ["afm"]
    found = folds(families, 3)
    assert sorted(name for part in found for name in part) == ["afm", "dcn", "din", "mmoe", "ple"]
    sizes = [sum(families.count(name) for name in part) for part in found]
    assert sorted(sizes) == [7, 7, 10]


def test_no_more_parts_than_families_and_the_same_in_any_order() -> None:
    assert folds(["a", "b"], 5) == folds(["b", "a"], 5)
    assert len(folds(["a", "b"], 5)) == 2

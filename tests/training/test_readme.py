"""The README says what the committed runs say."""

from __future__ import annotations

from pathlib import Path

from passwright.training.readme import with_tables

ROOT = Path(__file__).parents[2]


def test_tables_are_those_of_the_committed_runs() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert text.count("<!-- table ") == 2
    assert text.count("<!-- settings -->") == 1
    assert with_tables(text, ROOT) == text


def test_the_bench_is_the_committed_one() -> None:
    text = (ROOT / "docs" / "headroom.md").read_text(encoding="utf-8")
    assert text.count("<!-- bench ") == 1
    assert with_tables(text, ROOT / "docs") == text


def test_a_table_typed_by_hand_would_be_found_out() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    forged = text.replace("own:split_cat", "own:splitcat")
    assert forged != text
    assert with_tables(forged, ROOT) != forged

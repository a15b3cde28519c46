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


def test_levels_and_settings_are_those_of_the_committed_runs() -> None:
    text = (ROOT / "docs" / "inductor-ir.md").read_text(encoding="utf-8")
    assert text.count("<!-- levels ") == 4
    assert text.count("<!-- groups ") == text.count("<!-- choices -->") == 1
    assert with_tables(text, ROOT / "docs") == text


def test_evaluations_and_the_learning_curve_are_the_committed_ones() -> None:
    text = (ROOT / "docs" / "learning.md").read_text(encoding="utf-8")
    assert text.count("<!-- evaluation ") == 2
    assert text.count("<!-- curve ") == 1
    assert with_tables(text, ROOT / "docs") == text


def test_samplers_are_those_of_the_committed_run() -> None:
    text = (ROOT / "docs" / "measuring.md").read_text(encoding="utf-8")
    assert text.count("<!-- samplers ") == 1
    assert with_tables(text, ROOT / "docs") == text


def test_the_data_card_counts_the_committed_records() -> None:
    text = (ROOT / "data" / "RECORDS.md").read_text(encoding="utf-8")
    assert text.count("<!-- records ") == 1
    assert with_tables(text, ROOT / "data") == text


def test_what_is_marked_for_others_is_left_alone() -> None:
    text = "<!-- patterns -->\nx\n<!-- end -->\n"
    assert with_tables(text, ROOT) == text


def test_the_headroom_is_the_committed_one() -> None:
    text = (ROOT / "docs" / "headroom.md").read_text(encoding="utf-8")
    assert text.count("<!-- headroom ") == 1
    assert with_tables(text, ROOT / "docs") == text


def test_a_table_typed_by_hand_would_be_found_out() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    forged = text.replace("own:split_cat", "own:splitcat")
    assert forged != text
    assert with_tables(forged, ROOT) != forged

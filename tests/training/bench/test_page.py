"""docs/benchmark.md names the rivals, the suites and the options that there are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from passwright.scheduler import cli
from passwright.training.bench.rivals import all_rivals, has_graphs
from passwright.training.bench.suites import SUITES
from passwright.training.readme import _WRITERS

PAGE = (Path(__file__).parents[3] / "docs" / "benchmark.md").read_text(encoding="utf-8")


def first_column(heading: str) -> list[str]:
    section = PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    return re.findall(r"^\| `([^`]+)` \|", section, re.MULTILINE)


def test_rivals_and_suites_are_those_that_there_are() -> None:
    plain = [rival.name for rival in all_rivals() if not has_graphs(rival.name)]
    assert first_column("Who is compared") == plain
    assert first_column("Suites") == list(SUITES)


@pytest.mark.parametrize("name", list(SUITES))
def test_batches_and_precisions_are_those_of_the_suite(name: str) -> None:
    [line] = [line for line in PAGE.splitlines() if line.startswith(f"| `{name}` |")]
    batch, precision = (cell.strip() for cell in line.strip("|").split("|")[-2:])
    assert batch == ", ".join(map(str, SUITES[name].batches))
    assert precision == ", ".join(SUITES[name].precisions)


def test_options_and_marks_exist() -> None:
    shown = CliRunner(env={"COLUMNS": "200"}).invoke(cli.app, ["bench", "--help"]).stdout
    asked = set(re.findall(r"--[a-z-]+[a-z]", PAGE))
    assert [option for option in asked if option not in shown] == []
    marks = set(re.findall(r"<!-- (\w+) data", PAGE))
    assert marks
    assert marks <= set(_WRITERS)

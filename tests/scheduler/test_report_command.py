"""`passwright report`: what it refuses, what it writes, and how it ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_runs import assert_refused, run
from reports import data_report, model_report

from passwright.training.report.content import to_json

pytestmark = pytest.mark.usefixtures("commands_plans")

TOY = """
import torch
from torch import nn

class Split(nn.Module):
    def forward(self, x):
        for _ in range(2):
            x = torch.cat([torch.relu(piece) for piece in x.split(8, dim=1)], dim=1)
        return x

class Broken(Split):
    def forward(self, x):
        y = super().forward(x)
        torch._dynamo.graph_break()
        return super().forward(y + 1)

def make(batch=16):
    return Split(), (torch.randn(batch, 64),)

def broken(batch=16):
    return Broken(), (torch.randn(batch, 64),)

class Twice(nn.Module):
    def forward(self, x):
        x = part(x)
        torch._dynamo.graph_break()
        return part(x)

def part(x):
    return torch.cat([torch.relu(piece) for piece in x.split(8, dim=1)], dim=1)

def twice(batch=16):
    return Twice(), (torch.randn(batch, 64),)

def failing(batch=16):
    class Failing(nn.Module):
        def forward(self, x):
            return x @ torch.ones(3, 3)
    return Failing(), (torch.randn(batch, 64),)
"""


@pytest.fixture
def toy(tmp_path: Path) -> str:
    path = tmp_path / "toy.py"
    path.write_text(TOY, encoding="utf-8")
    return str(path)


@pytest.fixture
def page(tmp_path: Path) -> Path:
    return tmp_path / "pages" / "report.html"


def test_it_teaches_by_example() -> None:
    result = run("report", "--help")
    assert result.exit_code == 0
    assert "passwright report" in result.stdout.partition("Examples:")[2]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "name a MODEL"),
        (("own:split_cat", "--data", "committed"), "MODEL and --data"),
        (("--data", "committed", "--from", "x.json"), "--data and --from"),
    ],
)
def test_one_thing_at_a_time(arguments: tuple[str, ...], words: str) -> None:
    result = run("report", *arguments)
    assert result.exit_code == 2
    assert words in result.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--from", "no_such.json"), ("no_such.json",)),
        (("--plan", "no_such.plan"), ("no_such.plan",)),
        (("--data", "no_such"), ("no records",)),
        (("own:no_such",), ("no_such",)),
    ],
)
def test_what_cannot_be_had_is_told_in_a_line(
    arguments: tuple[str, ...], words: tuple[str, ...], page: Path
) -> None:
    assert_refused(run("report", *arguments, "--output", str(page)), *words)
    assert not page.exists()


def test_a_model_without_measuring(toy: str, page: Path) -> None:
    file = page.with_suffix(".json")
    result = run(
        "report", f"{toy}:make", "--no-measure", "--output", str(page), "--json", str(file)
    )
    assert result.exit_code == 0, result.stderr
    assert f"written: {page}" in result.stderr
    assert "clean_up" in result.stdout
    found = json.loads(file.read_text(encoding="utf-8"))
    assert found["kind"] == "model"
    assert found["found"] is None
    assert found["steps"][0]["pattern"] == "clean_up"
    assert found["graphs"][0]["after"]["nodes"]
    assert "clean-up is free" in page.read_text(encoding="utf-8")


def test_several_graphs_are_told_apart(toy: str, page: Path) -> None:
    file = page.with_suffix(".json")
    result = run(
        "report", f"{toy}:broken", "--no-measure", "--output", str(page), "--json", str(file)
    )
    assert result.exit_code == 0, result.stderr
    found = json.loads(file.read_text(encoding="utf-8"))
    assert [graph["number"] for graph in found["graphs"]] == [1, 2]
    assert {step["graph"] for step in found["steps"]} == {1, 2}
    assert "Torch-IR, graph 2" in page.read_text(encoding="utf-8")


def test_graphs_that_are_alike_count_each(toy: str, page: Path) -> None:
    file = page.with_suffix(".json")
    result = run(
        "report", f"{toy}:twice", "--no-measure", "--output", str(page), "--json", str(file)
    )
    assert result.exit_code == 0, result.stderr
    found = json.loads(file.read_text(encoding="utf-8"))
    assert [graph["alike"] for graph in found["graphs"]] == [2]
    assert {graph["alike"] for graph in found["below"]} == {2}


def test_a_plan_of_another_model_is_said_to_be_one(toy: str, tmp_path: Path, page: Path) -> None:
    plan = tmp_path / "other.plan"
    head = "# passwright plan 1\n# graph abc torch inference cpu\n"
    plan.write_text(f"{head}batch_linears{{members=4}} @ abc:def\n", encoding="utf-8")
    result = run(
        "report", f"{toy}:make", "--plan", str(plan), "--no-measure", "--output", str(page)
    )
    assert result.exit_code == 0, result.stderr
    assert "Nothing is replayed. No step of the plan fits here (1 skipped)" in result.stdout
    assert "No gain expected" not in page.read_text(encoding="utf-8")


def test_a_model_that_does_not_run_ends_with_1(toy: str, page: Path) -> None:
    result = run("report", f"{toy}:failing", "--output", str(page))
    assert result.exit_code == 1
    assert "not complete: it does not run" in result.stdout
    assert page.exists()


def test_a_plan_alone_and_a_plan_with_its_model(toy: str, tmp_path: Path, page: Path) -> None:
    plan = tmp_path / "toy.plan"
    assert run("plan", f"{toy}:make", "--output", str(plan)).exit_code == 0
    alone = run("report", "--plan", str(plan), "--output", str(page))
    assert alone.exit_code == 0, alone.stderr
    assert "note: Made from a plan alone" in alone.stdout
    plan.write_text("".join(plan.read_text().splitlines(keepends=True)[:3]), encoding="utf-8")
    both = run("report", f"{toy}:make", "--plan", str(plan), "--no-measure", "--output", str(page))
    assert both.exit_code == 0, both.stderr
    assert "not predicted, not measured" in both.stdout
    assert "found in the plan store" not in page.read_text(encoding="utf-8")
    assert "given by a plan file" in both.stdout or "clean-up is free" in both.stdout
    assert "Steps (1)" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize("report", [model_report(), data_report()], ids=["model", "data"])
def test_a_page_is_made_again_from_its_json(report: object, tmp_path: Path, page: Path) -> None:
    file = tmp_path / "report.json"
    file.write_text(to_json(report), encoding="utf-8")
    again = tmp_path / "again.json"
    result = run("report", "--from", str(file), "--output", str(page), "--json", str(again))
    assert result.exit_code == 0, result.stderr
    assert again.read_text(encoding="utf-8") == file.read_text(encoding="utf-8")
    assert page.stat().st_size > 1_000_000


def test_ctrl_c_writes_what_there_is_and_ends_with_130(
    toy: str, page: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("passwright.training.report.of_model.time_plan", interrupt)
    result = run("report", f"{toy}:make", "--output", str(page))
    assert result.exit_code == 130
    assert "not complete: stopped by Ctrl-C" in result.stdout
    text = page.read_text(encoding="utf-8")
    assert "This report is not complete" in text
    assert "clean-up is free" in text


@pytest.mark.parametrize("option", ["--output", "--json"])
@pytest.mark.parametrize("place", ["file/report", "folder"])
def test_a_file_that_cannot_be_written_is_named_before_anything_is_done(
    option: str, place: str, toy: str, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    target = str(tmp_path / place)
    more = () if option == "--output" else ("--output", str(tmp_path / "page.html"))
    assert_refused(run("report", f"{toy}:make", option, target, *more), target, "cannot be written")
    assert [*(tmp_path / "folder").iterdir()] == []


def test_page_and_json_are_two_files(toy: str, page: Path) -> None:
    assert_refused(run("report", f"{toy}:make", "--output", str(page), "--json", str(page)), "each")


def test_a_disk_that_is_full_in_the_end_costs_the_file_alone(
    toy: str, page: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    really = Path.replace

    def full(self: Path, target: Path) -> Path:
        if target == page:
            raise OSError(28, "No space left on device")
        return really(self, target)

    monkeypatch.setattr(Path, "replace", full)
    result = run("report", f"{toy}:make", "--no-measure", "--output", str(page))
    assert result.exit_code == 2
    assert "No space left" in result.stderr
    assert "clean_up" in result.stdout

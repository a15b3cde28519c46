"""docs/patterns.md says what was counted, and counting counts what is there."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import typer
from torch import fx
from typer.testing import CliRunner

from passwright.passes.errors import WorkloadError
from passwright.passes.graph import GraphView
from passwright.passes.matching import Rewriter
from passwright.passes.spec import Spec
from passwright.passes.table import default_table
from passwright.passes.testing import capture, text
from passwright.training import pattern_table
from passwright.training.pattern_counts import STEPS, Count, count_graph, everything, relabel
from passwright.training.pattern_page import (
    Report,
    Row,
    load,
    model_rows,
    pattern_rows,
    save,
    with_candidates,
    with_tables,
)
from passwright.training.workloads import names

ROOT = Path(__file__).parents[2]
PAGE, FILE = ROOT / pattern_table.PAGE, ROOT / pattern_table.FILE
PUBLIC = [name for name in names() if name.startswith("zoo:")]


# ---- what is committed


def test_the_page_is_that_of_the_committed_counts() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page.count("<!-- patterns -->") == page.count("<!-- models -->") == 1
    assert with_tables(page, load(FILE), default_table()) == page, (
        "run `python -m passwright.training.pattern_table --markdown`"
    )


def test_a_number_typed_by_hand_would_be_found_out() -> None:
    page = PAGE.read_text(encoding="utf-8")
    forged = page.replace("| `batch_linears` |", "| `batch_linear` |")
    assert forged != page
    assert with_tables(forged, load(FILE), default_table()) == page


def test_most_public_models_have_candidates() -> None:
    report = load(FILE)
    counted = {(row.model.partition("?")[0], row.train) for row in report.rows}
    assert counted == {(name, train) for name in PUBLIC for train in (False, True)}
    assert [f"{row.model}: {row.why}" for row in report.rows if row.why] == []
    assert len(with_candidates(report)) >= 30


def test_everything_makes_graphs_of_public_models_smaller() -> None:
    rows = load(FILE).rows
    assert all(row.count.ops[1] <= row.count.ops[0] for row in rows), "clean-up adds ops"
    assert sum(row.count.ops[2] < row.count.ops[1] for row in rows) > len(rows) / 2


# ---- counting


def towers(x: torch.Tensor, *weights: torch.Tensor) -> list[torch.Tensor]:
    return [torch.tanh(F.linear(x.reshape(6, 8).reshape(4, 12), w)) for w in weights]


def graph_of(function: Any, *inputs: torch.Tensor) -> fx.GraphModule:
    module, _ = capture(function, inputs)
    return module


def test_counts_of_one_graph() -> None:
    module = graph_of(towers, torch.rand(48), torch.rand(3, 12), torch.rand(3, 12))
    before = text(module.graph)
    table = default_table().only(["merge_reshapes", "merge_duplicates", "widen_linears"])
    with torch.no_grad():
        count = count_graph(module, table)
    assert text(module.graph) == before, "the captured graph was changed"
    # Two reshapes, a Linear and a tanh in each tower; clean-up leaves one reshape for both, and
    # widening makes of two Linears one, with a joined weight, a split and its pieces. Outputs show
    # their strides, so that there is a copy for each.
    assert count == Count(
        (8, 5, 10),
        {"merge_reshapes": 2, "merge_duplicates": 1, "widen_linears": 1},
        {"widen_linears": 1},
    )


def test_patterns_that_undo_each_other_come_to_an_end() -> None:
    module = graph_of(
        lambda index, table: F.embedding(index, table).sum(1).sin(),
        torch.randint(0, 5, (4, 3)),
        torch.rand(5, 8),
    )
    table = default_table().only(["sum_as_bag", "bag_as_sum"])
    with torch.no_grad():
        steps, refused = everything(Rewriter(GraphView(module.graph), table))
    # The first sum is respelled on the way, and so is another candidate the second time.
    assert (steps, refused) == ({"sum_as_bag": 2, "bag_as_sum": 1}, 0)


def test_no_pattern_goes_on_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("passwright.training.pattern_counts.STEPS", 2)
    module = graph_of(
        lambda *pairs: [F.linear(x[:, :1], x[:2, :1]).sin() for x in pairs],
        *(torch.rand(4, 8 + i) for i in range(5)),
    )
    table = default_table().only(["linear_of_one"])
    with torch.no_grad():
        steps, _ = everything(Rewriter(GraphView(module.graph), table))
    assert STEPS > 2
    assert steps == {"linear_of_one": 2}


def test_what_lowers_precision_is_counted_and_not_done() -> None:
    module = graph_of(lambda *xs: [F.dropout(x, 0.5, True) for x in xs], *torch.rand(3, 4, 8))
    with torch.no_grad():
        count = count_graph(module, default_table())
    assert count.candidates["batch_dropouts"] > 0
    assert "batch_dropouts" not in count.steps


# ---- as on a GPU


def test_candidates_that_want_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("passwright.passes.legality.importable", lambda: True)
    module = graph_of(
        lambda x, y, v, w: [F.linear(x, v).sin(), F.linear(y, w).sin()],
        *(torch.rand(*shape) for shape in ((4, 8), (4, 6), (3, 8), (5, 6))),
    )
    with torch.no_grad():
        count = count_graph(module, default_table(), as_gpu=True)
    assert count.gpu_candidates is not None
    assert count.gpu_candidates["group_linears"] > 0
    assert "group_linears" not in count.candidates
    devices = {
        value.meta["example_value"].device.type for value in module.graph.nodes if value.users
    }
    assert devices == {"cpu"}, "the captured graph was changed"


def test_relabelled_values_lie_as_before() -> None:
    module = graph_of(
        lambda x: (lambda t: [t.sin(), t[1:].cos(), *torch.split(t, 2)])(x.mT),
        torch.rand(6, 4, dtype=torch.float64).requires_grad_(),
    )
    there = copy.deepcopy(module.graph)
    relabel(there, "cuda")
    here, moved = GraphView(module.graph), GraphView(there)
    pairs = list(zip(module.graph.nodes, there.nodes, strict=True))
    seen: dict[int, int] = {}
    for old, new in pairs:
        before, after = here.any_spec(old), moved.any_spec(new)
        if not isinstance(before, Spec) or not isinstance(after, Spec):
            continue
        assert (after.device.type, before.device.type) == ("cuda", "cpu")
        for name in ("shape", "stride", "offset", "dtype"):
            assert getattr(before, name) == getattr(after, name), (old, name)
        assert seen.setdefault(before.storage, after.storage) == after.storage, old
        assert here.needs_grad(old) == moved.needs_grad(new), old
    assert len(seen) == len(set(seen.values())) == 3


# ---- the file


def report(**changes: Any) -> Report:
    count = Count((9, 8, 4), {"batch_linears": 2}, {"batch_linears": 1}, 0, {"group_linears": 1})
    rows = (
        Row("zoo:a", False, count),
        Row("zoo:a", True, count),
        Row("zoo:b", True, why="no | luck"),
    )
    made = Report("2026-01-02", "2.13", "0.1", "3.11", "v1", ("batch_linears", "group_linears"))
    return replace(made, as_gpu=True, rows=rows, **changes)


def test_a_report_comes_back_from_its_file(tmp_path: Path) -> None:
    path = tmp_path / "new" / "counts.json"
    save(report(), path)
    assert load(path) == report()


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"format": 2}', '{"format": 1, "rows": [{}]}']
)
def test_another_file_is_refused(content: str, tmp_path: Path) -> None:
    path = tmp_path / "counts.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(WorkloadError, match="not written by"):
        load(path)


def test_rows_of_other_patterns_do_not_count() -> None:
    assert report().continues(report(date="later"))
    for change in ({"version": "v2"}, {"torch": "2.14"}, {"fields": 4}):
        assert not report().continues(report(**change))


# ---- tables


def test_the_tables() -> None:
    lines = pattern_rows(report(), default_table()).splitlines()
    rows = {line.split(" | ")[0].strip("| `"): line.split(" | ") for line in lines if "`" in line}
    assert rows["batch_linears"][1:7] == [
        *("`linears.py`", "horizontal", "torch+aten", "reassociating", "1", "0")
    ]
    assert rows["group_linears"][5:7] == ["0", "1"]
    assert rows["widen_linears"][5:7] == ["?", "?"], "it was not among those counted"
    assert rows.keys() == {pattern.name() for pattern in default_table()}
    models = model_rows(report()).splitlines()
    assert models[0].startswith("1 of 2 models")
    assert "| zoo:a | 9 / 9 | 8 / 8 | 4 / 4 | 1 / 1 | 2 / 2 | 1 / 1 |" in models
    assert "| zoo:b | ? / ? | ? / ? | ? / ? | ? / ? | ? / ? | ? / ? |" in models
    assert "- Not counted: zoo:b (training): no | luck." in models


# ---- the command


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, bool]]:
    """What the command counted; nothing is captured."""
    found: list[tuple[str, bool]] = []

    def count(name: str, train: bool, *, as_gpu: bool) -> Row:
        found.append((name, train))
        return Row(name, train, Count((3, 2, 1), {"batch_linears": 1}))

    monkeypatch.setattr(pattern_table, "counted", count)
    return found


def run(*options: object, code: int = 0) -> None:
    app = typer.Typer()
    app.command()(pattern_table.pattern_table)
    result = CliRunner().invoke(app, [str(option) for option in options])
    assert result.exit_code == code, result.output


def test_it_goes_on_where_it_stopped(tmp_path: Path, counted: list[tuple[str, bool]]) -> None:
    path = tmp_path / "counts.json"
    options = ("--json", path, "--models", "own:split_cat")
    run(*options)
    assert counted == [("own:split_cat", False), ("own:split_cat", True)]
    run(*options, "--models", "own:norm_branches")
    assert counted[2:] == [("own:norm_branches", False), ("own:norm_branches", True)]
    assert [row.model for row in load(path).rows] == [name for name, _ in counted]
    run(*options, "--as-gpu")
    assert len(counted) == 6, "other options were taken for the same"


def test_the_time_limit(tmp_path: Path, counted: list[tuple[str, bool]]) -> None:
    run("--json", tmp_path / "counts.json", "--models", "own:split_cat", "--time-limit", 0, code=1)
    assert counted == []


def test_models_with_fewer_fields(tmp_path: Path, counted: list[tuple[str, bool]]) -> None:
    path = tmp_path / "counts.json"
    run("--json", path, "--models", "zoo:deepctr/PLE", "--fields", 4)
    assert counted[0] == ("zoo:deepctr/PLE?fields=4", False)
    assert load(path).fields == 4


def test_an_unknown_model(tmp_path: Path) -> None:
    run("--json", tmp_path / "counts.json", "--models", "zoo:deepctr/PLEASE", code=2)


def test_a_model_that_fails_is_kept_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_args: object, **_kwargs: object) -> Count:
        raise ValueError("no luck")

    monkeypatch.setattr("passwright.training.pattern_counts.count_model", broken)
    assert pattern_table.counted("own:split_cat", False, as_gpu=False).why == "ValueError: no luck"


def test_markdown_writes_the_page(tmp_path: Path) -> None:
    path, page = tmp_path / "counts.json", tmp_path / "page.md"
    save(report(), path)
    page.write_text("Mine.\n<!-- models -->\nold\n<!-- end -->\nToo.\n", encoding="utf-8")
    run("--json", path, "--page", page, "--markdown")
    written = page.read_text(encoding="utf-8")
    assert written.startswith("Mine.\n<!-- models -->\n1 of 2 models")
    assert written.endswith("<!-- end -->\nToo.\n")
    assert "old" not in written

"""What rows come to: means, the worst, aims, tables and the picture; all worked out from the rows alone."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest
from bench_runs import SECONDS, case, report, row, rows, times

from passwright.training.bench import picture, summary, table
from passwright.training.bench.rivals import COMBO, EAGER, OPTIMUS, PREDICT, graphs
from passwright.training.bench.rows import Report, Row, State, load, save
from passwright.training.bench.summary import Figures, aims, figures, groups, of_case
from passwright.training.headroom.final import DEFAULT
from passwright.training.readme import with_tables
from passwright.training.workloads.illustrative import FULL

A, B = case("zoo:a"), case("zoo:b")
ROOT = Path(__file__).parents[3]


def both(**changes: float) -> Report:
    """Two models; on the second predict takes another time."""
    return report(*rows(A), *rows(B, **changes))


def line(found: Report, rival: str, mode: str = "infer") -> Figures:
    [group] = groups(found)
    [one] = [f for f in figures(found, group) if (f.rival, f.mode) == (rival, mode)]
    return one


def test_means_are_geometric_and_the_worst_is_named() -> None:
    one = line(both(predict=16e-3), PREDICT)
    assert one.device == pytest.approx((2.0 * 0.5) ** 0.5)
    assert one.worst == (pytest.approx(0.5), "zoo:b")
    assert one.over_combo == pytest.approx((1.5 * 6 / 16) ** 0.5)
    assert one.compile == pytest.approx(0.75)
    assert one.memory == pytest.approx(1.0)
    assert one.kernels == pytest.approx((0.5 * 2.0) ** 0.5)
    assert (one.right, one.cases) == (2, 2)


def test_rivals_with_cuda_graphs_are_compared_with_default_compile_with_them() -> None:
    one = line(both(), graphs(PREDICT))
    assert one.device is None
    assert one.wall == pytest.approx(2.0)
    # Its 4 ms against the 16 ms that default compile takes with eager launches.
    assert one.over_launches == pytest.approx(4.0)


def test_only_what_is_right_counts() -> None:
    found = both().with_rows([row(B, DEFAULT), row(B, PREDICT, 1e-5, state=State.WRONG, why="off")])
    one = line(found, PREDICT)
    assert one.device == pytest.approx(2.0)
    assert (one.right, one.cases, one.bad) == (1, 2, ((State.WRONG, 1),))
    assert "(1 wrong)" in table.summary_markdown(found)
    assert "zoo:b x64 tf32 infer, predict: wrong: off" in table.summary_markdown(found)


def test_precisions_and_suites_stand_apart() -> None:
    others = [case("zoo:a", precision="fp32"), case("kernelbench:level1/1_A", suite="kernelbench")]
    found = report(*rows(A), *(r for other in others for r in rows(other)))
    titles = [group.title for group in groups(found)]
    assert sorted(titles) == [
        "kernelbench, tf32, batch 64, relaxed precision",
        "public, fp32, batch 64",
        "public, tf32, batch 64",
    ]


def test_batches_of_one_model_are_told_apart_everywhere() -> None:
    small, large = case("zoo:a", batch=1), case("zoo:a", batch=16)
    found = report(*rows(small), *rows(large, predict=9e-3))
    [group] = groups(found)
    by_wall = table.launched(found, group)
    assert by_wall is not None
    for grid in (table.models(found, group), by_wall):
        assert [line[0] for line in grid.rows] == ["zoo:a x1", "zoo:a x16"]
    [one] = [line for line in figures(found, group) if line.rival == PREDICT]
    assert one.worst is not None
    assert one.worst[1] == "zoo:a x16"
    assert ">a x16</text>" in picture.svg(found)


def met(found: Report) -> dict[str, bool]:
    return {aim.text: aim.met for aim in aims(found)}


def test_aims_that_are_met() -> None:
    found = report(*rows(A), *rows(case("zoo:a", True)))
    assert set(met(found).values()) == {True}
    assert len(met(found)) == 2 * 7
    assert aims(report(*rows(case("zoo:a", suite="models")))) == []


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"peak_bytes": 1500}, "peak memory of a step, of default compile's"),
        ({"compile_seconds": 19.0}, "compile seconds, decisions included"),
        ({"wall": times(12e-3, "wall")}, "wall time with eager launches, no worse"),
        ({"device": times(9e-3)}, "the worst model"),
        ({"device": times(7e-3)}, "device time over combo kernels"),
        ({"state": State.FAILED}, "compiled and right"),
    ],
)
def test_each_aim_can_be_missed(changes: dict[str, object], text: str) -> None:
    mine = [r for r in rows(A) if r.rival != PREDICT]
    found = report(*mine, row(A, PREDICT, **changes))
    assert met(found)[f"inference: {text}"] is False
    assert f"NOT MET: inference: {text}" in table.summary_markdown(found)


def test_the_illustrative_model_is_told_under_both_launches() -> None:
    own = case("own:illustrative?fields=32", suite="illustrative", precision="bf16")
    [aim] = aims(report(*rows(own)))
    assert aim.met
    assert aim.figure == (
        "80 -> 40 kernels, 2.00x with eager launches, 2.00x on the device, cuda-graph,"
        " 2.00x under CUDA graphs, wall time"
    )


def test_the_whole_illustrative_model_has_figures_to_reach() -> None:
    own = case(FULL, suite="illustrative-full", precision="bf16")
    [missed] = aims(report(*rows(own)))
    assert not missed.met
    assert missed.wanted == "at most 6 kernels, at least 364x with eager launches"
    few = row(own, PREDICT, 8e-3 / 400, kernels=6, wall=times(1e-2 / 400, "wall"))
    default = row(own, DEFAULT, 8e-3, wall=times(1e-2, "wall"))
    [reached] = aims(report(default, few))
    assert reached.met


def test_a_line_about_a_case() -> None:
    found = rows(A)
    assert of_case(found).startswith("eager 0.89x, Optimus 1.00x, combo kernels 1.33x")
    bad = [r if r.rival != OPTIMUS else replace(r, state=State.TIMEOUT) for r in found]
    assert of_case(bad).endswith("; Optimus (timeout)")
    without = [Row(A, DEFAULT, State.FAILED, "no memory"), row(A, EAGER)]
    assert of_case(without) == "default compile: no memory"


# ---- tables


def test_the_tables() -> None:
    text = table.markdown(both())
    assert (
        "| model | mode | default, us (kernels) | eager | Optimus | combo kernels | predict | tune |"
        in text
    )
    assert "| zoo:a | infer | 8028 (80) | 0.89x | 1.00x | 1.33x | 2.00x | 2.67x |" in text
    assert "**public, tf32, batch 64: under CUDA graphs, geometric means**" in text
    predict = next(one for one in text.splitlines() if one.startswith("| predict | inference"))
    assert predict == (
        "| predict | inference | 2.00x | 2.00x | 1.50x | 2.00x | 1.00 | 0.50 | 0.75 | 2 of 2 |"
    )
    by_wall = table.launched(both(), groups(both())[0])
    assert by_wall is not None
    cells = dict(zip(by_wall.columns, by_wall.rows[0], strict=True))
    assert cells["predict"] == "8028 (2.00x) / 4014 (4.00x)"


def test_what_was_not_measured_is_said_in_the_tables() -> None:
    bad = [Row(A, COMBO, State.FAILED, "RuntimeError: no\nand more"), *rows(A)[:2]]
    found = report(*bad, not_run=(B,))
    text = table.markdown(found)
    assert "failed" in text
    assert "zoo:a x64 tf32 infer, combo kernels: failed: RuntimeError: no\n" in text
    assert "1 cases were not run: zoo:b x64 tf32 infer." in text


def test_a_page_is_written_from_its_file(tmp_path: Path) -> None:
    save(both(), tmp_path / "bench.json")
    text = "<!-- bench bench.json -->\nforged\n<!-- end -->\n<!-- benchmodels bench.json -->\n<!-- end -->"
    found = with_tables(text, tmp_path)
    assert "| predict | inference | 2.00x |" in found
    assert "| zoo:b | infer | 8028 (80) |" in found
    assert "forged" not in found
    assert with_tables(found, tmp_path) == found


# ---- the picture


def test_the_picture_has_a_mark_for_each_gain() -> None:
    found = report(*rows(A), *rows(case("zoo:a", True)), *rows(B, predict=2e-3))
    drawing = picture.svg(found)
    root = ET.fromstring(drawing)
    space = {"svg": "http://www.w3.org/2000/svg"}
    marks = root.findall(".//svg:circle", space)
    names = ("optimus", "combo-kernels", "predict", "tune")
    drawn = {name: sum(m.get("class") == name for m in marks) for name in names}
    # One for each model and mode, and one in the legend.
    assert drawn == dict.fromkeys(names, 4)
    texts = [element.text for element in root.findall(".//svg:text", space)]
    assert texts.index("b") < texts.index("a")  # where predict gains most, first
    assert "prefers-color-scheme: dark" in drawing
    assert picture.svg(found) == drawing
    with pytest.raises(ValueError, match="no case of suite 'blocks'"):
        picture.svg(found, "blocks")


def test_long_names_have_room() -> None:
    name = "own:illustrative?fields=32,width=64,layers=8"
    space = {"svg": "http://www.w3.org/2000/svg"}
    found = []
    for model in ("zoo:a", name):
        root = ET.fromstring(picture.svg(report(*rows(case(model)))))
        [label] = [
            t for t in root.findall(".//svg:text", space) if t.text == model[-len(t.text or "") :]
        ]
        found.append((float(label.get("x", "0")), float(root.get("width", "0"))))
    assert found[1][0] > 6 * len(name)
    assert found[1][1] - found[0][1] == found[1][0] - found[0][0]


def test_marks_stand_where_the_gains_are() -> None:
    root = ET.fromstring(picture.svg(report(*rows(A))))
    space = {"svg": "http://www.w3.org/2000/svg"}
    marks = {}
    for mark in root.findall(".//svg:circle", space):
        marks[mark.get("class")] = float(mark.get("cx", "0"))  # the legend's come first
    assert marks["optimus"] < marks["combo-kernels"] < marks["predict"] < marks["tune"]
    assert SECONDS[PREDICT] > SECONDS["tune"]


def test_committed_pictures_are_those_of_the_committed_runs() -> None:
    for drawing in (ROOT / "docs").glob("bench-*.svg"):
        source = ROOT / "data" / "reports" / f"{drawing.stem}.json"
        assert drawing.read_text(encoding="utf-8") == picture.svg(load(source))
    assert summary.COMPILE_AIM < 1.0


@pytest.mark.parametrize(("options", "name"), [({}, "toy; "), ({"devices": 4}, "4 x toy; ")])
def test_notes_say_how_many_gpus_there_were(options: dict[str, int], name: str) -> None:
    first, second, *_ = table.notes(report(*rows(case()), options=options))
    assert first.startswith(name)
    assert second.endswith("stand on one GPU.") is bool(options)

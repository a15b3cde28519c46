"""Pages as text: nothing of elsewhere, nothing that breaks out; tables and scripts that say the same."""

from __future__ import annotations

import builtins
import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from reports import NOTHING, PLAN, about, data_report, empty_report, model_report

from passwright.passes.errors import WorkloadError
from passwright.training.report import html, terminal
from passwright.training.report.charts import speed_axis
from passwright.training.report.content import Found, from_json, to_json
from passwright.training.report.html import render
from passwright.training.report.model_content import ModelReport
from passwright.training.report.numbers import change, measured_words, percent, size
from passwright.training.report.run import KINDS
from passwright.training.report.script import script_of

EVIL = "</script><script>alert(1)</script>\"'&<b>"


def own_parts(page: str) -> str:
    """Without Plotly's code, which names addresses that it never asks for here."""
    return re.sub(r"<script>(?!\"use strict\").*?</script>", "", page, count=1, flags=re.DOTALL)


@pytest.mark.parametrize("report", [model_report(), empty_report(), data_report()])
def test_a_page_has_all_it_needs(report: Any) -> None:
    page = render(report)
    own = own_parts(page)
    assert len(own) < len(page) / 2
    assert re.findall(r'(?:src|href)="(?!#|data:)[^"]*"', own) == []
    assert re.findall(r"url\((?!data:)", own) == []
    assert "default-src 'none'" in own
    assert page.count("</script>") == 3


def test_names_cannot_break_out_of_a_page() -> None:
    report = model_report(
        about=about(subject=EVIL, command=EVIL),
        notes=(EVIL,),
        left=(replace(model_report().left[0], label=EVIL, reason=EVIL),),
    )
    page = render(report)
    assert "alert(1)</script>" not in page
    assert page.count("</script>") == 3


def test_names_cannot_break_out_of_charts() -> None:
    point = replace(data_report().points[0], workload=EVIL)
    page = render(data_report(points=(point,)))
    assert page.count("</script>") == 3
    text = re.search(r'id="charts">(.*?)</script>', page, re.DOTALL)
    assert text is not None
    assert EVIL.replace("@", "<br>") in json.dumps(json.loads(text[1])).replace('\\"', '"')


def test_a_missing_package_is_named_with_the_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any, **more: Any) -> Any:
        if name == "plotly":
            raise ImportError("gone", name="plotly")
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(WorkloadError, match=r"plotly.*pip install 'passwright\[report\]'"):
        html.require()


# ---- numbers


def test_changes_share_a_unit() -> None:
    assert change(4.43e-3, 3.58e-3, "seconds") == "4.43 \u2192 3.58 ms"
    assert change(1.5, 3e-3, "seconds") == "1.5 s \u2192 3 ms"
    assert change(3, 3) == "3"
    assert change(None, 2048.0, "bytes") == "2 KiB"
    assert change(None, None) == "not measured"
    assert (size(10), size(3 << 20), percent(0.1)) == ("10 B", "3 MiB", "10.5 %")


@pytest.mark.parametrize("reach", [0.001, 0.05, 0.15, 0.2, 0.24, 0.3, 0.7, 1.0, 1.4, 2.5, 5.0])
def test_axes_of_speed_ups_have_some_ticks_and_no_crowd(reach: float) -> None:
    axis = speed_axis([-reach / 3, reach], "x")
    assert 1 in axis["tickvals"]
    assert 1 <= len(axis["tickvals"]) <= 9
    low, high = axis["range"]
    assert all(low <= math.log10(tick) <= high for tick in axis["tickvals"])
    # None of its ends is left bare.
    bare = 0.35 * (high - low)
    assert math.log10(axis["tickvals"][-1]) >= high - bare
    assert math.log10(axis["tickvals"][0]) <= low + bare


def test_a_report_says_in_words_what_was_found() -> None:
    assert measured_words(model_report()) == "1.35x [1.32, 1.38]"
    assert measured_words(empty_report()) == "the same code as default"
    assert measured_words(model_report(found=None)) == "nothing"


# ---- a terminal


def test_tables_of_a_model(capsys: pytest.CaptureFixture[str]) -> None:
    terminal.show(model_report(notes=("a remark",), ended="stopped by Ctrl-C"))
    out = capsys.readouterr().out
    for words in (
        "predicted 1.57x [1.42, 1.73], measured 1.35x [1.32, 1.38]: slower than predicted",
        "pattern_2",
        "surely gains by itself",
        "noise floor 1.0 %",
        "gain not certain enough",
        "cpp_fused_sin_0",
        "10 \u2192 4",
        "note: a remark",
        "not complete: stopped by Ctrl-C",
    ):
        assert words in out


def test_tables_of_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    terminal.show(empty_report())
    out = capsys.readouterr().out
    assert "No gain expected. 2 candidates were looked at; 1 may gain, and none is sure" in out
    assert "slower than predicted" not in out


def test_tables_of_a_data_set(capsys: pytest.CaptureFixture[str]) -> None:
    terminal.show(data_report())
    out = capsys.readouterr().out
    for words in ("3 records", "families it never saw", "Kendall's tau", "regret", "worst misses"):
        assert words in out


def without_predictions(**changes: Any) -> ModelReport:
    """As of a plan that was read from text."""
    plain = model_report()
    known = {
        "predicted": None,
        "steps": tuple(replace(step, gain=NOTHING, to_go=NOTHING) for step in plain.steps),
        "parts": tuple(replace(part, predicted=None, predicted_total=None) for part in plain.parts),
    }
    return replace(plain, **known | changes)


@pytest.mark.parametrize(
    "changes", [{}, {"found": None, "parts": ()}, {"found": empty_report().found}]
)
def test_what_was_not_predicted_did_not_fail(
    changes: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    report = without_predictions(**changes)
    assert from_json(to_json(report), KINDS, "here") == report
    page = own_parts(render(report))
    terminal.show(report)
    for text in (page, capsys.readouterr().out):
        assert "not predicted" in text
        assert "than predicted" not in text
        assert "1.00x [1.00, 1.00]" not in text
    assert report.misses == ()
    assert '"predicted, 90 %"' not in page


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"origin": "replayed", "skipped": ("tall @ x:y: not found",)}, "No step of the plan fits"),
        ({"stopped": "nothing to replay"}, "There is no plan for this graph"),
    ],
)
def test_a_plan_that_does_nothing_is_no_answer_about_gains(
    change: dict[str, Any], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = empty_report()
    report = replace(plain, graphs=(replace(plain.graphs[0], **change),), left=())
    terminal.show(report)
    for text in (own_parts(render(report)), capsys.readouterr().out):
        assert words in text
        assert "No gain expected" not in text
        assert "No pattern match" not in text
        assert "is the answer" not in text


def test_what_stands_in_brackets_is_shown_on_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    odd = "gradient of parts[x] [/b] is off"
    plain = model_report()
    assert plain.after is not None
    terminal.show(
        replace(
            plain,
            found=Found(0.3, None, None),
            after=replace(plain.after, agrees=False, agreement=odd),
        )
    )
    out = capsys.readouterr().out
    assert odd in out
    assert "1.35x [not known]" in out


def test_how_a_call_was_timed_is_said_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    plain = model_report()
    assert plain.before is not None
    report = replace(plain, before=replace(plain.before, method="cuda-graph"))
    terminal.show(report)
    for text in (own_parts(render(report)), capsys.readouterr().out):
        assert "on the device, replayed as a CUDA graph" in text


def test_graphs_that_are_alike_are_all_counted() -> None:
    graph = model_report().graphs[0]
    report = model_report(graphs=(replace(graph, alike=3), replace(graph, number=2)))
    assert report.ops == (4 * graph.ops_before, 4 * graph.ops_after)
    assert "graph 1, one of 3 alike" in render(report)


def test_a_plan_alone_has_no_script_and_no_threads() -> None:
    report = model_report(about=about(subject="runs/my.plan", threads=0))
    own = own_parts(render(report))
    assert "reproduce.py" not in own
    assert "thread" not in own
    assert "reproduce.py" in own_parts(render(model_report()))


# ---- the script


def test_the_script_is_python_with_all_plans() -> None:
    report = model_report(
        about=about(subject="my_model.py:make", settings={"min_gain": "0.05"}), train=True
    )
    text = script_of(report, "1.35x [1.32, 1.38]")
    names: dict[str, Any] = {"__name__": "read"}
    exec(compile(text, "reproduce.py", "exec"), names)
    assert names["MODEL"] == "my_model.py:make"
    assert (names["BATCH"], names["TRAIN"], names["DEVICE"]) == (8, True, "cpu")
    assert names["SETTINGS"] == {"min_gain": "0.05"}
    assert names["PLANS"] == [PLAN]
    assert "It needs the file my_model.py, by this path" in names["__doc__"]
    assert 'pip install "torch==2.13.0" "passwright==0.1.0"' in names["__doc__"]


@pytest.mark.parametrize("name", ['my"""x.py:make', "a\\N{x}\\x.py:make", "it's.py:make"])
def test_odd_names_are_python_too(name: str) -> None:
    text = script_of(model_report(about=about(subject=name, device='a "CPU"')), "nothing")
    names: dict[str, Any] = {"__name__": "read"}
    exec(compile(text, "reproduce.py", "exec"), names)
    assert names["MODEL"] == name


def test_a_script_without_plans_is_python_too() -> None:
    text = script_of(model_report(graphs=(), about=about(subject="zoo:a/B")), "nothing")
    names: dict[str, Any] = {"__name__": "read"}
    exec(compile(text, "reproduce.py", "exec"), names)
    assert names["PLANS"] == []
    assert "passwright[zoo]==0.1.0" in names["__doc__"]


@pytest.mark.inductor
@pytest.mark.slow
@pytest.mark.parametrize("how", [(), ("--replay",)])
def test_the_script_runs_by_itself(tmp_path: Path, how: tuple[str, ...]) -> None:
    import subprocess
    import sys

    report = model_report(about=about(subject="own:split_cat_sigmoid?fields=4"), batch=16)
    (tmp_path / "again.py").write_text(script_of(report, "1.35x"), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "again.py", "--seconds", "0.5", *how],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "measured: " in done.stdout
    assert "in the report:  1.35x, on some CPU" in done.stdout

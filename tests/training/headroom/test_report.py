"""The benchmark's report and its table, from recorded runs."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from headroom_runs import BATCHED, SECONDS, final, trial
from typer.testing import CliRunner

from passwright.passes.errors import WorkloadError
from passwright.scheduler import cli
from passwright.scheduler.plan import Plan
from passwright.training.demo_report import State
from passwright.training.headroom import table
from passwright.training.headroom.bound import KINDS, kind_of, sentence, summed
from passwright.training.headroom.final import DEFAULT, DEFAULT_COMBO, OURS, OURS_COMBO
from passwright.training.headroom.report import Report, Row, geometric_mean, load, save


def row(**changes: Any) -> Row:
    plain = Row(
        "own:a",
        False,
        64,
        State.MEASURED,
        trials=(trial(), trial(BATCHED, 4e-3, compile_seconds=7.5), trial(BATCHED, combo=True)),
        starts=(("nothing", "hash of nothing", 1e-3),),
        plans=({**vars(Plan("0123", steps=())), "steps": [], "left": [], "skipped": []},),
        final=final(),
        complete=True,
        seconds=42.0,
    )
    return replace(plain, **changes)


def report(*rows: Row) -> Report:
    return Report(
        date="2026-01-02",
        device={"kind": "cpu", "name": "Some Device"},
        versions={"torch": "2.13.0", "python": "3.11", "passwright": "0.1.0", "triton": None},
        context="0123",
        seed=0,
        seconds=12.0,
        rows=rows,
        options={"precision": "high"},
    )


def cells(shown: Row) -> dict[str, str]:
    return dict(zip(table.COLUMNS, table.cells(shown), strict=True))


def test_a_row_shows_all_four_and_the_ratios() -> None:
    assert cells(row()) == {
        "model": "own:a",
        "mode": "infer",
        "default us (kernels)": "8028 (20)",
        "default + combo": "6021 (20)",
        "ours": "4014 (10)",
        "ours + combo": "3010 (10)",
        "over default, 95 %": "2.67x [2.67, 2.67]",
        "over default + combo": "2.00x [2.00, 2.00]",
        "best over best": "2.00x [2.00, 2.00]",
        "tried": "3",
        "agrees": "yes",
    }


def test_best_over_best_takes_the_faster_of_each_side() -> None:
    slower = row(final=final(SECONDS | {DEFAULT_COMBO: 9e-3, OURS_COMBO: 5e-3}))
    assert (slower.best_default, slower.best_ours) == (DEFAULT, OURS)
    gain = slower.gain
    assert gain is not None
    assert gain.speedup == pytest.approx(2.0)
    assert slower.compile_seconds(OURS) == 7.5
    assert slower.compile_seconds(DEFAULT) == 12.5


def test_where_nothing_was_better_ours_is_default() -> None:
    same = row(final=final({DEFAULT: 8e-3, DEFAULT_COMBO: 6e-3}))
    shown = cells(same)
    assert shown["ours"] == shown["default us (kernels)"]
    assert shown["ours + combo"] == shown["default + combo"]
    assert shown["best over best"] == "1.00x [1.00, 1.00]"
    assert shown["agrees"] == "yes"
    assert "own:a infer, ours: nothing (0 steps)" in table.plans(report(same))


def test_a_variant_that_failed_says_why() -> None:
    sent = final({name: SECONDS[name] for name in (DEFAULT, OURS)})
    sent["variants"][DEFAULT_COMBO] = {"state": "nothing", "why": "RuntimeError: no"}
    sent["measured"]["censored"] = {DEFAULT_COMBO: "time-out"}
    shown = cells(row(final=sent))
    assert shown["default + combo"] == shown["ours + combo"] == "failed: RuntimeError: no"
    assert shown["over default + combo"] == ""
    assert shown["best over best"] == "2.00x [2.00, 2.00]"


def test_rows_that_were_not_measured_say_why() -> None:
    failed = Row("own:a", True, None, State.FAILED, "RuntimeError: no")
    assert cells(failed)["over default, 95 %"] == "failed: RuntimeError: no"
    assert cells(failed)["tried"] == "0 of more"
    assert table.summary(failed) == "failed: RuntimeError: no"
    late = row(state=State.NOT_RUN, why="time limit", final=None, complete=False)
    assert cells(late)["over default, 95 %"] == "not run: time limit (2.00x in the search)"
    assert cells(late)["tried"] == "3 of more"


def test_a_wrong_row_is_named_and_not_counted() -> None:
    wrong = row(final=final(wrong=OURS_COMBO))
    assert table.is_wrong(wrong)
    assert cells(wrong)["agrees"].startswith("NO: output 0")
    notes = table.notes(report(wrong, row()))
    assert any(note.startswith("Geometric mean of 1, all: 2.00x best over best") for note in notes)
    left_out = row(trials=(trial(BATCHED, None, why="wrong: output 0 is off"),))
    assert not table.is_wrong(left_out)
    [line] = table.wrong_states(left_out)
    assert line == "own:a infer: batch_linears is wrong: output 0 is off"
    assert line in table.notes(report(left_out))


def test_means_by_mode() -> None:
    double = row()
    same = row(train=True, final=final({DEFAULT: 8e-3, DEFAULT_COMBO: 6e-3}))
    notes = table.notes(report(double, same))
    assert notes[0] == (
        "Geometric mean of 1, inference: 2.00x best over best, 2.67x over default,"
        " 2.00x over default + combo."
    )
    assert notes[2].startswith(f"Geometric mean of 2, all: {math.sqrt(2):.2f}x best over best")
    assert geometric_mean([]) is None


def test_modest_rows_say_what_bounds_them() -> None:
    fast = row()
    assert table.bound(fast) == ""
    modest = row(final=final(SECONDS | {OURS: 5.9e-3, OURS_COMBO: 5.8e-3}))
    said = table.bound(modest)
    assert said.startswith("5820 us a call; the cost model expects 4000 us: arithmetic 50%")
    events = [("sm90_xmma_gemm", 10, 9000.0), ("triton_poi_fused_cat_3", 40, 1000.0)]
    profiled = row(
        final=final(SECONDS | {OURS_COMBO: 5.8e-3}, profile=summed(events, 5))
        | {"profiled": OURS_COMBO}
    )
    del profiled.final["measured"]["timings"][OURS]  # type: ignore[index]
    said = table.bound(profiled)
    assert "GEMM 1800 us in 2, pointwise 200 us in 8 launches, 3820 us between kernels" in said


def test_kernels_are_told_apart_by_their_names() -> None:
    kinds = {
        "triton_poi_fused_convert_element_type_native_layer_norm_2": "pointwise",
        "triton_per_fused_addmm_sum_1": "reduction",
        "triton_red_fused_mm_0": "reduction",
        "triton_for_fused_0": "pointwise",
        "void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm>": "GEMM",
        "nvjet_tst_128x64_NNT": "GEMM",
        "void cublasLt::splitKreduce_kernel<32>": "GEMM",
        "void at::native::vectorized_elementwise_kernel<4>": "pointwise",
        "Memcpy DtoD (Device -> Device)": "pointwise",
        "void at::native::reduce_kernel<512>": "reduction",
        "embedding_backward_feature_kernel": "other",
    }
    assert {name: kind_of(name) for name in kinds} == kinds
    assert set(kinds.values()) == set(KINDS)


def test_nothing_known_is_said_briefly() -> None:
    assert sentence(1e-3, None, None) == "1000 us a call"


def test_a_report_survives_its_file(tmp_path: Path) -> None:
    path = tmp_path / "headroom.json"
    found = report(row(), Row("own:b", True, None, State.NOT_RUN, "time limit"))
    save(found, path)
    again = load(path)
    assert again.rows[0].final == found.rows[0].final
    assert again.rows[0].trials == found.rows[0].trials
    assert again.rows[0].proposals == found.rows[0].proposals
    assert again.rows[1] == found.rows[1]
    assert again.rows[0].planned()[0].fingerprint == "0123"
    assert again.to_json() == found.to_json()


def test_the_table_is_printed_again_from_its_file(tmp_path: Path) -> None:
    path = tmp_path / "headroom.json"
    save(report(row()), path)

    def printed(*options: str) -> str:
        arguments = ["headroom", "--from", str(path), *options]
        result = CliRunner().invoke(cli.app, arguments, env={"COLUMNS": "220"})
        assert result.exit_code == 0, result.output
        return result.stdout

    assert "2.67x [2.67, 2.67]" in printed()
    markdown = printed("--markdown").splitlines()
    assert markdown[0] == "| " + " | ".join(table.COLUMNS) + " |"
    assert markdown[2].startswith("| own:a | infer | 8028 (20) |")
    assert any("float32 matmul precision high" in line for line in markdown)
    assert any("ours: batch_linears (1 steps)" in line for line in markdown)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 1, "context": "", "rows": [{}]}'])
def test_another_file_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "headroom.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(WorkloadError, match="not written by `passwright headroom"):
        load(path)
    with pytest.raises(WorkloadError, match="No such file"):
        load(tmp_path / "missing.json")

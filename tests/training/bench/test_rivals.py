"""Who is compared: names, options that torch takes, and the patterns of Optimus that this torch has."""

from __future__ import annotations

import pytest

from passwright.passes.errors import WorkloadError
from passwright.scheduler.backend import split_options
from passwright.scheduler.inductor import known_options
from passwright.training.bench import optimus
from passwright.training.bench.optimus import ATEN_IR, TORCH_IR, left_out, optimus_options
from passwright.training.bench.rivals import (
    DEFAULT,
    OPTIMUS,
    PREDICT,
    RELAXED,
    all_rivals,
    chosen,
    graphs,
    has_graphs,
    plain,
)


def test_the_order_of_the_report() -> None:
    names = [rival.name for rival in chosen()]
    assert [plain(name) for name in names[::2]] == [
        "eager",
        "default",
        "max-autotune",
        "Optimus",
        "combo kernels",
        "predict",
        "tune",
    ]
    assert names[1::2] == [graphs(name) for name in names[::2]]
    assert [rival.cuda_graphs for rival in chosen()] == [False, True] * 7
    assert all(has_graphs(rival.name) is rival.cuda_graphs for rival in all_rivals())


def test_relaxed_ones_are_asked_for_by_name() -> None:
    relaxed = [rival for rival in all_rivals() if rival.relaxed]
    assert [rival.name for rival in relaxed] == [RELAXED, graphs(RELAXED)]
    assert not any(rival.relaxed for rival in chosen())
    assert [rival.name for rival in chosen([RELAXED])] == [DEFAULT, RELAXED]


def test_some_by_name_and_always_default_compile() -> None:
    assert [rival.name for rival in chosen(["Predict", "combo*"])] == [
        DEFAULT,
        graphs(DEFAULT),
        "combo kernels",
        "combo kernels + CUDA graphs",
        PREDICT,
    ]
    assert "predict relaxed" not in [rival.name for rival in chosen(["predict*"])]
    assert "predict relaxed" in [rival.name for rival in chosen(["predict relaxed"])]
    with pytest.raises(WorkloadError, match="no rival is named 'nobody'; there are 'eager'"):
        chosen(["nobody"])


def test_torch_takes_all_options() -> None:
    for rival in all_rivals(tune_seconds=3.0):
        options = {k: v for k, v in rival.options.items() if k not in ("backend", "mode")}
        if rival.ours:
            settings, options = split_options(
                {k: v for k, v in rival.options.items() if k != "backend"}
            )
            if "tune" in rival.name:
                assert (settings.mode, settings.tune_seconds) == ("tune", 3.0)
            assert settings.relaxed is rival.relaxed
        assert known_options().issuperset(options), rival.name
        if rival.cuda_graphs and "mode" not in options and rival.name.startswith(PREDICT):
            assert options["triton.cudagraphs"] is True


def test_optimus_is_the_papers_set_in_the_papers_order() -> None:
    torch_ir = list(optimus_options()["pre_grad_fusion_options"])
    horizontal = [name for name in torch_ir if name.startswith("batch_")]
    # Batch fusions first, then what moves data.
    assert torch_ir[0] == "normalization_pass"
    assert torch_ir[1 : 1 + len(horizontal)] == horizontal
    assert len(horizontal) >= 9
    assert optimus_options()["pre_grad_fusion_options"]["batch_linear"] == {"min_fuse_set_size": 2}
    aten = list(optimus_options()["post_grad_fusion_options"])
    assert aten.index("batch_aten_mul") < aten.index("split_cat_aten_pass")


def test_optimus_has_every_pattern_of_torch_but_those_left_out_on_purpose() -> None:
    known = optimus.known_patterns()
    assert known - {*TORCH_IR, *ATEN_IR} == {
        "batch_dropout",  # drops elements in evaluation
        "merge_stack_tahn_unbind_pass",  # no pattern is registered for it
        "shape_padding_multiplier",  # a number
    }
    assert set(left_out()) <= {"cat_linear"}


def test_patterns_that_torch_lacks_are_left_out_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optimus, "known_patterns", lambda: frozenset({"batch_linear"}))
    assert optimus_options() == {
        "pre_grad_fusion_options": {"batch_linear": {"min_fuse_set_size": 2}},
        "post_grad_fusion_options": {},
    }
    assert "split_cat_pass" in left_out()
    [note] = [rival.note for rival in all_rivals() if rival.name == OPTIMUS]
    assert "This torch has no normalization_pass," in note

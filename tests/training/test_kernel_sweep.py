"""The comparison of the grouped kernels, as far as it goes without a GPU."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from passwright.training import kernel_sweep, sweep_file
from passwright.training.kernel_cases import Case, cases

SMALL = Case("gather", "fp32", 16, ((10, 4), (20, 8), (5, 4)))


def test_cases_have_names_of_their_own() -> None:
    names = [case.name for case in cases()]
    assert len(set(names)) == len(names)
    assert SMALL.name == "gather fp32 16 1x(10,4)+1x(20,8)+1x(5,4) infer"


@pytest.mark.parametrize("case", [c for c in cases() if not c.training], ids=lambda c: c.name)
def test_a_case_computes(case: Case) -> None:
    small = Case(case.op, case.precision, 4, tuple((min(n, 99), *rest) for n, *rest in case.sizes))
    module, inputs = small.make("cpu")
    y = module(*inputs)
    assert y.isfinite().all()
    assert len(torch.autograd.grad(y.sum(), list(module.parameters()))) >= len(case.sizes)


def test_table() -> None:
    rows: list[list[Any]] = [
        ["a", "separate", 30.0, 1.0, 0.0],
        ["a", "batched", 20.0, 1.0, 0.0],
        ["a", "grouped", 10.0, 1.0, 0.0],
        ["b", "separate", 5.0, 1.0, 0.0],
        ["b", "batched", None, None, None],
    ]
    assert kernel_sweep.table(rows) == [
        "a: separate 30.0 us, batched 20.0 us, grouped 10.0 us; 2.00x over the better",
        "b: separate 5.0 us",
    ]


@pytest.mark.slow
@pytest.mark.inductor
def test_it_goes_on_where_it_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make = Case.make
    monkeypatch.setattr(Case, "make", lambda case: make(case, "cpu"))
    monkeypatch.setattr("passwright.passes.patterns.grouped_gather.takes_triton", lambda *_: True)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(kernel_sweep, "cases", lambda: [SMALL])
    monkeypatch.setattr(sweep_file, "_sees_gpu", lambda: True)
    monkeypatch.setattr(sweep_file, "describe", lambda _: SimpleNamespace(name="some device"))
    monkeypatch.setattr(kernel_sweep, "microseconds", lambda _: 1.0)
    path = tmp_path / "kernels.json"
    monkeypatch.setattr(kernel_sweep, "_SECONDS", -1.0)
    kernel_sweep.main(path)
    assert capsys.readouterr().out == "3 rows left: run again to go on\n"
    monkeypatch.setattr(kernel_sweep, "_SECONDS", 300.0)
    kernel_sweep.main(path)
    rows = sweep_file.load(path)["rows"]
    assert [form for _, form, *_ in rows] == ["separate", "batched", "grouped"]
    # Tables of two widths cannot be joined; a gather keeps every bit.
    assert [took for _, _, took, *_ in rows] == [1.0, None, 1.0]
    assert rows[2][4] == 0.0
    assert "grouped 1.0 us" in capsys.readouterr().out


def test_without_a_gpu_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit, match="needs a CUDA device"):
        kernel_sweep.main(tmp_path / "new.json")

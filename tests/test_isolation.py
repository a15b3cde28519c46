"""Tests plan alike on every machine: what a file's tests share as much as what each makes for itself."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from passwright.passes.dialect import Dialect
from passwright.scheduler.analytic import AnalyticGainModel
from passwright.scheduler.device import describe_gpu
from passwright.scheduler.device_store import cache_home
from passwright.scheduler.gain import GainModel
from passwright.scheduler.gain_models import gain_model
from passwright.scheduler.settings import Settings


def _model() -> GainModel:
    return gain_model(Settings(), describe_gpu("NVIDIA H200"), Dialect.TORCH)


@pytest.fixture(scope="module")
def shared() -> tuple[GainModel, Path, str | None]:
    return _model(), cache_home(), os.environ.get("PASSWRIGHT_GAIN_MODEL")


def test_no_shipped_model_here_nor_in_what_a_file_shares(
    shared: tuple[GainModel, Path, str | None],
) -> None:
    assert isinstance(_model(), AnalyticGainModel)
    assert isinstance(shared[0], AnalyticGainModel)
    assert shared[2] == "analytic"


def test_nothing_that_the_user_keeps(shared: tuple[GainModel, Path, str | None]) -> None:
    assert shared[1] == cache_home()
    assert not shared[1].is_relative_to(Path.home() / ".cache")


def test_what_a_test_undoes_does_not_undo_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PASSWRIGHT_GAIN_MODEL", "")
    monkeypatch.undo()
    assert isinstance(_model(), AnalyticGainModel)

"""Samples come back from their file as they were."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from passwright.features import schema
from passwright.training import sample_file
from passwright.training.sample_file import SampleFileError, load, save
from tests.support.gains import samples


def test_everything_comes_back(tmp_path: Path) -> None:
    written = samples(3)
    save(written, tmp_path / "there" / "samples.safetensors")
    read = load(tmp_path / "there" / "samples.safetensors")
    assert len(read) == 3
    for one, other in zip(written, read, strict=True):
        for name in ("workload", "family", "kind", "device", "plans"):
            assert getattr(one, name) == getattr(other, name)
        for step, again in zip(one.steps, other.steps, strict=True):
            assert (step.analytic, step.refused) == (again.analytic, again.refused)
            for field in fields(step.example):
                was, now = (getattr(s.example, field.name) for s in (step, again))
                if isinstance(was, np.ndarray):
                    np.testing.assert_array_equal(was, now)
                    assert was.dtype == now.dtype
                else:
                    assert was == now
    assert not list(tmp_path.rglob("*.part"))


def test_of_nothing_there_is_a_file_as_well(tmp_path: Path) -> None:
    save([], tmp_path / "none.safetensors")
    assert load(tmp_path / "none.safetensors") == []


def test_other_features_and_other_files_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "samples.safetensors"
    with pytest.raises(SampleFileError, match="holds no samples"):
        load(file)
    file.write_text(json.dumps({"format": 1}), encoding="utf-8")
    with pytest.raises(SampleFileError, match="holds no samples"):
        load(file)
    save(samples(1), file)
    monkeypatch.setattr(sample_file.schema, "VERSION", schema.VERSION + 1)
    with pytest.raises(SampleFileError, match="build it anew"):
        load(file)

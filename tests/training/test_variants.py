"""Variants of a model in one worker: who may use the device while one compiles."""

from __future__ import annotations

from pathlib import Path

import pytest

from passwright.training.bench_lock import DeviceLock
from passwright.training.bench_worker import Model, Task


@pytest.mark.parametrize("measures", [False, True])
def test_compiles_that_measure_keep_the_device_from_others(tmp_path: Path, measures: bool) -> None:
    lock = DeviceLock(tmp_path)
    model = Model(Task("own:norm_branches?fields=3", train=False, batch=4), lock)
    model.device = type(model.device)("cuda")
    with model.compiling(measures=measures):
        assert (lock._held is not None) is measures
    assert lock._held is None

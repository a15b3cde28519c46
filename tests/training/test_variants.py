"""Variants of a model in one worker: who may use the device while one compiles."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from torch import nn

from passwright.scheduler.commands.models import Subject
from passwright.training import variants
from passwright.training.device_lock import DeviceLock, OwnDevice
from passwright.training.headroom.worker import Model, Task


@pytest.mark.parametrize("measures", [False, True])
def test_compiles_that_measure_keep_the_device_from_others(tmp_path: Path, measures: bool) -> None:
    lock = DeviceLock(tmp_path)
    model = Model(Task("own:norm_branches?fields=3", train=False, batch=4), lock)
    model.device = type(model.device)("cuda")
    with model.compiling(measures=measures):
        assert (lock._held is not None) is measures
    assert lock._held is None


@pytest.mark.parametrize("late", [True, False])
def test_tuning_belongs_to_compiles_that_are_timed(
    monkeypatch: pytest.MonkeyPatch, late: bool
) -> None:
    entered: list[str] = []

    @contextmanager
    def put_off() -> Iterator[None]:
        entered.append("put off")
        yield

    monkeypatch.setattr(variants, "tuning_put_off", put_off)
    module = nn.Linear(4, 2)
    variants.Variants(
        Subject("linear", module, (torch.randn(3, 4),), train=False),
        {"default": lambda: (module, {})},
        baseline="default",
        device=torch.device("cpu"),
        lock=OwnDevice(),
        tuned_late=late,
    )
    assert bool(entered) is late

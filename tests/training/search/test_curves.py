"""Curves of samplers on a model: everybody starts alike, and nothing is measured twice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from passwright.scheduler.device import describe_gpu
from passwright.training.collect_worker import censored
from passwright.training.model_plan import ModelPlan
from passwright.training.records import Record, Status
from passwright.training.search.curves import Remembering, curve
from passwright.training.search.models import ModelProblem
from passwright.training.store import Store
from passwright.training.workloads import build
from passwright.training.workloads.capture import captured

NAME = "own:norm_branches?fields=4@batch=32,precision=fp32,mode=infer,seed=0"


class FakeFarm:
    """Says that each step gains a tenth."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def records(self, plans: Sequence[ModelPlan], *, seconds: float = 2.0) -> list[Record]:
        self.asked += [plan.key for plan in plans]
        return [
            replace(
                censored(NAME, plan, "", "", "cpu"), status=Status.MEASURED, gain=plan.steps / 10
            )
            for plan in plans
        ]


@pytest.mark.parametrize("sampler", ["local", "tpe", "random"])
def test_a_curve_never_falls_and_nothing_is_measured_twice(sampler: str, tmp_path: Path) -> None:
    module, inputs = build("own:norm_branches?fields=4", batch=32)
    graphs = captured(module, inputs, train=False)
    farm: Any = FakeFarm()
    with Store(tmp_path) as store:
        source: Any = Remembering(farm, store)

        def fresh() -> ModelProblem:
            return ModelProblem(graphs, describe_gpu("NVIDIA H200"), source, training=False)

        gains = curve(fresh(), sampler, trials=6, seed=0, batch=2)
        assert len(gains) >= 6
        assert gains == sorted(gains)
        assert gains[-1] > 0
        assert len(set(farm.asked)) == len(farm.asked) == len(store.records())
        # The same again measures nothing.
        before = len(farm.asked)
        assert curve(fresh(), sampler, trials=6, seed=0, batch=2) == gains
        assert len(farm.asked) == before

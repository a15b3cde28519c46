"""A step that loses by itself and pays later is chosen, where measured plans say so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

from passwright.features.example import Example
from passwright.passes.graph import GraphView
from passwright.passes.matching import Rewriter
from passwright.passes.table import default_table
from passwright.scheduler.ensemble import Ensemble
from passwright.scheduler.gain_network import GainNetwork, NetworkConfig
from passwright.scheduler.inductor import clone_for_compile
from passwright.scheduler.learned import LearnedGainModel
from passwright.scheduler.plan import Plan
from passwright.scheduler.planner import Planner
from passwright.scheduler.predictor import Forecast
from passwright.scheduler.settings import Settings
from passwright.scheduler.sites import Site
from passwright.training.as_gpu import as_on_gpu
from passwright.training.data_stats import records_at
from passwright.training.gain_fit import Fit, fit
from passwright.training.labels import ZERO, by_graph, label_of, steps_of
from passwright.training.noise import with_floors
from passwright.training.prepared import prepare, vocabulary
from passwright.training.records import Record
from passwright.training.sample_build import device_of
from passwright.training.samples import WorkloadSamples, samples_of
from passwright.training.workloads.capture import captured
from passwright.training.workloads.exact import build_exact

pytest.importorskip("deepctr_torch", reason="needs pip install 'passwright[zoo]'")

#: Ten outer sums of embeddings, whose look-ups are gathered afterwards.
CUT = (
    "cut:zoo:deepctr/ONN?fields=8#batch_binaries:7946b01d2647:3e80b35fd3ec,4"
    "@batch=4096,precision=fp32,mode=train,seed=0"
)
OPENER, FOLLOWER = "batch_binaries", "embeddings_of_many_tables"


@pytest.fixture(scope="module")
def records() -> list[Record]:
    """Of this cut on an H200."""
    known = [r for r in with_floors(records_at(None)) if r.workload == CUT]
    [found] = by_graph(known)
    return found


def test_the_data_say_so(records: list[Record]) -> None:
    gains = {}
    for record in records:
        patterns = [
            step.label.partition("{")[0].partition(" ")[0] for step in steps_of(record.plan)
        ]
        gains[tuple(patterns)] = label_of(record) or ZERO
    alone, both, other = (
        gains["clean_up", *steps] for steps in ((OPENER,), (OPENER, FOLLOWER), (FOLLOWER,))
    )
    assert alone.gain < -alone.floor
    assert both.gain > other.gain + both.floor > 0


def test_the_plan_takes_it(records: list[Record]) -> None:
    module, inputs = build_exact(CUT, torch.device("cpu"))
    [graph] = captured(module, inputs, train=True)
    as_on_gpu(graph.graph)
    device = device_of(records[0], tf32=False)
    known = samples_of(records, [graph], device)
    model = LearnedGainModel(OnlyMeasured([learned(known)], steps=known.steps), device)
    plan = planned(model, graph)
    patterns = [step.pattern for step in plan.steps]
    assert OPENER in patterns
    assert FOLLOWER in patterns[patterns.index(OPENER) :]
    opener = plan.steps[patterns.index(OPENER)]
    assert opener.gain.mean < 0 < opener.to_go.mean
    assert plan.predicted.lower > 0


@dataclass(frozen=True)
class OnlyMeasured(Ensemble):
    """Refuses every site but those that were measured: of so few plans, others could not be told."""

    steps: Sequence[Site] = ()

    def forecast(self, examples: Sequence[Example]) -> Forecast:
        refused = tuple("" if self.knows(example) else "never measured" for example in examples)
        return replace(super().forecast(examples), refused=refused)

    def knows(self, example: Example) -> bool:
        return any(np.allclose(step.example.site, example.site, atol=1e-3) for step in self.steps)


def learned(known: WorkloadSamples) -> GainNetwork:
    """A small network that knows nothing but these plans."""
    config = vocabulary([known], NetworkConfig((), (), width=16, trunk=32, dropout=0.0))
    how = Fit(epochs=150, forget_patterns=0.0, forget_words=0.0, weight_decay=0.0)
    return fit(prepare([known], config), config, how, seed=0)


def planned(model: LearnedGainModel, graph: torch.fx.GraphModule) -> Plan:
    with torch.set_grad_enabled(True):
        rewriter = Rewriter(GraphView(clone_for_compile(graph).graph), default_table())
        settings = Settings(time_budget=600.0)
        return Planner(rewriter, model, settings, training=True).plan()

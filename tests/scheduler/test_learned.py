"""A learned gain model, as the planner asks it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
from torch import fx

from passwright.features.example import Example
from passwright.passes.errors import IllegalRewrite
from passwright.passes.graph import GraphView
from passwright.passes.matching import Rewriter
from passwright.passes.table import default_table
from passwright.scheduler.device import DeviceDescriptor
from passwright.scheduler.gain import OUT_OF_TIME
from passwright.scheduler.inductor import clone_for_compile
from passwright.scheduler.learned import LearnedGainModel
from passwright.scheduler.planner import Planner
from passwright.scheduler.predictor import Forecast, Predictor
from passwright.scheduler.settings import Settings


@dataclass
class Told(Predictor):
    """Says what it was told of each pattern, half sure; of others that they lose."""

    gains: dict[str, float]
    width: float = 0.02
    strange: str = ""
    asked: list[int] = field(default_factory=list)

    @property
    def version(self) -> str:
        return f"told {sorted(self.gains.items())}"

    def forecast(self, examples: Sequence[Example]) -> Forecast:
        self.asked.append(len(examples))
        rows = [[self.gains.get(e.pattern, -0.5), self.width, self.width] for e in examples]
        found = np.array(rows).reshape(-1, 3)
        refused = tuple("never seen" if e.pattern == self.strange else "" for e in examples)
        return Forecast(found, found, refused, refused)


@pytest.fixture
def module(built) -> fx.GraphModule:
    """Thirty branches Linear, ReLU, Linear."""
    return built("case:D3", False)[0]


@pytest.fixture
def rewriter(module: fx.GraphModule) -> Rewriter:
    return Rewriter(GraphView(clone_for_compile(module).graph), default_table())


def test_all_candidates_are_predicted_in_one_call(
    rewriter: Rewriter, device: DeviceDescriptor
) -> None:
    told = Told({"batch_linears": 0.3, "batch_branches": 0.1})
    candidates = rewriter.candidates(cleanup=False)
    found = LearnedGainModel(told, device).predict(rewriter, candidates, training=False)
    assert told.asked == [len(candidates)]
    for candidate, prediction in zip(candidates, found, strict=True):
        mean = told.gains.get(candidate.pattern.name(), -0.5)
        assert prediction.gain.mean == prediction.to_go.mean == mean
        assert prediction.gain.lower == pytest.approx(mean - 0.02)
        assert not prediction.refused


def test_what_cannot_be_done_or_was_never_seen_is_refused(
    rewriter: Rewriter, device: DeviceDescriptor, monkeypatch: pytest.MonkeyPatch
) -> None:
    apply = Rewriter.apply

    def illegal(self: Rewriter, candidate: object) -> object:
        if candidate.pattern.name() == "batch_branches":  # type: ignore[attr-defined]
            raise IllegalRewrite("not today")
        return apply(self, candidate)  # type: ignore[arg-type]

    monkeypatch.setattr(Rewriter, "apply", illegal)
    candidates = rewriter.candidates(cleanup=False)
    model = LearnedGainModel(Told({}, strange="batch_linears"), device)
    found = model.predict(rewriter, candidates, training=False)
    reasons = {c.pattern.name(): p.refused for c, p in zip(candidates, found, strict=True)}
    assert reasons["batch_branches"] == "not today"
    assert reasons["batch_linears"] == "never seen"
    # A step that was chosen already is not refused for being strange.
    linears = [c for c in candidates if c.pattern.name() == "batch_linears"]
    again = model.predict(rewriter, linears, training=False, ahead=False)
    assert {p.refused for p in again} == {""}


def test_too_late_is_said_and_no_reason_to_raise(
    rewriter: Rewriter, device: DeviceDescriptor
) -> None:
    model = LearnedGainModel(Told({}), device)
    model.stop_when(lambda: True)
    candidates = rewriter.candidates(cleanup=False)
    found = model.predict(rewriter, candidates, training=False)
    assert {p.refused for p in found} == {OUT_OF_TIME}
    assert not any(
        p.refused for p in model.predict(rewriter, candidates[:1], training=False, ahead=False)
    )


def test_the_planner_does_what_is_predicted_to_gain(
    rewriter: Rewriter, device: DeviceDescriptor
) -> None:
    model = LearnedGainModel(Told({"batch_branches": 0.4}), device)
    plan = Planner(rewriter, model, Settings(time_budget=60.0), training=False).plan()
    assert {step.pattern for step in plan.steps} >= {"batch_branches"}
    assert {step.pattern for step in plan.steps} <= {"batch_branches", "clean_up"}


def test_nothing_is_done_where_nothing_is_sure(
    rewriter: Rewriter, device: DeviceDescriptor
) -> None:
    """A gain below what the interval holds: doing nothing is a valid answer."""
    model = LearnedGainModel(Told({"batch_branches": 0.02}, width=0.5), device)
    plan = Planner(rewriter, model, Settings(time_budget=60.0), training=False).plan()
    assert not [step for step in plan.steps if step.pattern != "clean_up"]


def test_the_version_tells_models_and_devices_apart(
    device: DeviceDescriptor,
) -> None:
    one, other = Told({"batch_linears": 0.3}), Told({"batch_linears": 0.2})
    versions = {LearnedGainModel(told, device).version for told in (one, other, one)}
    assert len(versions) == 2
    assert LearnedGainModel(one, device, folds=True).version not in versions

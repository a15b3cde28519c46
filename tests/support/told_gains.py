"""Gain models that say what a test wants them to say, and a small graph for them to speak of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from toy_patterns import ExpToLog, SinToCos, TanhToSin

from passwright.passes.graph import GraphView
from passwright.passes.matching import Rewriter
from passwright.passes.pattern import Candidate, Pattern
from passwright.passes.table import PatternTable
from passwright.passes.testing import capture
from passwright.scheduler.gain import GainModel, Interval, Prediction
from passwright.scheduler.inductor import clone_for_compile


class Says(GainModel):
    """Predicts by a function of the candidate: a number is gain and gain-to-go at once."""

    version = "says"

    def __init__(self, say: Callable[[Candidate], float | Prediction]) -> None:
        self.say = say
        self.asked: list[list[str]] = []
        self.late: Callable[[], bool] = lambda: False

    def stop_when(self, late: Callable[[], bool]) -> None:
        self.late = late

    def predict(
        self,
        rewriter: Rewriter,
        candidates: Sequence[Candidate],
        *,
        training: bool,
        ahead: bool = True,
    ) -> list[Prediction]:
        self.asked.append([c.pattern.name() for c in candidates])
        return [as_prediction(self.say(c)) for c in candidates]


def as_prediction(said: float | Prediction) -> Prediction:
    if isinstance(said, Prediction):
        return said
    return Prediction(exactly(said), exactly(said))


class SaysApart(Says):
    """Errors of its steps are independent, as a learned model's are."""

    independent = True


def exactly(gain: float) -> Interval:
    return Interval(gain, gain, gain)


def by_pattern(**gains: Any) -> Callable[[Candidate], Any]:
    """What to say of each pattern; no gain of others."""
    return lambda candidate: gains.get(candidate.pattern.name(), 0.0)


def captured_chains() -> fx.GraphModule:
    """tanh(tanh(x)), exp(x) and exp(y)."""

    def fn(x: Any, y: Any) -> Any:
        return torch.tanh(torch.tanh(x)), torch.exp(x), torch.exp(y)

    module, _ = capture(fn, (torch.randn(4), torch.randn(4)))
    return module


PATTERNS = (TanhToSin(), SinToCos(), ExpToLog())


def rewriter_of(module: fx.GraphModule, *patterns: Pattern) -> Rewriter:
    return Rewriter(GraphView(clone_for_compile(module).graph), PatternTable(patterns or PATTERNS))

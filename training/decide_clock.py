"""Where the time of deciding goes: each part without those that it calls."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from torch import fx

from passwright.features.example import Example
from passwright.passes.editor import Record
from passwright.passes.graph import GraphView
from passwright.passes.matching import Rewriter
from passwright.passes.pattern import Candidate
from passwright.passes.table import PatternTable
from passwright.scheduler.gain import GainModel, Prediction
from passwright.scheduler.predictor import Forecast, Predictor


class Clock:
    """Seconds of processor time of each part; a part stands still while another runs inside it."""

    def __init__(self, now: Callable[[], float] = time.process_time) -> None:
        self.seconds: dict[str, float] = {}
        self._now = now
        self._since = now()
        self._running: list[str] = []

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        self._charge()
        self._running.append(name)
        try:
            yield
        finally:
            self._charge()
            self._running.pop()

    def _charge(self) -> None:
        now = self._now()
        if self._running:
            name = self._running[-1]
            self.seconds[name] = self.seconds.get(name, 0.0) + now - self._since
        self._since = now


class TimedRewriter(Rewriter):
    """Tells finding candidates, rehearsing them, and performing those that were chosen apart."""

    def __init__(self, view: GraphView, table: PatternTable, clock: Clock) -> None:
        super().__init__(view, table)
        self._clock = clock
        self._rehearsing = 0
        #: Candidates that were performed to see what they do, follow-ups among them.
        self.rehearsals = 0

    def candidates(
        self, near: Iterable[fx.Node] | None = None, *, cleanup: bool | None = None
    ) -> list[Candidate]:
        with self._clock.part("matching"):
            return super().candidates(near, cleanup=cleanup)

    def apply(self, candidate: Candidate) -> Record:
        self.rehearsals += self._rehearsing > 0
        with self._clock.part("rehearsing" if self._rehearsing else "applying"):
            return super().apply(candidate)

    @contextmanager
    def rehearsal(self) -> Iterator[None]:
        self._rehearsing += 1
        try:
            with self._clock.part("rehearsing"), super().rehearsal():
                yield
        finally:
            self._rehearsing -= 1


class TimedModel(GainModel):
    """A gain model; what it takes beside rehearsals and its network is its features."""

    def __init__(self, model: GainModel, clock: Clock) -> None:
        self._model, self._clock = model, clock
        #: Predictions asked for, and how often for all candidates of a graph.
        self.candidates = self.rounds = 0
        # The planner goes by these.
        self.independent, self.caution = model.independent, model.caution

    @property
    def version(self) -> str:
        return self._model.version

    def stop_when(self, late: Callable[[], bool]) -> None:
        self._model.stop_when(late)

    def predict(
        self,
        rewriter: Rewriter,
        candidates: Sequence[Candidate],
        *,
        training: bool,
        ahead: bool = True,
    ) -> list[Prediction]:
        self.candidates += len(candidates)
        self.rounds += ahead
        with self._clock.part("features"):
            return self._model.predict(rewriter, candidates, training=training, ahead=ahead)


class TimedPredictor(Predictor):
    """What a learned model's networks take."""

    def __init__(self, predictor: Predictor, clock: Clock) -> None:
        self._predictor, self._clock = predictor, clock
        self.caution = predictor.caution

    @property
    def version(self) -> str:
        return self._predictor.version

    def forecast(self, examples: Sequence[Example]) -> Forecast:
        with self._clock.part("network"):
            return self._predictor.forecast(examples)

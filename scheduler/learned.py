"""A gain model that was learned from measurements, as the planner asks it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple

from passwright.passes.address import digest
from passwright.passes.matching import Rewriter
from passwright.passes.pattern import Candidate
from passwright.scheduler.device import DeviceDescriptor
from passwright.scheduler.gain import OUT_OF_TIME, GainModel, Interval, Prediction
from passwright.scheduler.predictor import Floats, Predictor
from passwright.scheduler.sites import Site, SiteReader
from passwright.scheduler.threads import one_thread

_NOTHING = Interval(0.0, 0.0, 0.0)


class LearnedGainModel(GainModel):
    """Rehearses each candidate once for its features, and predicts all of a graph in one call."""

    independent = True

    def __init__(
        self, predictor: Predictor, device: DeviceDescriptor, *, folds: bool = False
    ) -> None:
        self.predictor, self.device, self.folds = predictor, device, folds
        self._reader: SiteReader | None = None
        self._late: Callable[[], bool] = lambda: False

    @property
    def version(self) -> str:
        return digest("learned", self.predictor.version, self.device.key(), self.folds)

    @property
    def caution(self) -> float:  # type: ignore[override]
        return self.predictor.caution

    def stop_when(self, late: Callable[[], bool]) -> None:
        self._late = late

    def predict(
        self,
        rewriter: Rewriter,
        candidates: Sequence[Candidate],
        *,
        training: bool,
        ahead: bool = True,
    ) -> list[Prediction]:
        """What was never measured alike is refused, unless the step was chosen already (`ahead=False`)."""
        if self._reader is None or self._reader.view is not rewriter.view:
            self._reader = SiteReader(
                rewriter.view, self.device, training=training, folds=self.folds
            )
        sites = self._reader.read(rewriter, candidates, self._late if ahead else lambda: False)
        known = [site for site in sites if site is not None and not site.refused]
        with one_thread():
            forecast = self.predictor.forecast([site.example for site in known])
        nothing = ("",) * len(known)
        rows = iter(
            zip(
                forecast.gain,
                forecast.to_go,
                forecast.strange or nothing,
                forecast.refused or nothing,
                strict=True,
            )
        )
        return [self._prediction(site, rows, ahead=ahead) for site in sites]

    def _prediction(
        self, site: Site | None, rows: Iterator[tuple[Floats, Floats, str, str]], *, ahead: bool
    ) -> Prediction:
        if site is None:
            return Prediction(_NOTHING, _NOTHING, refused=OUT_OF_TIME)
        if site.refused:
            return Prediction(_NOTHING, _NOTHING, refused=site.refused)
        gain, to_go, strange, refused = next(rows)
        return Prediction(
            _interval(gain),
            _best(_interval(gain), _interval(to_go)),
            refused=refused if ahead else "",
            strange=strange,
        )


def _interval(row: Floats) -> Interval:
    mean, below, above = row.tolist()
    return Interval(round(mean, 6), round(mean - below, 6), round(mean + above, 6))


def _best(gain: Interval, to_go: Interval) -> Interval:
    """Gain-to-go is no less than the gain: nothing need follow."""
    return Interval(*map(max, astuple(gain), astuple(to_go)))

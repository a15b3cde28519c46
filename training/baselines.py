"""What a network has to beat, behind its interface: the mean of each pattern, ridge regression and boosted
trees, all by scikit-learn, and the analytic model as it is.

Records say what whole plans gain, and these learn single steps. The two linear ones are fitted to sums of
steps directly. Trees cannot be: they are fitted to what each step should have gained for its plans to come
out right, given what the others are predicted to gain, and again until that settles (backfitting, Breiman
and Friedman 1985).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from passwright.features import schema
from passwright.features.example import Example
from passwright.passes.address import digest
from passwright.scheduler.predictor import Floats, Forecast, Predictor
from passwright.training.gain_loss import Target, target_of
from passwright.training.samples import WorkloadSamples

#: Rounds of backfitting, quantiles that leave a tenth outside, and how strongly coefficients are held.
_ROUNDS, _TAILS, _ALPHA, _PATTERN_ALPHA = 6, (0.05, 0.95), 30.0, 3.0
_ESTIMATED = schema.SITE.index("estimated_gain")
_WIDTH = schema.SITE.index("estimated_width")


class Baseline(Predictor):
    """Learns from samples by `fit`; the same samples and seed give the same numbers."""

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed

    @property
    def version(self) -> str:
        return digest(type(self).__name__, schema.VERSION, self.seed)

    def fit(self, samples: Sequence[WorkloadSamples]) -> Baseline:
        """Learns, and returns itself. Raises ValueError without any step."""
        found = [(s, target_of(s)) for s in samples if s.steps]
        if not found:
            raise ValueError("no measured steps to learn from")
        examples = [step.example for s, _ in found for step in s.steps]
        self._fit(examples, [target for _, target in found])
        return self

    @abstractmethod
    def _fit(self, examples: Sequence[Example], targets: Sequence[Target]) -> None:
        """Steps of all workloads one after the other, and the plans of each."""


class Analytic(Baseline):
    """The estimate before and after a rehearsal; gain-to-go is the gain."""

    def _fit(self, examples: Sequence[Example], targets: Sequence[Target]) -> None:
        """It has nothing to learn."""

    def forecast(self, examples: Sequence[Example]) -> Forecast:
        rows = _stacked([example.site for example in examples], len(schema.SITE))
        found = rows[:, [_ESTIMATED, _WIDTH, _WIDTH]]
        return Forecast(found, found)


class Linear(Baseline):
    """Ridge regression of plans on the sums of what `_columns` says of their steps."""

    alpha = _ALPHA

    def _fit(self, examples: Sequence[Example], targets: Sequence[Target]) -> None:
        from sklearn.linear_model import Ridge

        self._patterns = sorted({example.pattern for example in examples})
        rows = self._rows(examples)
        self._mean, self._scale = rows.mean(axis=0), rows.std(axis=0) + 1e-6
        rows = self._standard(rows)
        sums, gains = _plans(rows, targets)
        self._gain = Ridge(alpha=self.alpha, fit_intercept=False).fit(sums, gains)
        known, to_go = _to_go(targets)
        self._to_go = Ridge(alpha=self.alpha).fit(rows[known], to_go)
        counts = _plans(np.ones((len(rows), 1)), targets)[0][:, 0]
        missed = (gains - self._gain.predict(sums)) / np.sqrt(np.maximum(counts, 1.0))
        self._widths = _tails(missed)
        self._to_go_widths = _tails(to_go - self._to_go.predict(rows[known]))

    def forecast(self, examples: Sequence[Example]) -> Forecast:
        if not examples:
            return Forecast(np.zeros((0, 3)), np.zeros((0, 3)))
        rows = self._standard(self._rows(examples))
        gain, to_go = (
            np.column_stack([model.predict(rows), *(np.full(len(rows), w) for w in widths)])
            for model, widths in ((self._gain, self._widths), (self._to_go, self._to_go_widths))
        )
        return Forecast(gain, to_go)

    def _rows(self, examples: Sequence[Example]) -> Floats:
        names = np.array([[e.pattern == name for name in self._patterns] for e in examples], float)
        return np.column_stack([self._columns(examples), names])

    def _columns(self, examples: Sequence[Example]) -> Floats:
        return np.column_stack([np.ones(len(examples)), _rows(examples)])

    def _standard(self, rows: Floats) -> Floats:
        """The constant stays one, and patterns stay whole."""
        count = rows.shape[1] - len(self._patterns)
        found = rows.copy()
        found[:, 1:count] = (rows - self._mean)[:, 1:count] / self._scale[1:count]
        return np.clip(found, -5.0, 5.0)


class PatternMean(Linear):
    """What steps of a pattern gain, whatever the graph."""

    alpha = _PATTERN_ALPHA

    def _columns(self, examples: Sequence[Example]) -> Floats:
        return np.zeros((len(examples), 1))


class Trees(Baseline):
    """Gradient-boosted trees on the features of a site; three for each head, of mean and quantiles."""

    iterations = 300

    def fit(self, samples: Sequence[WorkloadSamples]) -> Baseline:
        import sklearn.ensemble  # noqa: F401 (whose threads are to be limited)
        from threadpoolctl import threadpool_limits

        # So few rows are quicker on one thread, and far quicker where others use the cores as well.
        with threadpool_limits(1):
            return super().fit(samples)

    def _fit(self, examples: Sequence[Example], targets: Sequence[Target]) -> None:
        self._patterns = {name: n for n, name in enumerate(sorted({e.pattern for e in examples}))}
        rows = self._rows(examples)
        plans = _members(targets)
        gains = np.concatenate([target.gains.double().numpy() for target in targets])
        predicted = np.zeros(len(rows))
        for _ in range(_ROUNDS):
            wanted, weights = _shares(predicted, plans, gains)
            seen = weights > 0
            mean = self._trees().fit(rows[seen], wanted[seen], sample_weight=weights[seen])
            predicted = mean.predict(rows)
        wanted, weights = _shares(predicted, plans, gains)
        self._gain = [mean, *self._quantiles(rows[seen], wanted[seen], weights[seen])]
        known, to_go = _to_go(targets)
        equal = np.ones(len(known))
        self._to_go = [
            self._trees().fit(rows[known], to_go),
            *self._quantiles(rows[known], to_go, equal),
        ]

    def forecast(self, examples: Sequence[Example]) -> Forecast:
        if not examples:
            return Forecast(np.zeros((0, 3)), np.zeros((0, 3)))
        rows = self._rows(examples)
        return Forecast(_with_widths(self._gain, rows), _with_widths(self._to_go, rows))

    def _rows(self, examples: Sequence[Example]) -> Floats:
        known = [self._patterns.get(example.pattern, math.nan) for example in examples]
        return np.column_stack([_rows(examples), known])

    def _trees(self, **how: Any) -> Any:
        from sklearn.ensemble import HistGradientBoostingRegressor

        columns = len(schema.SITE) + len(schema.GRAPH) + len(schema.DEVICE)
        return HistGradientBoostingRegressor(
            max_iter=self.iterations,
            learning_rate=0.05,
            max_leaf_nodes=15,
            min_samples_leaf=15,
            l2_regularization=1.0,
            categorical_features=[columns],
            random_state=self.seed,
            **how,
        )

    def _quantiles(self, rows: Floats, wanted: Floats, weights: Floats) -> list[Any]:
        return [
            self._trees(loss="quantile", quantile=tail).fit(rows, wanted, sample_weight=weights)
            for tail in _TAILS
        ]


BASELINES: dict[str, type[Baseline]] = {
    "trees": Trees,
    "ridge": Linear,
    "pattern mean": PatternMean,
    "analytic": Analytic,
}


# ---- steps and plans


def _rows(examples: Sequence[Example]) -> Floats:
    columns = len(schema.SITE) + len(schema.GRAPH) + len(schema.DEVICE)
    return _stacked([np.concatenate([e.site, e.graph, e.device]) for e in examples], columns)


def _stacked(rows: Sequence[NDArray[np.float32]], columns: int) -> Floats:
    return np.array(rows, np.float64).reshape(-1, columns)


def _members(targets: Sequence[Target]) -> list[NDArray[np.int64]]:
    """The steps of each plan, by their place among those of all workloads."""
    found, start = [], 0
    for target in targets:
        found += [np.flatnonzero(row) + start for row in target.sums.numpy()]
        start += target.sums.shape[1]
    return found


def _plans(rows: Floats, targets: Sequence[Target]) -> tuple[Floats, Floats]:
    """Sums of rows, and gains, of all plans that have a step."""
    gains = np.concatenate([target.gains.double().numpy() for target in targets])
    members = _members(targets)
    some = [number for number, steps in enumerate(members) if len(steps)]
    return np.array([rows[members[number]].sum(axis=0) for number in some]), gains[some]


def _to_go(targets: Sequence[Target]) -> tuple[NDArray[np.int64], Floats]:
    """The steps of which the best continuation is known, and its gain."""
    labels = np.concatenate([target.to_go.double().numpy() for target in targets])
    known = np.flatnonzero(~np.isnan(labels))
    return known, labels[known]


def _shares(
    predicted: Floats, plans: Sequence[NDArray[np.int64]], gains: Floats
) -> tuple[Floats, Floats]:
    """What each step should have gained, a plan's error split evenly among its steps, and weights."""
    wanted, weights = np.zeros_like(predicted), np.zeros_like(predicted)
    for steps, gain in zip(plans, gains, strict=True):
        if len(steps):
            error = (gain - predicted[steps].sum()) / len(steps)
            wanted[steps] += (predicted[steps] + error) / len(steps)
            weights[steps] += 1 / len(steps)
    return wanted / np.maximum(weights, 1e-9), weights


def _with_widths(models: Sequence[Any], rows: Floats) -> Floats:
    mean, low, high = (model.predict(rows) for model in models)
    return np.column_stack([mean, np.maximum(mean - low, 0.0), np.maximum(high - mean, 0.0)])


def _tails(missed: Floats) -> tuple[float, float]:
    low, high = np.quantile(missed, _TAILS)
    return max(0.0, -float(low)), max(0.0, float(high))

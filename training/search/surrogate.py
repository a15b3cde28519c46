"""What measured sequences say about those that were not: a Gaussian process over which labels stand in a
sequence, and which stand before which.

Two sequences are alike by the labels that they share and by the ordered pairs that they share, as in the
Kendall kernel over permutations, here for sequences of any length. The mean is the prediction of a gain
model, whose scale is learnt along with the rest; a wrong model is corrected by what is measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from passwright.training.search.space import Labels

Array = NDArray[np.float64]

#: Weights of the ordered pairs against the labels, and shares of the variance that no label or pair
#: explains, among which the likelihood chooses.
_PAIRS, _MISFITS = (0.1, 0.3, 1.0), (0.01, 0.05, 0.2)
#: How uncertain the scale of the gain model is: a standard deviation around 1.
_SCALE = 0.5


@dataclass
class Surrogate:
    """Predicted log gains with standard deviations. `noise` is that of one measurement, in log gain."""

    alphabet: Labels
    noise: float = 0.01
    _index: dict[str, int] = field(init=False)

    def __post_init__(self) -> None:
        self._index = {label: at for at, label in enumerate(self.alphabet)}

    def features(self, sequences: Sequence[Labels]) -> tuple[Array, Array]:
        """How often each label stands in each sequence, (rows, labels), and whether it stands before
        each other label, (rows, labels * labels)."""
        width = len(self.alphabet)
        labels = np.zeros((len(sequences), width))
        pairs = np.zeros((len(sequences), width, width))
        for row, sequence in enumerate(sequences):
            indices = [self._index[label] for label in sequence]
            for at, index in enumerate(indices):
                labels[row, index] += 1.0
                pairs[row, index, indices[at + 1 :]] = 1.0
        return labels, pairs.reshape(len(sequences), -1)

    def predict(
        self,
        known: Sequence[Labels],
        values: Sequence[float],
        base: Sequence[float],
        wanted: Sequence[Labels],
        wanted_base: Sequence[float],
        running: Sequence[Labels] = (),
    ) -> tuple[Array, Array]:
        """Means and standard deviations of the log gains of `wanted`, (wanted,) each.

        `base` are what the gain model says of each. `running` have no value yet and only make what is
        like them less uncertain; they come last in `known`, with any value.
        """
        prior, asked = np.asarray(base, float), np.asarray(wanted_base, float)
        rest = np.asarray(values, float) - prior
        measured = len(known) - len(running)
        spread = float(np.std(rest[:measured])) if measured > 1 else 0.0
        spread = max(spread, float(np.std(np.asarray(values)[:measured])) / 2 if measured else 0.0)
        spread = max(spread, 10 * self.noise)
        one, two = self.features(known), self.features(wanted)
        models = [(pair, misfit) for pair in _PAIRS for misfit in _MISFITS]
        best = models[len(models) // 2]
        if measured > 3:
            head = (one[0][:measured], one[1][:measured], prior[:measured])
            fits = [self._likelihood(head, rest[:measured], spread, model) for model in models]
            best = models[int(np.argmax(fits))]
        return self._posterior((*one, prior), (*two, asked), rest, measured, spread, best)

    def _kernel(
        self,
        one: tuple[Array, Array, Array],
        two: tuple[Array, Array, Array],
        spread: float,
        pair: float,
    ) -> Array:
        half = max(1.0, len(self.alphabet) / 2)
        alike = one[0] @ two[0].T / half + pair * (one[1] @ two[1].T) / half
        found: Array = spread**2 * alike + _SCALE**2 * np.outer(one[2], two[2])
        return found

    def _likelihood(
        self,
        known: tuple[Array, Array, Array],
        rest: Array,
        spread: float,
        model: tuple[float, float],
    ) -> float:
        """Log marginal likelihood up to a constant."""
        pair, misfit = model
        own = self.noise**2 + misfit * spread**2
        matrix = self._kernel(known, known, spread, pair) + own * np.eye(len(rest))
        factor = np.linalg.cholesky(matrix)
        whitened = np.linalg.solve(factor, rest)
        return float(-0.5 * whitened @ whitened - np.log(np.diag(factor)).sum())

    def _posterior(
        self,
        known: tuple[Array, Array, Array],
        wanted: tuple[Array, Array, Array],
        rest: Array,
        measured: int,
        spread: float,
        model: tuple[float, float],
    ) -> tuple[Array, Array]:
        pair, misfit = model
        own = self.noise**2 + misfit * spread**2
        matrix = self._kernel(known, known, spread, pair) + own * np.eye(len(rest))
        across = self._kernel(wanted, known, spread, pair)
        head = np.linalg.solve(matrix[:measured, :measured], rest[:measured])
        mean: Array = wanted[2] + across[:, :measured] @ head
        half = max(1.0, len(self.alphabet) / 2)
        alike = (wanted[0] ** 2).sum(1) / half + pair * (wanted[1] ** 2).sum(1) / half
        variance = spread**2 * alike + _SCALE**2 * wanted[2] ** 2 + misfit * spread**2
        variance = variance - (across * np.linalg.solve(matrix, across.T).T).sum(1)
        return mean, np.sqrt(np.maximum(variance, 1e-12))

"""Made-up problems with interacting passes, whose optimum is known: for tests and to compare samplers.

A pass has a gain of its own and gains or loses by those before it; it may be impossible after another.
Some lose alone and pay later, as a rewrite does that opens the way for others; some only pay, or
only hurt, where two others went before. Results depend on the order, and measurements are noisy.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from passwright.training.search.space import Labels

#: Standard deviations of the pairs' gains, in log gain, and what openers cost and pay.
_OWN, _PAIR, _COST, _PAYS = 0.08, 0.10, 0.10, 0.25
#: How many threesomes there are in an instance, and the standard deviation of their gains.
_TRIPLES, _TRIPLE = 4, 0.15


@dataclass
class Synthetic:
    """A problem; all gains are logarithms over doing nothing.

    `own` (passes,), `pairs` (passes, passes) what the second gains by the first before it, `blocks`
    (passes, passes) whether the second is impossible after the first, and so does nothing.
    """

    alphabet: Labels
    own: NDArray[np.float64]
    pairs: NDArray[np.float64]
    blocks: NDArray[np.bool_]
    triples: dict[tuple[int, int, int], float]
    #: What a weak gain model believes of single passes, and of pairs.
    believed: NDArray[np.float64]
    believed_pairs: NDArray[np.float64]
    noise: float = 0.01
    #: Sequences that hold all of these in this order fail, as a compile may.
    crash: Labels = ()
    seed: int = 0
    measured: list[Labels] = field(default_factory=list)

    @classmethod
    def generate(cls, seed: int, passes: int = 7, *, noise: float = 0.01) -> Synthetic:
        """An instance by its seed."""
        rng = np.random.default_rng([seed, passes])
        own = rng.normal(0.02, _OWN, passes)
        pairs = rng.normal(0.0, _PAIR, (passes, passes)) * (rng.random((passes, passes)) < 0.5)
        commuting = np.triu(rng.random((passes, passes)) < 0.3, 1)
        pairs = np.where(commuting, pairs.T, pairs)
        blocks = rng.random((passes, passes)) < 0.08
        blocks &= ~(commuting | commuting.T)
        np.fill_diagonal(pairs, 0.0)
        np.fill_diagonal(blocks, False)
        for opener in rng.choice(passes, 2, replace=False):
            own[opener] -= _COST
            opened = (opener + 1 + rng.choice(passes - 1, 2, replace=False)) % passes
            pairs[opener, opened] += _PAYS
            blocks[opener, opened] = False
        triples = {}
        for _ in range(_TRIPLES):
            first, second, third = (int(at) for at in rng.choice(passes, 3, replace=False))
            triples[first, second, third] = float(rng.normal(0.0, _TRIPLE))
        names = tuple(f"pass_{number}" for number in range(passes))
        crash = tuple(names[at] for at in rng.choice(passes, 3, replace=False))
        believed = own + rng.normal(0.0, _OWN, passes)
        believed_pairs = 0.5 * pairs + rng.normal(0.0, _PAIR / 2, (passes, passes))
        return cls(names, own, pairs, blocks, triples, believed, believed_pairs, noise, crash, seed)

    # ---- what is true

    def gain(self, sequence: Labels) -> float | None:
        """The true gain; None where it fails."""
        if self.crash and [label for label in sequence if label in self.crash] == [*self.crash]:
            return None
        return self._true(self._indices(sequence))

    def commute(self, one: str, other: str) -> bool:
        """Whether the order of the two, side by side, makes no difference."""
        a, b = self._indices((one, other))
        apart = not (self.blocks[a, b] or self.blocks[b, a])
        crashes = one in self.crash and other in self.crash
        together = any(a in triple and b in triple for triple in self.triples)
        alike = self.pairs[a, b] == self.pairs[b, a]
        return bool(apart and alike and not crashes and not together)

    def result(self, sequence: Labels) -> None:
        """Only measuring tells."""

    def effective(self, sequence: Labels) -> Labels:
        return sequence

    @cached_property
    def optimum(self) -> float:
        """The largest gain of all sequences without repetitions, by trying them all."""
        everything = range(len(self.alphabet))
        most = 0.0
        for count in everything:
            for chosen in itertools.permutations(everything, count + 1):
                gain = self._true(chosen)
                if gain > most and self.gain(tuple(self.alphabet[at] for at in chosen)) is not None:
                    most = gain
        return most

    def share(self, sequence: Labels) -> float:
        """The share of the optimum that the sequence reaches."""
        return (self.gain(sequence) or 0.0) / self.optimum

    # ---- the problem as the search sees it

    @property
    def starts(self) -> tuple[Labels, ...]:
        """Doing nothing, all in a stock order, and what the model believes to gain, best first."""
        order = sorted(zip(-self.believed, self.alphabet, strict=True))
        return (), self.alphabet, tuple(label for gain, label in order if gain < 0)

    def score(self, sequence: Labels) -> float | None:
        return self._sum(self._indices(sequence), self.believed, self.believed_pairs, {})

    def measure(self, sequences: Sequence[Labels]) -> list[float | None]:
        """True gains with noise, drawn by the instance and by how much was measured before."""
        found: list[float | None] = []
        for sequence in sequences:
            rng = np.random.default_rng([self.seed, len(self.measured)])
            self.measured.append(sequence)
            gain = self.gain(sequence)
            found.append(None if gain is None else gain + float(rng.normal(0.0, self.noise)))
        return found

    def confirm(self, sequences: Sequence[Labels]) -> list[float | None]:
        return self.measure(sequences)

    def _indices(self, sequence: Labels) -> tuple[int, ...]:
        return tuple(self.alphabet.index(label) for label in sequence)

    def _true(self, order: Sequence[int]) -> float:
        return self._sum(order, self.own, self.pairs, self.triples)

    def _sum(
        self,
        order: Sequence[int],
        own: NDArray[np.float64],
        pairs: NDArray[np.float64],
        triples: Mapping[tuple[int, int, int], float],
    ) -> float:
        done: list[int] = []
        total = 0.0
        for index in order:
            if index in done or any(self.blocks[before, index] for before in done):
                continue
            total += float(own[index]) + sum(float(pairs[before, index]) for before in done)
            for (first, second, third), gain in triples.items():
                if third == index and [at for at in done if at in (first, second)] == [
                    first,
                    second,
                ]:
                    total += gain
            done.append(index)
        return total

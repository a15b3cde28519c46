"""Sequences of labels as points of an Optuna study whose distributions never change.

    ("a", "c")   <==>   slot_00=a, slot_01=c, slot_02=(none), slot_03=(none)

Each slot holds one label of the alphabet or none, so every sampler of Optuna runs on the same study, trials
can be enqueued and old measurements added. Empty slots are skipped when a point is read. A sampler
that knows nothing of sequences would otherwise waste what it puts behind the first empty slot.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

#: Labels of steps or macros in the order in which they are done.
Labels = tuple[str, ...]

#: An empty slot.
NONE = "(none)"


@dataclass(frozen=True)
class Space:
    """All sequences of at most `slots` labels in which none stands more than `repeats` times."""

    alphabet: Labels
    slots: int = 12
    repeats: int = 1

    def __post_init__(self) -> None:
        if len(set(self.alphabet)) < len(self.alphabet) or NONE in self.alphabet:
            raise ValueError(f"the alphabet names a label twice, or {NONE}: {self.alphabet}")
        if not self.alphabet or self.slots < 1 or self.repeats < 1:
            raise ValueError("a space of sequences needs a label, a slot and a repeat at least")

    @cached_property
    def names(self) -> Labels:
        """The parameters of a trial."""
        return tuple(f"slot_{number:02d}" for number in range(self.slots))

    @cached_property
    def choices(self) -> Labels:
        """What a slot may hold."""
        return (NONE, *self.alphabet)

    def distributions(self) -> dict[str, BaseDistribution]:
        """One categorical distribution a slot, the same for all."""
        from optuna.distributions import CategoricalDistribution

        return {name: CategoricalDistribution(self.choices) for name in self.names}

    def holds(self, sequence: Labels) -> bool:
        """Whether the sequence is one of this space."""
        counts = Counter(sequence)
        known = counts.keys() <= set(self.alphabet)
        return (
            known
            and len(sequence) <= self.slots
            and max(counts.values(), default=0) <= self.repeats
        )

    def encode(self, sequence: Labels) -> dict[str, str]:
        """Parameters of the sequence; ValueError if it is not of this space."""
        if not self.holds(sequence):
            raise ValueError(
                f"{list(sequence)} is not in the space of at most {self.slots} labels, each at most"
                f" {self.repeats} times, of {list(self.alphabet)}"
            )
        padded = [*sequence, *[NONE] * (self.slots - len(sequence))]
        return dict(zip(self.names, padded, strict=True))

    def decode(self, parameters: Mapping[str, Any]) -> Labels | None:
        """The sequence of a point: gaps closed, repetitions beyond those allowed left out. None if a
        slot is missing, as in a trial that is still being sampled."""
        found: list[str] = []
        for name in self.names:
            label = parameters.get(name)
            if label is None:
                return None
            if label != NONE and found.count(label) < self.repeats:
                found.append(str(label))
        return tuple(found)

    def describe(self) -> dict[str, Any]:
        """Plain values by which a study knows its space again."""
        return {"alphabet": list(self.alphabet), "slots": self.slots, "repeats": self.repeats}

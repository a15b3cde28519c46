"""Random inputs in the shape of an advertising log: categorical and numerical fields, histories.

The usual field counts, 26 and 13, are those of the Criteo display-advertising data, on which most
of the public models are evaluated; fewer compile faster. Values are drawn, never zeros: constant
inputs let a wrong rewrite pass.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

FIELDS = 39
# What a user did before, as a sequence of items with their categories, and the item shown now.
HISTORY = ("item", "cate")

VOCABULARY = 1000
EMBEDDING = 16
HISTORY_LENGTH = 50


@dataclass(frozen=True)
class Fields:
    """The names of the fields: two categorical ones for each numerical one, as in Criteo's data."""

    categorical: tuple[str, ...]
    numerical: tuple[str, ...]

    @classmethod
    def of(cls, count: int) -> Fields:
        """`count` fields of both kinds together, e.g. 26 and 13 of 39."""
        categorical = round(count * 2 / 3)
        return cls(
            tuple(f"C{i}" for i in range(categorical)),
            tuple(f"I{i}" for i in range(count - categorical)),
        )


class InputSource:
    """Draws input tensors on the CPU from its own seed, so that they do not depend on the model.

    Every tensor's first dimension is `batch`. `size` is how many fields, pieces or branches the
    model was built for, `width` how many columns an embedding, a piece or a state has in it; 0 where
    that cannot be chosen.
    """

    def __init__(self, batch: int, seed: int, size: int = FIELDS, width: int = 0) -> None:
        self.batch = batch
        self.size = size
        self.width = width
        self.fields = Fields.of(size)
        self._generator = torch.Generator().manual_seed(seed)

    def ids(self, *shape: int, low: int = 1, high: int = VOCABULARY) -> Tensor:
        """Integers (int64) in [low, high), of shape (batch, *shape); 0 is left to padding."""
        return torch.randint(low, high, (self.batch, *shape), generator=self._generator)

    def uniform(self, *shape: int) -> Tensor:
        """Floats (float32) in [0, 1), of shape (batch, *shape), as scaled numerical fields are."""
        return torch.rand(self.batch, *shape, generator=self._generator)

    def normal(self, *shape: int) -> Tensor:
        """Floats (float32) of mean 0 and deviation 1, of shape (batch, *shape)."""
        return torch.randn(self.batch, *shape, generator=self._generator)

    def by_field(self) -> dict[str, Tensor]:
        """One tensor of shape (batch,) for each categorical and each numerical field, by name."""
        fields = {name: self.ids() for name in self.fields.categorical}
        return fields | {name: self.uniform() for name in self.fields.numerical}

    def sequences(self, names: Iterable[str], length: int = HISTORY_LENGTH) -> dict[str, Tensor]:
        """One tensor of ids of shape (batch, length) for each name."""
        return {name: self.ids(length) for name in names}

"""A device as a row of numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from passwright.features import schema


def device_row(figures: Mapping[str, float]) -> NDArray[np.float32]:
    """The columns of `schema.DEVICE`, from figures by these names: logarithms to base 10 of all but flags,
    0 for what a device has not. Raises KeyError for a figure that is missing."""
    row = [
        float(figures[name]) if name.startswith("is_") else _log(figures[name])
        for name in schema.DEVICE
    ]
    return np.array(row, np.float32)


def _log(value: float) -> float:
    return math.log10(value) if value > 0 else 0.0

"""The row of a device."""

from __future__ import annotations

import numpy as np
import pytest

from passwright.features import schema
from passwright.features.device_row import device_row

#: 10 to the power of the figure's place, so that no two are alike.
FIGURES = {name: 10.0**place for place, name in enumerate(schema.DEVICE)}


def test_figures_stand_under_their_names_as_powers_of_ten() -> None:
    row = device_row({**FIGURES, "is_cuda": 1.0})
    assert row.dtype == np.float32
    found = dict(zip(schema.DEVICE, row.tolist(), strict=True))
    expected = {name: float(place) for place, name in enumerate(schema.DEVICE)}
    assert found == pytest.approx(expected | {"is_cuda": 1.0})


def test_the_order_of_the_figures_says_nothing() -> None:
    backward = dict(reversed(FIGURES.items()))
    assert np.array_equal(device_row(FIGURES), device_row(backward))


def test_what_a_device_has_not_is_0() -> None:
    row = device_row(dict.fromkeys(schema.DEVICE, 0.0))
    assert not row.any()


def test_small_figures_are_negative() -> None:
    row = device_row({**FIGURES, "call_seconds": 2e-6})
    assert row[schema.DEVICE.index("call_seconds")] == pytest.approx(-5.69897)


@pytest.mark.parametrize("name", schema.DEVICE)
def test_a_missing_figure_is_an_error(name: str) -> None:
    rest = {other: value for other, value in FIGURES.items() if other != name}
    with pytest.raises(KeyError, match=name):
        device_row(rest)

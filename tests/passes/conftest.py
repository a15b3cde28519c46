"""Fixtures of the tests of `passes`."""

from __future__ import annotations

import pytest

from passwright.passes.sketch import Sketch


@pytest.fixture
def sketch() -> type[Sketch]:
    """The class `Sketch`: `s = sketch()`, or `sketch(Dialect.ATEN)`."""
    return Sketch

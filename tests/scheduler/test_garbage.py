"""Garbage is collected afterwards as it was before."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from passwright.scheduler.garbage import no_collection


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    yield
    gc.enable()


def test_nothing_is_collected_inside() -> None:
    with no_collection():
        assert not gc.isenabled()
        with no_collection():
            assert not gc.isenabled()
        assert not gc.isenabled(), "the inner one is not the one that switched it off"
    assert gc.isenabled()


def test_an_error_inside_leaves_it_on() -> None:
    with pytest.raises(ValueError, match="here"), no_collection():
        raise ValueError("here")
    assert gc.isenabled()


def test_who_switched_it_off_finds_it_off() -> None:
    gc.disable()
    with no_collection():
        pass
    assert not gc.isenabled()

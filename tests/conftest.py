"""What holds for all tests: nothing that a machine keeps for its user, and no shipped gain model unless a
test asks for it, so that plans are the same on every machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from passwright.scheduler import gain_models


@pytest.fixture(scope="session")
def _empty_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def _alike_everywhere(request: pytest.FixtureRequest, _empty_home: Path) -> Iterator[None]:
    # Not the tests' own `monkeypatch`, which they may undo.
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("XDG_CACHE_HOME", str(_empty_home))
        if "shipped_models" not in request.keywords:
            # Of processes that a test starts, too.
            patched.setenv("PASSWRIGHT_GAIN_MODEL", gain_models.ANALYTIC)
            patched.setattr(gain_models.model_store, "find", lambda _: None)
        yield

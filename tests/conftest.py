"""What holds for all tests: nothing that a machine keeps for its user, no shipped gain model unless a file
of tests asks for it, and one width of the terminal, so that all is the same on every machine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from passwright.scheduler import gain_models

#: Marks a whole file: `pytestmark = pytest.mark.shipped_models`.
_SHIPPED = "shipped_models"


@pytest.fixture(scope="session", autouse=True)
def _nothing_kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    # Not the tests' own `monkeypatch`, which they may undo.
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        patched.setenv("COLUMNS", "200")
        yield


# Of a file and not of a test: a file's own fixtures, which its tests share, plan before its first test.
@pytest.fixture(scope="module", autouse=True)
def _no_shipped_model(request: pytest.FixtureRequest, _nothing_kept: None) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        if request.node.get_closest_marker(_SHIPPED) is None:
            # Of processes that a test starts, too.
            patched.setenv("PASSWRIGHT_GAIN_MODEL", gain_models.ANALYTIC)
            patched.setattr(gain_models.model_store, "find", lambda _: None)
        yield


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        marked = [node for node, _ in item.iter_markers_with_node(_SHIPPED)]
        if marked and not any(isinstance(node, pytest.Module) for node in marked):
            raise pytest.UsageError(
                f"{item.nodeid}: '{_SHIPPED}' marks whole files, by `pytestmark`"
            )

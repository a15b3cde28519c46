"""A worker of the collector: how long what it compiled stands."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest

from passwright.training import collect_worker
from passwright.training.collect_worker import Collecting, doing
from passwright.training.worker import Question, Seat, _answered

ONE, OTHER = "own:norm_branches?fields=3@batch=4", "own:norm_branches?fields=4@batch=4"


class Measured:
    """Stands in for what measures, and fails if it is told to."""

    made: ClassVar[list[Measured]] = []
    fails = False

    def __init__(self, *_: Any, about: Any, note: Callable[[str], None], **__: Any) -> None:
        self.about, self._note = about, note
        self.made.append(self)

    def records(self, plans: object, *, seconds: float) -> list[str]:
        self._note("a plan")
        if self.fails:
            raise RuntimeError("no device")
        return ["a record"]


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Collecting:
    monkeypatch.setattr(Measured, "made", [])
    monkeypatch.setattr(collect_worker, "Measuring", Measured)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TORCHINDUCTOR_COMPILE_THREADS", "1")
    return Collecting(Seat(str(tmp_path), 0, "cpu", 1))


def ask(worker: Collecting, name: str = ONE) -> dict[str, Any]:
    return _answered(worker, Question("measure", name, ([], 1.0, "a run")))


def test_the_same_model_is_measured_by_what_stands(
    worker: Collecting, monkeypatch: pytest.MonkeyPatch
) -> None:
    forgotten: list[int] = []
    monkeypatch.setattr(collect_worker, "forget", lambda: forgotten.append(len(Measured.made)))
    for _ in range(collect_worker._TOGETHER):
        assert ask(worker) == {"answer": ["a record"]}
    assert len(Measured.made) == 1
    assert forgotten == [0, 1]  # before the first, and after the last
    ask(worker)
    assert len(Measured.made) == 2


def test_another_model_begins_anew(worker: Collecting) -> None:
    for name in (ONE, OTHER, ONE):
        ask(worker, name)
    assert len(Measured.made) == 3


def test_after_a_failure_nothing_stands(
    worker: Collecting, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask(worker)
    monkeypatch.setattr(Measured, "fails", True)
    assert "no device" in ask(worker)["failed"]
    assert doing(worker._seat).exists()
    monkeypatch.setattr(Measured, "fails", False)
    assert ask(worker) == {"answer": ["a record"]}
    assert len(Measured.made) == 2
    assert not doing(worker._seat).exists()


def test_what_resets_dynamo_lets_nothing_stand(worker: Collecting) -> None:
    ask(worker)
    _answered(worker, Question("propose", ONE, (1, 0)))
    ask(worker)
    assert len(Measured.made) == 2

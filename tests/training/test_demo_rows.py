"""The demo loses no row, whatever happens to a worker; the workers only pretend."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from demo_runs import comparison, compiled_both, job
from typer.testing import CliRunner

from passwright.scheduler import cli
from passwright.training import demo
from passwright.training.demo_report import State, load
from passwright.training.demo_rows import STOPPED, TIME_LIMIT, Limits, Rows
from passwright.training.demo_worker import DEFAULT, Job


class Clock:
    """Time that passes when told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class FakeWorker:
    """Answers from a script: a message, None for never, an exception for death."""

    def __init__(self, *script: Any) -> None:
        self.connection, self.theirs = multiprocessing.Pipe()
        self.stopped = self.at_once = False
        self._script = list(script)
        self.say()

    def say(self) -> None:
        if not self._script:
            return
        message = self._script.pop(0)
        if isinstance(message, Exception):
            self.theirs.close()
        elif message is not None:
            self.theirs.send(message)

    def stop(self, *, at_once: bool = False) -> None:
        self.stopped = True
        self.at_once = at_once

    def last_words(self) -> str:
        return "the worker was killed by signal 9"


class Listener:
    """Hears what is reported; when told to measure, lets the worker say its next line."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.doing: list[str] = []

    def working_on(self, what: str) -> None:
        self.doing.append(what)

    def finished(self, line: str) -> None:
        self.lines.append(line)


GOOD = ({"compiled": compiled_both()}, {"measured": comparison()})
EQUAL = ({"compiled": compiled_both(steps=0) | {DEFAULT: None}},)


def run_rows(
    scripts: dict[str, tuple[Any, ...]],
    *,
    seconds: float | None = None,
    parallel: int = 2,
    alive: int = 9,
    clock: Callable[[], float] = time.monotonic,
) -> tuple[Rows, dict[str, FakeWorker], Listener]:
    workers: dict[str, FakeWorker] = {}

    def launch(wanted: Job) -> FakeWorker:
        workers[wanted.model] = FakeWorker(*scripts[wanted.model])
        # The next line is there as soon as the first is taken.
        workers[wanted.model].say()
        return workers[wanted.model]

    listener = Listener()
    jobs = [job(name, order=number) for number, name in enumerate(scripts)]
    rows = Rows(jobs, launch, Limits(seconds, parallel, alive), listener, clock)
    rows.run()
    return rows, workers, listener


def test_every_worker_gives_a_row() -> None:
    scripts = {
        "good": GOOD,
        "equal": EQUAL,
        "wrong": ({"failed": "RuntimeError: no"},),
        "dead": (EOFError(),),
        "late": ({"compiled": compiled_both()}, {"failed": "RuntimeError: not now"}),
    }
    rows, workers, listener = run_rows(scripts)
    found = {row.model: row for row in rows.finish()}
    assert list(found) == list(scripts)
    assert {name: row.state for name, row in found.items()} == {
        "good": State.MEASURED,
        "equal": State.EQUAL,
        "wrong": State.FAILED,
        "dead": State.FAILED,
        "late": State.FAILED,
    }
    assert found["wrong"].why == "RuntimeError: no"
    assert found["dead"].why == "the worker was killed by signal 9"
    assert found["late"].why == "RuntimeError: not now"
    assert found["late"].compile_seconds == (30.0, 10.0)
    assert found["good"].batch == 64
    assert len(listener.lines) == len(scripts)
    assert all(worker.stopped for worker in workers.values())


def test_nothing_is_measured_while_something_compiles() -> None:
    _, _, listener = run_rows(dict.fromkeys("abcd", GOOD))
    kinds = [what.partition(" ")[0] for what in listener.doing]
    assert kinds.index("measuring") > max(i for i, kind in enumerate(kinds) if kind != "measuring")
    assert kinds.count("measuring") == 4


def test_few_may_be_alive_at_a_time() -> None:
    rows, _, listener = run_rows(dict.fromkeys("abcde", GOOD), alive=2)
    assert all(row.state is State.MEASURED for row in rows.finish())
    kinds = [what.partition(" ")[0] for what in listener.doing]
    waves = sum(pair == ("measuring", "starting") for pair in pairwise(kinds))
    assert waves == 2


def test_no_process_is_a_failed_row() -> None:
    def launch(_: Job) -> FakeWorker:
        raise OSError("out of processes")

    rows = Rows([job("a")], launch, Limits(None, 1, 1), Listener())
    rows.run()
    (row,) = rows.finish()
    assert row.state is State.FAILED
    assert "out of processes" in row.why


def test_at_the_time_limit_the_rest_is_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("passwright.training.demo_rows._TICK", 0.01)
    clock = Clock()

    def tick() -> float:
        clock.now += 0.5
        return clock.now

    scripts = {"a": GOOD, "b": EQUAL, "slow": (None,), "never": GOOD}
    rows, workers, _ = run_rows(scripts, seconds=20.0, parallel=1, clock=tick)
    states = {row.model: (row.state, row.why) for row in rows.finish()}
    assert states["a"] == (State.MEASURED, "")
    assert states["b"] == (State.EQUAL, "")
    assert states["slow"] == states["never"] == (State.NOT_RUN, TIME_LIMIT)
    assert workers["slow"].at_once
    assert not workers["a"].at_once
    assert "never" not in workers
    # What was compiled is still measured within the limit.
    assert clock.now < 20.0


def test_ctrl_c_keeps_what_was_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workers: list[FakeWorker] = []

    def launch(wanted: Job) -> FakeWorker:
        if wanted.train:
            raise KeyboardInterrupt
        workers.append(FakeWorker(*EQUAL))
        return workers[-1]

    monkeypatch.setattr(demo, "_launcher", lambda _: launch)
    monkeypatch.setattr(demo, "limits_for", lambda _, s: Limits(s, 1, 4))
    path = tmp_path / "demo.json"
    result = CliRunner().invoke(
        cli.app,
        ["demo", "--models", "own:mmoe", "--device", "cpu", "--json", str(path), "--markdown"],
    )
    assert result.exit_code == 130
    assert [(row.state, row.why) for row in load(path).rows] == [
        (State.EQUAL, ""),
        (State.NOT_RUN, STOPPED),
    ]
    assert "not run: stopped" in result.stdout


def test_a_wrong_result_is_a_failed_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    def code(script: tuple[Any, ...]) -> int:
        monkeypatch.setattr(demo, "_launcher", lambda _: lambda _: launched(script))
        arguments = ["demo", "--models", "own:split_cat", "--device", "cpu"]
        return CliRunner().invoke(cli.app, arguments).exit_code

    def launched(script: tuple[Any, ...]) -> FakeWorker:
        worker = FakeWorker(*script)
        worker.say()
        return worker

    assert code(GOOD) == 0
    assert code(({"compiled": compiled_both(ok=False)}, {"measured": comparison()})) == 1
    assert code(({"failed": "no"},)) == 1

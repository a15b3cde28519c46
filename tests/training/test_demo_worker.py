"""The demo's processes, and their work with eager in place of both compilers."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
import torch
from demo_runs import cells, job
from typer.testing import CliRunner

from passwright.scheduler import cli
from passwright.training.demo_report import Row, State, load
from passwright.training.demo_rows import ProcessWorker
from passwright.training.demo_worker import DEFAULT, PASSWRIGHT, Job, Prepared, work


def process(
    target: Callable[[Job, Connection], None], wanted: Job
) -> tuple[ProcessWorker, dict[str, Any] | None]:
    worker = ProcessWorker(multiprocessing.get_context("fork"), target, wanted)
    try:
        return worker, worker.connection.recv()
    except EOFError:
        return worker, None


def test_a_killed_worker_tells_by_what(tmp_path: Path) -> None:
    wanted = job("a", directory=str(tmp_path))
    wanted.log.write_text("something\nand the reason\n\n", encoding="utf-8")
    worker, message = process(lambda *_: os.kill(os.getpid(), signal.SIGKILL), wanted)
    assert message is None
    assert worker.last_words() == "the worker was killed by signal 9: and the reason"
    worker, message = process(lambda *_: os._exit(3), job("a"))
    assert message is None
    assert worker.last_words() == "the worker ended with exit code 3"


def test_stopping_ends_what_the_worker_started(tmp_path: Path) -> None:
    def target(_: Job, connection: Connection) -> None:
        os.setpgrp()
        child = os.fork()
        if child == 0:
            time.sleep(60)
            os._exit(0)
        connection.send({"child": child})
        time.sleep(60)

    worker, message = process(target, job("a", directory=str(tmp_path)))
    assert message is not None
    worker.stop(at_once=True)
    state = Path(f"/proc/{message['child']}/stat")
    for _ in range(100):
        if not state.exists() or state.read_text().split()[2] == "Z":
            return
        time.sleep(0.05)
    pytest.fail("the worker's child is still there")


def test_a_worker_with_nothing_left_to_do_ends_by_itself(tmp_path: Path) -> None:
    def target(wanted: Job, connection: Connection) -> None:
        connection.send({"compiled": {}})
        assert connection.recv() == "goodbye"
        wanted.log.write_text("goodbye", encoding="utf-8")

    worker, _ = process(target, job("a", directory=str(tmp_path)))
    worker.stop()
    assert (tmp_path / "log.txt").read_text(encoding="utf-8") == "goodbye"


# ---- the work


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("passwright.training.demo_worker.warm_up", lambda *_, **__: None)
    monkeypatch.setattr(torch, "compile", lambda module, **_: module)


def run_worker(wanted: Job) -> list[dict[str, Any]]:
    """What a worker sends, told to measure at once."""
    ours, theirs = multiprocessing.Pipe()
    ours.send("measure")
    thread = threading.Thread(target=work, args=(wanted, theirs))
    thread.start()
    thread.join(60)
    assert not thread.is_alive()
    messages = []
    while ours.poll(0):
        messages.append(ours.recv())
    return messages


@pytest.fixture
def own_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test process keeps its output and its process group."""
    monkeypatch.setattr("os.dup2", lambda *_: None)
    monkeypatch.setattr("os.setpgrp", lambda: None)


@pytest.mark.usefixtures("eager", "own_streams")
@pytest.mark.parametrize("train", [False, True])
def test_a_worker_compiles_then_measures(train: bool, tmp_path: Path) -> None:
    wanted = job("own:norm_branches?fields=3", train=train, batch=8, directory=str(tmp_path / "a"))
    first, second = run_worker(wanted)
    compiled = first["compiled"]
    assert compiled["batch"] == 8
    for name in (DEFAULT, PASSWRIGHT):
        assert compiled[name]["agreement"]["ok"]
        assert compiled[name]["agreement"]["oracle"]
        assert compiled[name]["seconds"]["wall"] > 0
    assert second["measured"]["timings"].keys() == {DEFAULT, PASSWRIGHT}
    row = Row(wanted.model, train, 8, State.MEASURED, "", compiled, second["measured"])
    assert cells(row)["agrees"] == "yes"


@pytest.mark.usefixtures("eager", "own_streams")
def test_a_worker_says_why_it_fails(tmp_path: Path) -> None:
    (message,) = run_worker(job("case:D9?fields=3", train=True, directory=str(tmp_path / "a")))
    assert message["failed"].startswith("WorkloadError: case:D9")
    (message,) = run_worker(job("own:nothing", directory=str(tmp_path / "b")))
    assert message["failed"].startswith("WorkloadError: unknown workload")


@pytest.mark.usefixtures("eager")
def test_a_worker_keeps_what_passwright_warns_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import logging

    def warn(module: torch.nn.Module, **_: Any) -> torch.nn.Module:
        logging.getLogger("passwright.scheduler.optimize").warning("graph left as it was: %s", "no")
        return module

    prepared = Prepared(job("own:split_cat?fields=3", batch=4, directory=str(tmp_path)))
    compile_once = torch.compile
    monkeypatch.setattr(torch, "compile", lambda module, **_: _Warning(compile_once(module), warn))
    found = prepared.compile()[PASSWRIGHT]["warnings"]
    assert found == ["graph left as it was: no"]


class _Warning(torch.nn.Module):
    """Warns at its first call, as a compile does."""

    def __init__(self, module: Any, warn: Callable[..., Any]) -> None:
        super().__init__()
        self.inner, self._warn = module, warn

    def forward(self, *args: Any) -> Any:
        if self._warn is not None:
            self._warn(self.inner)
            self._warn = None  # type: ignore[assignment]
        return self.inner(*args)


@pytest.mark.inductor
def test_a_tiny_demo_from_end_to_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PASSWRIGHT_PLAN_DIRECTORY", str(tmp_path / "plans"))
    path = tmp_path / "demo.json"
    arguments = ["demo", "--models", "own:split_cat?fields=4", "--batch", "32", "--device", "cpu"]
    result = CliRunner().invoke(cli.app, [*arguments, "--json", str(path)], env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output
    (row,) = load(path).rows
    assert row.state is State.MEASURED
    assert row.agreement is not None
    assert row.agreement["ok"]
    assert row.ops is not None
    assert row.ops[1] < row.ops[0]
    kernels = row.kernels("cpu")
    assert kernels is not None
    assert kernels[1] < kernels[0]
    assert row.gain is not None
    assert Path(row.plans[0]["path"]).is_file()
    assert str(tmp_path / "plans") in result.stdout
    assert "[1/1] own:split_cat?fields=4 infer" in result.stderr

"""The demo: its table from recorded runs, and that no row is lost whatever happens to a worker."""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from passwright.passes.errors import WorkloadError
from passwright.scheduler import cli
from passwright.scheduler.settings import Settings
from passwright.training import demo, demo_table
from passwright.training.demo_report import Report, Row, State, load, save
from passwright.training.demo_rows import STOPPED, TIME_LIMIT, Limits, ProcessWorker, Rows
from passwright.training.demo_worker import DEFAULT, PASSWRIGHT, Job, Prepared, work

# ---- a recorded run


def compiled_one(
    *, steps: int = 2, loops: int = 5, seconds: float = 10.0, stored: bool = False, ok: bool = True
) -> dict[str, Any]:
    plan = {"level": "torch", "ops_before": 30, "ops_after": 10, "steps": [{}] * steps}
    return {
        "seconds": {"wall": seconds, "cpu": seconds},
        "kernels": [{"backward": False, "fused": 2, "extern": 3, "loops": loops}],
        "agreement": {
            "ok": ok,
            "sentence": "agrees" if ok else "output 0 is off by 1.0e+00, 1.0e-06 is allowed",
            "output_error": 1e-7,
            "gradient_error": 0.0,
            "oracle": True,
        },
        "plans": [
            {
                "plan": plan,
                "predicted": {"mean": math.log(2), "lower": 0.0, "upper": math.log(4)},
                "path": "/plans/abc.json",
                "stored": stored,
                "seconds": 1.5,
            }
        ],
        "warnings": [],
    }


def compiled_both(**ours: Any) -> dict[str, Any]:
    default = compiled_one(steps=0, loops=20, seconds=30.0)
    return {"batch": 64, DEFAULT: default | {"plans": []}, PASSWRIGHT: compiled_one(**ours)}


def comparison(gain: float = math.log(3), half: float = 0.1, floor: float = 0.01) -> dict[str, Any]:
    def timing(name: str, seconds: float) -> dict[str, Any]:
        return {"name": name, "method": "wall", "blocks": [seconds] * 15, "calls": 7}

    return {
        "baseline": DEFAULT,
        "timings": {DEFAULT: timing(DEFAULT, 3e-3), PASSWRIGHT: timing(PASSWRIGHT, 1e-3)},
        "gains": {PASSWRIGHT: {"median": gain, "lower": gain - half, "upper": gain + half}},
        "floor": floor,
        "stopped": "all blocks measured",
        "censored": {},
        "again": timing(DEFAULT, 3e-3),
        "notes": [],
        "wall": None,
    }


def measured_row(**ours: Any) -> Row:
    return Row("own:a", False, 64, State.MEASURED, "", compiled_both(**ours), comparison())


def report(*rows: Row, kind: str = "cpu") -> Report:
    return Report(
        date="2026-01-02",
        device={"kind": kind, "name": "Some Device"},
        versions={"torch": "2.13.0", "python": "3.11", "passwright": "0.1.0", "triton": None},
        threads=2,
        seed=0,
        plan_directory="/plans",
        seconds=12.0,
        rows=rows,
    )


def cells(row: Row, kind: str = "cpu") -> dict[str, str]:
    return dict(zip(demo_table.COLUMNS, demo_table.cells(row, kind), strict=True))


def test_a_row_shows_everything() -> None:
    assert cells(measured_row()) == {
        "model": "own:a",
        "mode": "infer",
        "batch": "64",
        "ops": "30 -> 10",
        "kernels": "23 -> 8",
        "predicted gain": "2.00x [1.00, 4.00]",
        "measured gain, 95 %": "3.00x [2.71, 3.32]",
        "compile s": "30.0 -> 10.0",
        "planning s": "1.5",
        "agrees": "yes",
    }


def test_a_gpu_counts_its_own_kernels() -> None:
    assert cells(measured_row(), "cuda")["kernels"] == "5 -> 5"


def test_rows_say_what_went_otherwise() -> None:
    tie = replace(measured_row(), measured=comparison(gain=0.005, half=0.02))
    assert cells(tie)["measured gain, 95 %"].endswith(" tie")
    noise = replace(measured_row(), measured=comparison(gain=0.2, half=0.01, floor=0.3))
    assert cells(noise)["measured gain, 95 %"].endswith(" tie")
    wrong = cells(measured_row(ok=False))
    assert wrong["agrees"].startswith("NO: output 0 is off by")
    late = cells(Row("own:a", True, None, State.NOT_RUN, TIME_LIMIT))
    assert late["measured gain, 95 %"] == "not run: time limit"
    failed = cells(Row("own:a", True, None, State.FAILED, "RuntimeError: no"))
    assert failed["measured gain, 95 %"] == "failed: RuntimeError: no"
    equal = compiled_both(steps=0) | {DEFAULT: None}
    same = cells(Row("own:a", False, 64, State.EQUAL, "", equal))
    assert same["measured gain, 95 %"] == "no step, same code"
    assert same["compile s"] == "10.0"
    assert same["kernels"] == "8 -> 8"
    slow = comparison() | {"gains": {}, "censored": {PASSWRIGHT: "time-out: 3 times"}}
    censored = cells(replace(measured_row(), measured=slow))
    assert censored["measured gain, 95 %"] == "not measured: time-out: 3 times"


def test_several_graphs_count_by_their_ops() -> None:
    both = compiled_both()
    first = both[PASSWRIGHT]["plans"][0]
    second = json.loads(json.dumps(first))
    second["plan"] |= {"ops_before": 10, "ops_after": 10}
    second["predicted"] = {"mean": 0.0, "lower": 0.0, "upper": 0.0}
    aten = json.loads(json.dumps(first))
    aten["plan"] |= {"level": "aten", "ops_before": 1000}
    both[PASSWRIGHT]["plans"] += [second, aten]
    row = Row("own:a", False, 64, State.MEASURED, "", both, comparison())
    assert row.ops == (40, 20)
    assert row.steps == 6
    assert row.predicted is not None
    assert row.predicted.mean == pytest.approx(0.75 * math.log(2))


def test_a_report_survives_its_file(tmp_path: Path) -> None:
    path = tmp_path / "demo.json"
    unknown = comparison() | {"floor": None}
    found = report(
        measured_row(),
        replace(measured_row(), measured=unknown),
        Row("own:b", True, None, State.NOT_RUN, TIME_LIMIT),
    )
    save(found, path)
    assert load(path) == found
    assert json.loads(path.read_text())["rows"][0]["measured"]["timings"][DEFAULT]["blocks"]


def test_the_table_is_printed_again_from_its_file(tmp_path: Path) -> None:
    path = tmp_path / "demo.json"
    save(report(measured_row(stored=True)), path)

    def printed(*options: str) -> str:
        result = CliRunner().invoke(
            cli.app, ["demo", "--from", str(path), *options], env={"COLUMNS": "200"}
        )
        assert result.exit_code == 0
        return result.stdout

    table = printed()
    assert "3.00x [2.71, 3.32]" in table
    assert "1 of 1 plans came from the plan store" in table
    assert "Plans: /plans" in table
    assert "abc.json" in table
    markdown = printed("--markdown").splitlines()
    assert markdown[0] == "| " + " | ".join(demo_table.COLUMNS) + " |"
    assert markdown[1].count("---") == len(demo_table.COLUMNS)
    assert markdown[2].startswith("| own:a | infer | 64 | 30 -> 10 |")
    assert "- Some Device, 2 threads; torch 2.13.0, Passwright 0.1.0, Python 3.11;" in markdown[4]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 1, "rows": [{}]}'])
def test_another_file_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "demo.json"
    path.write_text(text, encoding="utf-8")
    result = CliRunner().invoke(cli.app, ["demo", "--from", str(path)])
    assert result.exit_code == 2
    assert str(path) in result.stderr
    assert result.stdout == ""


# ---- what is asked for


def request(**changes: Any) -> demo.Request:
    arguments: dict[str, Any] = {"device": torch.device("cpu"), "settings": Settings()}
    return demo.Request.of(**arguments | changes)


def test_the_usual_demo_has_public_and_own_models_in_both_modes() -> None:
    usual = request()
    jobs = {(name.partition("?")[0], train) for name, train in usual.jobs}
    for name in ("zoo:rechub/MMOE", "zoo:deepctr/PLE", "zoo:deepctr/AutoInt", "zoo:torchfm/FFM"):
        assert {(name, False), (name, True)} <= jobs
    assert {("own:split_cat", False), ("own:norm_branches", False)} <= jobs
    assert usual.time_limit == demo.TIME_LIMIT_SECONDS
    assert usual.skip_equal


def test_full_means_all_fields_and_both_compiles() -> None:
    full = request(full=True)
    assert not any("?" in name for name, _ in full.jobs)
    assert full.time_limit is None
    assert not full.skip_equal
    assert request(full=True, time_limit=9.0).time_limit == 9.0


def test_models_are_named_with_or_without_a_size() -> None:
    named = request(models="zoo:rechub/MMOE?fields=9,experts=3,own:split_cat,own:mmoe").jobs
    assert named == (
        ("zoo:rechub/MMOE?fields=9,experts=3", False),
        ("zoo:rechub/MMOE?fields=9,experts=3", True),
        ("own:split_cat", False),
        ("own:mmoe", False),
        ("own:mmoe", True),
    )
    (small, _), _ = request(models="rechub:MMOE").jobs
    assert small == request().jobs[0][0]


def test_an_unknown_model_is_refused_before_anything_runs() -> None:
    with pytest.raises(WorkloadError, match="zoo:rechub/MMOE"):
        request(models="zoo:rechub/MMoE")
    result = CliRunner().invoke(cli.app, ["demo", "--models", "own:splitcat"])
    assert result.exit_code == 2
    assert "own:split_cat" in result.stderr


def test_little_memory_means_few_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "_available_bytes", lambda: 4e9)
    assert demo.limits_for(torch.device("cpu"), 1.0).alive == 2
    monkeypatch.setattr(demo, "_available_bytes", lambda: 0.0)
    few = demo.limits_for(torch.device("cpu"), 1.0)
    assert (few.parallel, few.alive) == (1, 1)


# ---- running, with workers that only pretend


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


def job(name: str, **changes: Any) -> Job:
    plain = Job(name, False, None, "cpu", 1, 0, f"/nowhere/{name}", measure_seconds=2.0)
    return replace(plain, **changes)


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


# ---- processes


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


# ---- a worker's work, with eager in place of both compilers


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
    (message,) = run_worker(
        job("own:split_cat?fields=3", train=True, directory=str(tmp_path / "a"))
    )
    assert "failed" in message
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

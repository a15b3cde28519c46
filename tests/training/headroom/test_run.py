"""The benchmark loses no row, whatever happens to a worker; the workers only pretend."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from headroom_runs import BATCHED, WIDENED, FakeModels, FakeWorker, final, proposal, task, trial
from typer.testing import CliRunner

from passwright.passes.errors import WorkloadError
from passwright.scheduler import cli
from passwright.training.demo_report import State
from passwright.training.device_lock import DeviceLock
from passwright.training.headroom import run as headroom
from passwright.training.headroom.final import OURS
from passwright.training.headroom.report import Row, load
from passwright.training.headroom.worker import Task
from passwright.training.macros import NOTHING
from passwright.training.pool import Pool
from passwright.training.processes import ProcessWorker
from passwright.training.worker import Question, Seat

CPU = torch.device("cpu")


def request(*names: str, **changes: Any) -> headroom.Request:
    tasks = tuple(task(f"own:{name}") for name in names)
    plain = headroom.Request(tasks, CPU, jobs=2, search_seconds=20.0, time_limit=None)
    return replace(plain, **changes)


def rows(models: FakeModels, wanted: headroom.Request, **known: Any) -> dict[str, Row]:
    report, interrupted = headroom.run(wanted, models.launch, **known)
    assert not interrupted
    return {row.model.removeprefix("own:"): row for row in report.rows}


def failing(kind: str, message: Any) -> Any:
    """Answers one kind of question with the message, the others as usual."""
    return lambda question: message if question.kind == kind else ...


def test_a_model_goes_from_start_to_row() -> None:
    models = FakeModels()
    found = rows(models, request("a"))["a"]
    assert found.state is State.MEASURED
    assert found.complete
    assert found.rounds == 1
    assert {(t.state, t.combo) for t in found.trials} == {
        (state, combo)
        for state in ("nothing", "batch_linears", "widen_linears")
        for combo in (False, True)
    }
    [last] = models.asked("final")
    assert last.arguments[1:] == (BATCHED, BATCHED)
    assert found.gain is not None
    assert found.gain.speedup == pytest.approx(2.0)
    assert all(worker.stopped for worker in models.workers)


def test_every_failure_is_a_row_with_the_reason() -> None:
    models = FakeModels(
        unbuilt=failing("start", {"failed": "WorkloadError: no"}),
        broken=lambda q: (
            {"failed": "RuntimeError: no"}
            if q.kind == "trial" and q.arguments[1].state == NOTHING and not q.arguments[2]
            else ...
        ),
        late=failing("final", {"failed": "RuntimeError: late"}),
        dead=failing("start", EOFError()),
    )
    found = rows(models, request("unbuilt", "broken", "late", "dead", "good"))
    why = {name: row.why for name, row in found.items() if row.state is State.FAILED}
    assert why == {
        "unbuilt": "WorkloadError: no",
        "broken": "default compile: RuntimeError: no",
        "late": "RuntimeError: late",
        "dead": "the worker was killed by signal 9",
    }
    assert found["good"].state is State.MEASURED
    assert len(found["late"].trials) == 6


def test_a_variant_that_kills_its_worker_costs_one_trial() -> None:
    def deadly(question: Question) -> Any:
        batched = question.kind == "trial" and question.arguments[1].state == BATCHED
        return EOFError() if batched and not question.arguments[2] else ...

    models = FakeModels(a=deadly)
    found = rows(models, request("a"))["a"]
    assert found.state is State.MEASURED
    failed = [t for t in found.trials if t.seconds is None]
    assert [(t.state, t.why) for t in failed] == [
        ("batch_linears", "the worker was killed by signal 9")
    ]
    # The next state is the best that is left.
    [last] = models.asked("final")
    assert last.arguments[1] == NOTHING
    assert len(models.workers) > 1


def test_a_wrong_winner_is_left_out_and_the_comparison_made_again() -> None:
    def wrong(question: Question) -> Any:
        if question.kind != "final" or question.arguments[1] != BATCHED:
            return ...
        return {"answer": final(wrong=OURS)}

    models = FakeModels(a=wrong)
    found = rows(models, request("a"))["a"]
    assert found.state is State.MEASURED
    assert [t.state for t in found.trials if t.is_wrong] == ["batch_linears"] * 2
    first, second = models.asked("final")
    assert (first.arguments[1], second.arguments[1]) == (BATCHED, NOTHING)


def test_at_the_time_limit_what_was_tried_is_kept() -> None:
    def slow(question: Question) -> Any:
        return None if question.kind == "trial" and question.arguments[1].state != NOTHING else ...

    models = FakeModels(slow=slow, never=failing("start", None))
    begin = time.monotonic()
    found = rows(models, request("slow", "never", time_limit=2.0))
    assert time.monotonic() - begin < 6.0
    assert {row.why for row in found.values()} <= {"time limit", ""}
    assert found["never"].state is State.NOT_RUN
    assert found["slow"].trials[0].state == "nothing"


def test_the_search_ends_in_time_for_the_last_comparison() -> None:
    def slow(question: Question) -> Any:
        wanted = question.arguments[1] if question.kind == "trial" else None
        return None if wanted is not None and wanted.state == WIDENED else ...

    found = rows(FakeModels(a=slow), request("a", search_seconds=1.0, jobs=3))["a"]
    assert found.state is State.MEASURED
    assert not found.complete
    assert {t.state for t in found.trials} == {"nothing", "batch_linears"}


def test_several_models_are_searched_at_the_same_time() -> None:
    wait = threading.Barrier(2, timeout=10)

    def together(question: Question) -> Any:
        if question.kind == "start":
            wait.wait()
        return ...

    found = rows(FakeModels(a=together, b=together), request("a", "b"))
    assert [row.state for row in found.values()] == [State.MEASURED] * 2


def test_an_interrupted_search_is_resumed(tmp_path: Path) -> None:
    path = tmp_path / "headroom.json"

    def unfinished(question: Question) -> Any:
        return None if question.kind == "neighbours" else ...

    first = request("a", "b", time_limit=1.5)
    before = rows(FakeModels(a=unfinished), first, json_file=path)
    assert not before["a"].complete
    assert before["b"].complete
    earlier = headroom._earlier(first, path)
    assert set(earlier) == set(first.tasks)
    again = FakeModels()
    after = rows(again, request("a", "b"), earlier=earlier)
    assert after["a"].complete
    assert after["b"] == before["b"]
    assert {question.task.model for worker in again.workers for question in worker.asked} == {
        "own:a"
    }
    assert again.asked("start") == []
    assert {t.key for t in after["a"].trials} > {t.key for t in before["a"].trials}


def test_a_file_of_other_code_is_not_resumed(tmp_path: Path) -> None:
    path = tmp_path / "headroom.json"
    rows(FakeModels(), request("a"), json_file=path)
    other = request("a")
    other = replace(other, tasks=(replace(other.tasks[0], precision="high"),))
    with pytest.raises(WorkloadError, match="write to another file"):
        headroom._earlier(other, path)
    assert headroom._earlier(other, tmp_path / "none.json") == {}


def test_ctrl_c_keeps_what_was_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    models = FakeModels()

    def launch(seat: Seat) -> FakeWorker:
        if seat.number:
            raise KeyboardInterrupt
        return models.launch(seat)

    monkeypatch.setattr(headroom, "launcher", lambda: launch)
    path = tmp_path / "headroom.json"
    arguments = ["headroom", "own:mmoe", "--device", "cpu", "--jobs", "2", "--json", str(path)]
    # A table in 80 columns breaks the sentence.
    result = CliRunner(env={"COLUMNS": "200"}).invoke(cli.app, arguments)
    assert result.exit_code == 130
    assert {(row.state, row.why) for row in load(path).rows} == {(State.NOT_RUN, "stopped")}
    assert "not run: stopped" in result.stdout


@pytest.mark.parametrize(
    ("special", "code"), [({}, 0), ({"mmoe": failing("start", {"failed": "no"})}, 1)]
)
def test_exit_codes(special: Any, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(headroom, "launcher", lambda: FakeModels(**special).launch)
    arguments = ["headroom", "own:mmoe", "--mode", "infer", "--device", "cpu"]
    result = CliRunner().invoke(cli.app, arguments)
    assert result.exit_code == code
    assert "[1/1] own:mmoe infer" in result.stderr


# ---- what is asked for


def test_default_models_are_there_in_both_modes() -> None:
    wanted = headroom.Request.of(device=CPU)
    assert [t.model for t in wanted.tasks] == [*headroom.MODELS] * 2
    assert [t.train for t in wanted.tasks] == [False] * 12 + [True] * 12


def test_models_by_name() -> None:
    wanted = headroom.Request.of(["rechub:MMOE", "mine.py:make"], mode="train", device=CPU, batch=8)
    assert [(t.model, t.train, t.batch) for t in wanted.tasks] == [
        ("zoo:rechub/MMOE", True, 8),
        ("mine.py:make", True, 8),
    ]
    with pytest.raises(WorkloadError, match="own:split_cat"):
        headroom.Request.of(["own:splitcat"], device=CPU)
    with pytest.raises(WorkloadError, match="it is one of infer, train, both"):
        headroom.Request.of(mode="eval", device=CPU)


def test_rows_that_were_measured_are_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "headroom.json"
    rows(FakeModels(), request("a"), json_file=path)
    before = path.read_bytes()
    arguments = ["headroom", "own:mmoe", "--device", "cpu", "--json", str(path)]
    result = CliRunner().invoke(cli.app, arguments)
    assert result.exit_code == 2
    assert "were measured before" in result.stderr
    assert path.read_bytes() == before


def test_resume_needs_a_file() -> None:
    assert CliRunner().invoke(cli.app, ["headroom", "own:mmoe", "--resume"]).exit_code == 2


# ---- the pool


def ask(pool: Pool, seconds: float = 10.0, wanted: Task | None = None) -> None:
    pool.ask(pool.idle[0], Question("start", wanted or task()), "ticket", seconds)


def test_a_worker_that_hangs_is_replaced() -> None:
    made: list[FakeWorker] = []

    def launch(_: Seat) -> FakeWorker:
        answer = {"answer": 1} if made else None
        made.append(FakeWorker(lambda _: answer))
        return made[-1]

    pool = Pool([Seat("", 0, "cpu", 1)], launch)
    ask(pool, seconds=0.05)
    assert pool.answers(0.0) == []
    assert pool.idle == []
    late = {"failed": "took longer than it may", "late": True}
    assert pool.answers(0.3) in ([], [("ticket", late)])
    pool.answers(0.0)
    assert made[0].stopped
    ask(pool)
    assert pool.answers(5.0) == [("ticket", {"answer": 1})]
    assert pool.idle[0].worker is made[1]
    pool.close()
    assert made[1].stopped


def test_a_worker_that_ends_is_replaced_without_losing_its_answer() -> None:
    made: list[FakeWorker] = []

    def launch(_: Seat) -> FakeWorker:
        made.append(FakeWorker(lambda _: {"failed": "CUDA error", "ends": True}))
        return made[-1]

    pool = Pool([Seat("", 0, "cpu", 1)], launch)
    for _ in range(2):
        ask(pool)
        assert pool.answers(5.0) == [("ticket", {"failed": "CUDA error", "ends": True})]
    assert len(made) == 2


def test_a_killed_process_is_a_failed_answer(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")

    def die(_: Seat, connection: Any) -> None:
        connection.recv()
        os.kill(os.getpid(), 9)

    pool = Pool([Seat(str(tmp_path), 0, "cpu", 1)], lambda seat: ProcessWorker(context, die, seat))
    ask(pool)
    [(ticket, message)] = pool.answers(20.0)
    assert ticket == "ticket"
    assert message["failed"] == "the worker was killed by signal 9"


# ---- the lock


def test_one_has_the_device_alone_and_many_share_it(tmp_path: Path) -> None:
    first, second, third = (DeviceLock(tmp_path) for _ in range(3))
    first.share()
    first.share()
    second.share()
    order: list[str] = []

    def measure() -> None:
        with third.alone():
            order.append("alone")

    def use() -> None:
        with DeviceLock(tmp_path).shared():
            order.append("shared")

    threads = [threading.Thread(target=measure)]
    threads[0].start()
    time.sleep(0.2)
    # Who comes after the one that waits has to wait for him.
    threads.append(threading.Thread(target=use))
    threads[1].start()
    time.sleep(0.2)
    assert order == []
    first.release()
    time.sleep(0.1)
    assert order == []
    second.release()
    for thread in threads:
        thread.join(10)
    assert order == ["alone", "shared"]


def test_a_process_that_dies_gives_the_lock_back(tmp_path: Path) -> None:
    def die() -> None:
        lock = DeviceLock(tmp_path)
        with lock.alone():
            os.kill(os.getpid(), 9)

    process = multiprocessing.get_context("fork").Process(target=die)
    process.start()
    process.join(20)
    with DeviceLock(tmp_path).alone():
        pass


def test_trials_are_proposals_again() -> None:
    assert trial(BATCHED).proposal == proposal(BATCHED)

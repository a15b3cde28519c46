"""The benchmark loses no row, whatever happens to a worker; the workers only pretend."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bench_runs import CPU, PLAIN, FakeBench, answer, case, report_of, request, rivals
from typer.testing import CliRunner, Result

from passwright.passes.errors import WorkloadError
from passwright.scheduler import cli
from passwright.training.bench import loop, tools
from passwright.training.bench import run as bench
from passwright.training.bench.rivals import COMBO, OPTIMUS, PREDICT, graphs
from passwright.training.bench.rows import Report, State, load
from passwright.training.headroom.final import DEFAULT
from passwright.training.worker import Question

Note = Callable[[str], None]


def states(report: Report, name: str) -> dict[str, State]:
    return {rival: row.state for rival, row in report.of(case(f"own:{name}")).items()}


def test_every_rival_of_every_case_has_a_row() -> None:
    models = FakeBench()
    wanted = request("a", "b", rivals=rivals(*PLAIN, graphs(DEFAULT)))
    found = report_of(models, wanted)
    assert len(found.rows) == 2 * (len(PLAIN) + 1)
    assert states(found, "a") == dict.fromkeys(PLAIN, State.OK) | {graphs(DEFAULT): State.NOT_HERE}
    assert found.not_run == ()
    assert all(worker.stopped for worker in models.workers)


def test_a_case_that_fails_costs_its_own_rows() -> None:
    models = FakeBench(
        unbuilt=lambda *_: {"failed": "WorkloadError: no"},
        dead=lambda *_: EOFError(),
    )
    found = report_of(models, request("unbuilt", "dead", "good"))
    assert set(states(found, "unbuilt").values()) == {State.FAILED}
    assert {row.why for row in found.of(case("own:unbuilt")).values()} == {"WorkloadError: no"}
    assert {row.why for row in found.of(case("own:dead")).values()} == {
        "the worker was killed by signal 9"
    }
    assert set(states(found, "good").values()) == {State.OK}


def test_a_rival_that_fails_or_is_wrong_costs_its_own_row() -> None:
    def bad(question: Question, _: Note) -> Any:
        wrong = {"ok": False, "sentence": "off", "output_error": 1.0, "gradient_error": 0.0}
        changes: dict[str, Any] = {
            OPTIMUS: {"why": "RuntimeError: view is being modified"},
            COMBO: {"why": "TimeLimit: took longer than 600 s"},
            PREDICT: {"agreement": wrong},
        }
        return answer(question, **changes)

    found = report_of(FakeBench(a=bad), request("a"))
    expected = {OPTIMUS: State.FAILED, COMBO: State.TIMEOUT, PREDICT: State.WRONG}
    assert states(found, "a") == dict.fromkeys(PLAIN, State.OK) | expected
    assert found.of(case("own:a"))[PREDICT].why == "off"


def test_a_rival_that_kills_its_worker_is_left_out_and_the_others_are_measured() -> None:
    def deadly(question: Question, note: Note) -> Any:
        names = [rival.name for rival in question.arguments[0]]
        if OPTIMUS in names:
            note(OPTIMUS)
            return EOFError()
        return ...

    models = FakeBench(a=deadly)
    found = report_of(models, request("a"))
    assert states(found, "a") == dict.fromkeys(PLAIN, State.OK) | {OPTIMUS: State.FAILED}
    assert [row.rival for row in found.rows] == list(PLAIN)
    assert len(models.asked) == 2


def test_a_rival_that_hangs_is_a_timeout_and_the_others_are_measured() -> None:
    def hanging(question: Question, note: Note) -> Any:
        if COMBO in [rival.name for rival in question.arguments[0]]:
            note(COMBO)
            return None
        return ...

    class Impatient(bench.Request):
        patience = 0.3  # type: ignore[assignment]

    wanted = request("a")
    impatient = Impatient(wanted.cases, wanted.rivals, (CPU,), jobs=1)
    found = report_of(FakeBench(a=hanging), impatient)
    assert states(found, "a") == dict.fromkeys(PLAIN, State.OK) | {COMBO: State.TIMEOUT}


def test_at_the_time_limit_what_is_missing_is_named() -> None:
    begin = time.monotonic()
    models = FakeBench(never=lambda *_: None)
    found = report_of(models, request("never", "late", "a", jobs=1, time_limit=1.0))
    assert time.monotonic() - begin < 6.0
    assert found.rows == ()
    assert {one.model for one in found.not_run} == {"own:never", "own:late", "own:a"}


def test_what_is_missing_is_measured_when_gone_on(tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    wanted = request("never", "a", jobs=2, time_limit=1.0)
    report_of(FakeBench(never=lambda *_: None), wanted, json_file=path)
    first = load(path)
    assert [one.model for one in first.not_run] == ["own:never"]
    again = FakeBench()
    earlier = bench._earlier(wanted, path)
    found = report_of(again, request("never", "a"), report=earlier, json_file=path)
    assert [question.task.model for question in again.asked] == ["own:never"]
    assert load(path) == found
    assert found.not_run == ()
    assert {row.case.model for row in found.rows} == {"own:never", "own:a"}
    assert found.seconds >= first.seconds


def test_more_rivals_than_before_are_measured_with_the_others() -> None:
    few = report_of(FakeBench(), request("a", rivals=rivals(DEFAULT, PREDICT)))
    models = FakeBench()
    found = report_of(models, request("a"), report=few)
    assert len(models.asked) == 1
    assert [row.rival for row in found.rows] == list(PLAIN)
    models = FakeBench()
    assert report_of(models, request("a"), report=found).rows == found.rows
    assert models.asked == []


def test_a_case_of_which_nothing_was_measured_is_tried_again() -> None:
    failed = report_of(FakeBench(a=lambda *_: {"failed": "no"}), request("a"))
    models = FakeBench()
    found = report_of(models, request("a"), report=failed)
    assert set(states(found, "a").values()) == {State.OK}
    assert len(found.rows) == len(PLAIN)


def test_a_file_of_other_code_is_not_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "bench.json"
    wanted = request("a")
    report_of(FakeBench(), wanted, json_file=path)
    assert bench._earlier(wanted, path) is not None
    monkeypatch.setattr(loop, "code_version", lambda: "other")
    with pytest.raises(WorkloadError, match="made by other code"):
        bench._earlier(wanted, path)
    assert bench._earlier(wanted, tmp_path / "missing.json") is None


def test_ctrl_c_keeps_what_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "bench.json"
    take = bench.Bench._take_answers

    def interrupt(self: bench.Bench) -> None:
        take(self)
        if self.done:
            raise KeyboardInterrupt

    monkeypatch.setattr(loop.Bench, "_take_answers", interrupt)
    monkeypatch.setattr(bench, "launcher", lambda: FakeBench(mmoe=lambda *_: None).launch)
    arguments = ["bench", "own:split_cat", "own:mmoe", "--mode", "infer", "--device", "cpu"]
    arguments += ["--rivals", "predict", "--jobs", "1", "--json", str(path)]
    result = CliRunner(env={"COLUMNS": "200"}).invoke(cli.app, arguments)
    assert result.exit_code == 130
    found = load(path)
    assert {row.case.model for row in found.rows} == {"own:split_cat"}
    assert [one.model for one in found.not_run] == ["own:mmoe"]
    assert "2.00x" in result.stdout
    assert "1 case is missing: stopped" in result.stderr


def test_the_file_is_kept_up_to_date(tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    seen: list[int] = []

    def look(*_: Any) -> Any:
        seen.append(len(load(path).rows) if path.exists() else 0)
        return ...

    report_of(FakeBench(a=look, b=look), request("a", "b", jobs=1), json_file=path)
    assert seen == [0, len(PLAIN)]


@pytest.mark.parametrize(("special", "code"), [({}, 0), ({"mmoe": lambda *_: {"failed": "no"}}, 1)])
def test_exit_codes(special: Any, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "launcher", lambda: FakeBench(**special).launch)
    arguments = ["bench", "own:mmoe", "--mode", "infer", "--device", "cpu", "--rivals", "predict"]
    result = CliRunner().invoke(cli.app, arguments)
    assert result.exit_code == code
    assert "[1/1] own:mmoe infer" in result.stderr


def test_a_folder_is_made_and_a_file_that_cannot_be_written_is_named_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = FakeBench()
    monkeypatch.setattr(bench, "launcher", lambda: models.launch)
    arguments = ["bench", "own:mmoe", "--mode", "infer", "--device", "cpu", "--rivals", "predict"]
    path = tmp_path / "new" / "bench.json"
    assert CliRunner().invoke(cli.app, [*arguments, "--json", str(path)]).exit_code == 0
    assert load(path).rows
    known = len(models.asked)
    for bad in (tmp_path, path / "bench.json"):
        result = CliRunner().invoke(cli.app, [*arguments, "--json", str(bad)])
        assert result.exit_code == 2
        assert f"passwright: {bad} cannot be written" in result.stderr
    assert len(models.asked) == known


def test_a_disk_that_is_full_costs_the_file_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("passwright.training.bench.rows.write", full)
    monkeypatch.setattr(bench, "launcher", lambda: FakeBench().launch)
    arguments = ["bench", "own:mmoe", "own:split_cat", "--mode", "infer", "--device", "cpu"]
    arguments += ["--rivals", "predict", "--json", str(tmp_path / "bench.json")]
    result = CliRunner(env={"COLUMNS": "200"}).invoke(cli.app, arguments)
    assert result.exit_code == 2
    assert "[2/2]" in result.stderr
    assert "No space left" in result.stderr
    assert "2.00x" in result.stdout


# ---- a file that is there


def benched(path: Path, *more: str) -> Result:
    arguments = ["bench", "own:mmoe", "--mode", "infer", "--device", "cpu", "--rivals", "predict"]
    return CliRunner().invoke(cli.app, [*arguments, "--json", str(path), *more])


def test_rows_that_were_measured_are_not_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = FakeBench()
    monkeypatch.setattr(bench, "launcher", lambda: models.launch)
    path = tmp_path / "bench.json"
    assert benched(path).exit_code == 0
    before = path.read_bytes()
    result = benched(path)
    assert result.exit_code == 2
    assert f"passwright: {path} holds 2 rows" in result.stderr
    assert "--resume" in result.stderr
    assert path.read_bytes() == before
    assert len(models.asked) == 1
    assert benched(path, "--resume").exit_code == 0


def test_what_is_no_report_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "notes.json"
    path.write_text("mine", encoding="utf-8")
    result = benched(path)
    assert result.exit_code == 2
    assert "was not written by `passwright bench --json`" in result.stderr
    assert path.read_text(encoding="utf-8") == "mine"


def test_a_file_without_rows_is_written_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "launcher", lambda: FakeBench().launch)
    path = tmp_path / "bench.json"
    for text in ("", bench._empty(request("a")).to_json()):
        path.write_text(text, encoding="utf-8")
        assert benched(path).exit_code == 0
        assert load(path).rows


# ---- what is asked for


def asked(**how: Any) -> bench.Request:
    return tools.request(device=CPU, **how)


def test_without_a_model_all_public_ones_are_measured() -> None:
    wanted = asked()
    assert len(wanted.cases) == 2 * 36
    assert {(c.suite, c.batch, c.precision) for c in wanted.cases} == {("public", 2048, "tf32")}
    assert wanted.rivals[0].name == "eager"
    assert len(wanted.rivals) == 14


def test_models_by_name_and_some_of_a_suite() -> None:
    wanted = asked(models=["rechub:MMOE"], mode="train", batch=8, precisions=("bf16",))
    assert wanted.cases == (
        case("zoo:rechub/MMOE", True, suite="models", batch=8, precision="bf16"),
    )
    some = asked(models=["rechub/*"], suite="public", mode="infer")
    assert len(some.cases) == 14
    assert {c.suite for c in some.cases} == {"public"}
    # Of several suites, those that have it.
    some = asked(models=["own:dhen", "own:lora"], suite="public,archetypes,blocks", mode="infer")
    assert [(c.suite, c.batch) for c in some.cases] == [
        ("archetypes", 2048), ("blocks", 1), ("blocks", 8), ("blocks", 16),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"suite": "publik"}, "there is no suite 'publik'"),
        ({"mode": "eval"}, "it is one of infer, train, both"),
        ({"precisions": ("fp8",)}, "it is one of fp32, tf32, bf16"),
        ({"rivals": ("predikt",)}, "no rival is named 'predikt'"),
        ({"suite": "blocks", "models": ["nobody*"]}, "suite blocks has no model named nobody"),
        ({"models": ["own:splitcat"]}, "own:split_cat"),
    ],
)
def test_what_there_is_not(how: Any, message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        asked(**how)


def test_the_command_line() -> None:
    runner = CliRunner(env={"COLUMNS": "200"})
    assert runner.invoke(cli.app, ["bench", "--resume"]).exit_code == 2
    result = runner.invoke(cli.app, ["bench", "--list"])
    assert result.exit_code == 0
    assert "public: " in result.stdout
    assert "36 models, batch 2048, tf32" in result.stdout
    assert "max-autotune: " in result.stdout


def test_a_file_is_shown(tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    report_of(FakeBench(), request("a"), json_file=path)
    for more in ([], ["--markdown"]):
        result = CliRunner(env={"COLUMNS": "200"}).invoke(
            cli.app, ["bench", "--from", str(path), *more]
        )
        assert result.exit_code == 0, result.output
        assert "over combo kernels" in result.stdout


def test_how_long_it_may_take() -> None:
    clock = iter(range(0, 1000, 60))
    found = bench.Bench(
        request("a", "b", "c"),
        None,  # type: ignore[arg-type]
        bench._empty(request("a")),
        lambda *_: None,
        clock=lambda: float(next(clock)),
    )
    assert found.forecast() == ""
    found.done, found._last = 1, 60.0
    # It gets less while the next one is under way.
    assert found.forecast() == "about 2 min left"
    assert found.forecast() == "about 1 min left"

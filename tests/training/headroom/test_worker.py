"""What a worker answers when headroom is searched, with eager in place of Inductor; once with Inductor."""

from __future__ import annotations

import multiprocessing
import threading
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from headroom_runs import task
from torch import fx
from typer.testing import CliRunner

from passwright.scheduler import cli, inductor
from passwright.scheduler.optimize import Scheduler
from passwright.training import variants, worker
from passwright.training.demo_report import State as RowState
from passwright.training.headroom import propose
from passwright.training.headroom.final import DEFAULT, DEFAULT_COMBO, OURS, OURS_COMBO
from passwright.training.headroom.greedy import Proposal, Trial
from passwright.training.headroom.propose import rewritten
from passwright.training.headroom.report import Row, load
from passwright.training.headroom.worker import Answers, Task, work
from passwright.training.macros import CLEAN_UP, NOTHING, PLANNED, Macro, State, apply_macro
from passwright.training.worker import Question, Seat

BRANCHES = "own:norm_branches?fields=3"


class Compiled:
    """Stands in for Inductor: remembers the graphs and the options, and runs them as they are."""

    def __init__(self) -> None:
        self.graphs: list[str] = []
        self.options: list[Any] = []
        #: Fails when a graph holds this op.
        self.refuses = ""

    def __call__(self, gm: fx.GraphModule, inputs: Sequence[Any], *, options: Any = None) -> Any:
        if self.refuses and self.refuses in gm.code:
            raise RuntimeError(f"cannot compile {self.refuses}")
        self.graphs.append(gm.code)
        self.options.append(options)
        return gm.forward


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> Compiled:
    found = Compiled()
    monkeypatch.setattr(inductor, "compile_with_inductor", found)
    return found


@pytest.fixture
def answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Answers]:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("TORCHINDUCTOR_COMPILE_THREADS", "1")
    found = Answers(Seat(str(tmp_path), 0, "cpu", torch.get_num_threads()))
    yield found
    found.tidy_up()


def branches(**changes: Any) -> Task:
    return task(BRANCHES, **{"batch": 8, "trial_seconds": 0.2, "final_seconds": 0.3} | changes)


@pytest.mark.parametrize("train", [False, True])
def test_starts_are_nothing_the_plan_and_everything(
    train: bool, answers: Answers, compiled: Compiled
) -> None:
    found = answers.start(branches(train=train))
    states = [proposal.state for proposal in found["proposals"]]
    assert states[:2] == [NOTHING, PLANNED]
    assert states[2].macros
    digests = [proposal.digest for proposal in found["proposals"]]
    assert digests[2] != digests[0]
    assert all(proposal.predicted > 0 for proposal in found["proposals"])
    assert [plan.training for plan in found["plans"]] == [train]
    assert compiled.graphs == []


def test_neighbours_are_one_macro_more_or_less(answers: Answers, compiled: Compiled) -> None:
    wanted = branches()
    plans = answers.start(wanted)["plans"]
    linears = State((Macro("batch_linears"),))
    beside = answers.neighbours(wanted, plans, linears, 60.0)
    found = {proposal.state: proposal.digest for proposal in beside["proposals"]}
    assert not beside["cut"]
    assert linears.then(Macro("batch_layer_norms")) in found
    assert found[NOTHING] == answers.start(wanted)["proposals"][0].digest
    # What changes nothing is no neighbour.
    assert linears.then(CLEAN_UP) not in found
    assert answers.neighbours(wanted, plans, linears, 0.0)["cut"]


def test_a_macro_that_fails_is_no_neighbour(
    answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(graph: fx.Graph, macro: Macro, table: Any) -> list[str]:
        if macro.pattern == "batch_linears":
            raise ZeroDivisionError
        return apply_macro(graph, macro, table)

    monkeypatch.setattr(propose, "apply_macro", failing)
    wanted = branches()
    beside = answers.neighbours(wanted, [], NOTHING, 60.0)["proposals"]
    found = {macro.pattern for proposal in beside for macro in proposal.state.macros}
    assert "batch_layer_norms" in found
    assert "batch_linears" not in found


def test_where_planning_fails_there_is_no_plan(
    answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Scheduler, "plan_graph", lambda *_, **__: 1 / 0)
    found = answers.start(branches())
    assert found["plans"] == []
    nothing, planned = found["proposals"][:2]
    assert (nothing.state, planned.state) == (NOTHING, PLANNED)
    assert nothing.digest == planned.digest


def test_a_proposal_is_what_gets_compiled(answers: Answers, compiled: Compiled) -> None:
    wanted = branches()
    start = answers.start(wanted)
    everything = start["proposals"][2]
    for combo in (False, True):
        found = answers.trial(wanted, start["plans"], everything, combo)
        assert found.seconds is not None
        assert (found.combo, found.digest) == (combo, everything.digest)
        assert found.steps >= 2
        assert len(found.blocks) >= 2
        answers.tidy_up()
    assert compiled.options == [{}, {"combo_kernels": True}]
    bench = rewritten(answers.model(wanted).captured(), wanted, everything.state, start["plans"])
    assert bench.proposal(everything.state).digest == everything.digest
    bench.graphs[0].recompile()
    assert compiled.graphs == [bench.graphs[0].code] * 2


def test_nothing_is_the_graph_as_it_was_captured(answers: Answers, compiled: Compiled) -> None:
    wanted = branches()
    found = answers.trial(wanted, [], Proposal(NOTHING, "", 1.0), False)
    assert found.steps == 0
    assert compiled.graphs == [answers.model(wanted).captured()[0].code]


@pytest.mark.parametrize("train", [False, True])
def test_the_last_comparison_has_four_variants(
    train: bool, answers: Answers, compiled: Compiled
) -> None:
    wanted = branches(train=train)
    linears = State((Macro("batch_linears"),))
    sent = answers.final(wanted, [], linears, linears.then(Macro("batch_layer_norms")))
    assert set(sent["variants"]) == {DEFAULT, DEFAULT_COMBO, OURS, OURS_COMBO}
    row = Row(wanted.model, train, 8, RowState.MEASURED, final=sent)
    for name in sent["variants"]:
        assert row.seconds_of(name)
        assert row.variant(name)["agreement"]["ok"]
        assert row.variant(name)["agreement"]["oracle"]
    assert [label.partition("{")[0] for label in row.variant(OURS)["steps"]] == ["batch_linears"]
    assert row.gain is not None
    assert set(sent["estimates"]) == {DEFAULT, OURS}
    assert sent["profile"] is None


def test_ours_is_left_out_where_nothing_was_better(answers: Answers, compiled: Compiled) -> None:
    sent = answers.final(branches(), [], NOTHING, NOTHING)
    assert set(sent["variants"]) == {DEFAULT, DEFAULT_COMBO}
    assert len(compiled.graphs) == 2


def test_a_variant_that_does_not_compile_is_left_out(answers: Answers, compiled: Compiled) -> None:
    compiled.refuses = "bmm"
    sent = answers.final(branches(), [], State((Macro("batch_linears"),)), NOTHING)
    assert "cannot compile bmm" in sent["variants"][OURS]["why"]
    assert set(sent["measured"]["timings"]) == {DEFAULT, DEFAULT_COMBO}


def test_a_wrong_variant_is_found(
    answers: Answers, compiled: Compiled, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(gm: fx.GraphModule, inputs: Sequence[Any], *, options: Any = None) -> Any:
        factor = 1.01 if "bmm" in gm.code else 1.0
        return lambda *arguments: tuple(factor * value for value in gm.forward(*arguments))

    monkeypatch.setattr(inductor, "compile_with_inductor", wrong)
    sent = answers.final(branches(), [], State((Macro("batch_linears"),)), NOTHING)
    assert not sent["variants"][OURS]["agreement"]["ok"]
    assert sent["variants"][DEFAULT]["agreement"]["ok"]


def test_a_model_that_is_not_kept_is_gone_though_dynamo_keeps_a_backend_that_failed(
    answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise RuntimeError("cannot compile this")

    monkeypatch.setattr(inductor, "compile_with_inductor", refuse)
    model = answers.model(branches())
    module = weakref.ref(model.subject.module)
    with pytest.raises(Exception, match="cannot compile this"):
        variants.compiled(model, {})
    del model
    for batch in (16, 32):
        answers.model(branches(batch=batch))
    answers.tidy_up()
    assert module() is None


def test_a_worker_answers_until_it_is_told_to_end(
    tmp_path: Path, compiled: Compiled, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "into_log", lambda _: None)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("TORCHINDUCTOR_COMPILE_THREADS", "1")
    ours, theirs = multiprocessing.Pipe()
    seat = Seat(str(tmp_path), 0, "cpu", torch.get_num_threads())
    thread = threading.Thread(target=work, args=(seat, theirs))
    thread.start()
    ours.send(Question("start", task("own:nothing")))
    assert ours.recv()["failed"].startswith("WorkloadError: unknown workload")
    compiled.refuses = "linear"
    proposal = Proposal(NOTHING, "hash", 1.0)
    ours.send(Question("trial", branches(), ([], proposal, False)))
    assert "cannot compile linear" in ours.recv()["failed"]
    compiled.refuses = ""
    ours.send(Question("trial", branches(), ([], proposal, False)))
    answer = ours.recv()["answer"]
    assert isinstance(answer, Trial)
    assert answer.state == "nothing"
    ours.send("goodbye")
    thread.join(60)
    assert not thread.is_alive()


@pytest.mark.slow
@pytest.mark.inductor
def test_a_tiny_benchmark_from_end_to_end(tmp_path: Path) -> None:
    path = tmp_path / "headroom.json"
    model = ["own:split_cat?fields=4", "--mode", "infer", "--batch", "8", "--device", "cpu"]
    limits = ["--jobs", "1", "--search-seconds", "120", "--time-limit", "280"]
    arguments = ["headroom", *model, *limits, "--json", str(path)]
    result = CliRunner().invoke(cli.app, arguments, env={"COLUMNS": "220"})
    assert result.exit_code == 0, result.output
    (row,) = load(path).rows
    assert row.state is RowState.MEASURED
    assert row.variant(DEFAULT)["kernels"] > 1
    assert min(t.kernels for t in row.trials if t.kernels) < row.variant(DEFAULT)["kernels"]
    assert all(row.variant(name)["agreement"]["ok"] for name in (DEFAULT, OURS, OURS_COMBO))
    assert "Geometric mean of 1" in result.stdout

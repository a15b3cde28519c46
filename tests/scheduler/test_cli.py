"""The command line: what each command prints, how it ends, and that it asks for nothing it needs not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from cli_runs import assert_refused, run, run_json

from passwright.passes.errors import SettingsError
from passwright.passes.inductor.table import kernel_patterns
from passwright.passes.table import default_table
from passwright.scheduler.commands.models import devices_of, pick_device
from passwright.scheduler.commands.plan import Diff
from passwright.scheduler.commands.show_plan import SHORT_DIFF, duration, shortened
from passwright.scheduler.plan import Plan, load

pytestmark = pytest.mark.usefixtures("commands_plans")

MODELS = """
import torch
from torch import nn

class SplitCat(nn.Module):
    def forward(self, x):
        for _ in range(2):
            x = torch.cat([torch.sigmoid(piece) for piece in x.split(8, dim=1)], dim=1)
        return x

class Scaled(SplitCat):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(64))

    def forward(self, x):
        return super().forward(x * self.scale)

class Broken(SplitCat):
    def forward(self, x):
        y = super().forward(x)
        torch._dynamo.graph_break()
        return super().forward(y)

def make(batch=16):
    return SplitCat(), (torch.randn(batch, 64),)

def scaled():
    return Scaled(), (torch.randn(16, 64),)

def broken():
    return Broken(), (torch.randn(16, 64),)

def no_batch():
    return SplitCat(), (torch.randn(16, 64),)

def wrong():
    return SplitCat()

def failing():
    return nn.Linear(3), (torch.randn(2, 3),)
"""


@pytest.fixture
def models(tmp_path: Path) -> str:
    path = tmp_path / "models.py"
    path.write_text(MODELS, encoding="utf-8")
    return str(path)


# ---- the program itself


def test_help_needs_no_torch() -> None:
    code = (
        "import sys; sys.argv = ['passwright', '--help']\n"
        "from passwright.scheduler.cli import main\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code\n"
        "heavy = {'torch', 'numpy', 'pandas'} & sys.modules.keys()\n"
        "print('heavy:', sorted(heavy))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert "heavy: []" in done.stdout
    assert "Usage: passwright" in done.stdout


@pytest.mark.parametrize(
    "command",
    [
        "doctor",
        "patterns",
        "plan",
        "tune",
        "demo",
        "bench",
        "headroom",
        "collect",
        "train",
        "evaluate",
        "report",
    ],
)
def test_each_command_teaches_by_example(command: str) -> None:
    result = run(command, "--help")
    assert result.exit_code == 0
    assert f"passwright {command}" in result.stdout.partition("Examples:")[2]


def test_ctrl_c_ends_with_130(models: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: Any, **__: Any) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("passwright.scheduler.commands.plan.plan_command", interrupt)
    result = run("plan", f"{models}:make")
    assert result.exit_code == 130
    assert result.stderr == "passwright: stopped\n"


# ---- patterns


def test_patterns_lists_all_of_them() -> None:
    result = run("patterns")
    assert result.exit_code == 0
    everything = [*default_table(), *kernel_patterns()]
    for pattern in everything:
        assert pattern.name() in result.stdout
    assert f"{len(everything)} patterns" in result.stdout


def test_patterns_as_json_says_what_they_declare() -> None:
    found = {item["name"]: item for item in run_json("patterns")}
    assert found.keys() == {p.name() for p in (*default_table(), *kernel_patterns())}
    kernels = {name: found.pop(name) for name in [p.name() for p in kernel_patterns()]}
    assert {item["direction"] for item in kernels.values()} == {"before fusion", "after fusion"}
    assert all(item["levels"] == ["inductor"] for item in kernels.values())
    for item in found.values():
        assert item["direction"] in ("horizontal", "vertical")
        assert item["exactness"] in ("bitwise", "reassociating", "relaxed")
        assert set(item["levels"]) <= {"torch", "aten"}
        assert item["levels"]
        assert item["summary"]
    assert found["batch_linears"]["direction"] == "horizontal"
    assert not found["batch_linears"]["cleanup"]


def test_one_pattern_shows_its_whole_docstring() -> None:
    result = run("patterns", "batch_linears")
    doc = type(default_table()["batch_linears"]).__doc__
    assert doc is not None
    for line in filter(None, map(str.strip, doc.splitlines())):
        assert line in result.stdout


def test_an_unknown_pattern_is_answered_with_a_known_one() -> None:
    assert_refused(run("patterns", "batch_linear"), "'batch_linear'", "batch_linears")


# ---- plan


def test_plan_explains_and_keeps_what_it_would_do(models: str, commands_plans: Path) -> None:
    data = run_json("plan", f"{models}:make")
    assert data["phase"] == "inference"
    assert data["versions"]["torch"] == torch.__version__
    (graph,) = data["graphs"]
    plan = graph["plan"]
    assert plan["steps"]
    assert plan["ops_after"] < plan["ops_before"] == 2 * (2 + 2 * 8)
    assert graph["estimated_seconds"]["after"] < graph["estimated_seconds"]["before"]
    assert not graph["stored"]
    assert Path(graph["path"]).parent == commands_plans
    assert load(Path(graph["path"]).read_text(encoding="utf-8")).fingerprint == plan["fingerprint"]

    (again,) = run_json("plan", f"{models}:make")["graphs"]
    assert again["stored"]
    assert again["plan"] == plan

    shown = run("plan", f"{models}:make").stdout
    for step in plan["steps"]:
        assert f"{step['pattern']}{step['parameters']} @ {step['anchor']}:{step['key']}" in shown
    assert f"{plan['ops_before']} -> {plan['ops_after']} ops" in shown
    assert "gain-to-go" in shown
    assert graph["path"] in shown
    for item in plan["left"]:
        assert item["reason"] in shown


def test_a_plan_file_is_replayed(models: str, tmp_path: Path) -> None:
    text, machine = tmp_path / "my.plan", tmp_path / "my.json"
    for path in (text, machine):
        assert run("plan", f"{models}:make", "--output", str(path)).exit_code == 0
    assert text.read_text(encoding="utf-8").startswith("# passwright plan ")
    labels = [step.label for step in load(machine.read_text(encoding="utf-8")).steps]
    assert labels
    text.write_text(text.read_text(encoding="utf-8").replace(labels[-1], f"# {labels[-1]}"))

    (graph,) = run_json("plan", f"{models}:make", "--set", f"plan={text}")["graphs"]
    assert graph["plan"]["origin"] == "replayed"
    assert len(graph["plan"]["steps"]) == len(labels) - 1


def test_every_graph_of_a_broken_model_is_planned(models: str, tmp_path: Path) -> None:
    graphs = run_json("plan", f"{models}:broken", "--output", str(tmp_path / "p.plan"))["graphs"]
    assert len(graphs) == 2
    assert all(graph["plan"]["steps"] for graph in graphs)
    assert sorted(path.name for path in tmp_path.glob("*.plan")) == ["p.1.plan", "p.2.plan"]
    assert "Graph 2" in run("plan", f"{models}:broken").stdout


def test_a_graph_that_cannot_be_planned_says_why(
    models: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("no such luck")

    monkeypatch.setattr("passwright.scheduler.optimize.Scheduler.plan_graph", fail)
    result = run("plan", f"{models}:make")
    assert result.exit_code == 1
    assert "left as it is: RuntimeError: no such luck" in result.stdout


def test_training_plans_for_training() -> None:
    data = run_json("plan", "own:norm_branches?fields=3", "--batch", "8", "--train")
    assert data["phase"] == "training"
    assert data["graphs"][0]["plan"]["training"]


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("{file}:mak", ("there is no callable 'mak'", "did you mean make?")),
        ("{file}:wrong", ("must return (module, inputs)",)),
        ("{file}:failing", ("TypeError", "models.py")),
        ("missing.py:make", ("there is no file missing.py",)),
        ("rechub:MMOE", ("no module 'rechub'", "zoo:rechub/MODEL")),
        ("own:splitcat", ("own:split_cat",)),
        ("own:split_cat?fields=two", ("fields=NUMBER",)),
        ("make", ("names no model",)),
    ],
)
def test_a_wrong_model_name_is_refused(model: str, words: tuple[str, ...], models: str) -> None:
    assert_refused(run("plan", model.format(file=models)), *words)


def test_other_wrong_words_are_refused(models: str, tmp_path: Path) -> None:
    make = f"{models}:make"
    assert_refused(run("plan", make, "--set", "min_gian=1"), "did you mean 'min_gain'")
    assert_refused(run("plan", make, "--set", "min_gain"), "NAME=VALUE")
    assert_refused(run("plan", make, "--set", "without=batch_linear"), "batch_linears")
    assert_refused(run("plan", make, "--device", "tpu"), "cpu")
    assert_refused(run("plan", make, "--device", "cuda:99"), "CUDA")
    assert_refused(run("plan", f"{models}:no_batch", "--batch", "4"), "--batch")
    damaged = tmp_path / "damaged.plan"
    damaged.write_text("{}", encoding="utf-8")
    assert_refused(run("plan", make, "--set", f"plan={damaged}"), "damaged.plan")
    result = run("plan", make, "--diff", "long")
    assert result.exit_code == 2
    assert "none, short, full" in result.stderr


def test_a_module_in_the_working_directory_is_found(
    models: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(models).parent
    (folder / "own_models_of_the_test.py").write_text(MODELS, encoding="utf-8")
    monkeypatch.chdir(folder)
    (graph,) = run_json("plan", "own_models_of_the_test:make", "--batch", "4")["graphs"]
    assert graph["plan"]["steps"]


def test_the_device_is_checked() -> None:
    assert pick_device("cpu") == torch.device("cpu")
    with pytest.raises(SettingsError, match="only cpu and cuda"):
        pick_device("meta")


def test_cuda_without_a_number_is_every_gpu_where_work_can_be_spread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    found = devices_of(torch.device("cuda"))
    assert [str(one) for one in found] == ["cuda:0", "cuda:1", "cuda:2"]
    for name in ("cuda:1", "cpu"):
        assert devices_of(torch.device(name)) == (torch.device(name),)


def test_diffs_are_shortened_and_readable() -> None:
    def line(sign: str, number: int, op: str = "torch.sigmoid") -> str:
        call = f"call_function[target={op}](args = (%p_{number},), kwargs = {{dim: 1}})"
        return f"{sign} %a_{number} : [num_users=1] = {call}"

    long = [line("-", n) for n in range(40)] + [line("-", n, "operator.getitem") for n in range(40)]
    long += [line("+", 99)]
    short = shortened(long, Diff.SHORT)
    assert len(short) == SHORT_DIFF + 1
    assert short[0] == "- a_0 = torch.sigmoid(%p_0, dim=1)"
    assert "+ a_99 = torch.sigmoid(%p_99, dim=1)" in short
    assert short[-1] == f"... {81 - SHORT_DIFF} more lines (--diff full)"
    assert len(shortened(long, Diff.FULL)) == 81
    assert shortened(long, Diff.NONE) == []


def test_durations_have_three_digits() -> None:
    assert [duration(s) for s in (2.0, 0.00123, 54.4e-6, 2e-9)] == [
        "2 s",
        "1.23 ms",
        "54.4 us",
        "2 ns",
    ]


# ---- tune


def test_tune_measures_and_keeps_the_winner(
    models: str, monkeypatch: pytest.MonkeyPatch, commands_plans: Path
) -> None:
    # Eager in place of Inductor: what is measured is then real, and takes no compile.
    monkeypatch.setattr(
        "passwright.scheduler.compiler.compile_with_inductor",
        lambda module, _inputs, **_: module.forward,
    )
    arguments = ("tune", f"{models}:make", "--batch", "64", "--set", "tune_seconds=1")
    (graph,) = run_json(*arguments)["graphs"]
    comparison = graph["comparison"]
    assert graph["measured_now"]
    assert {"default", "predicted"} <= comparison["timings"].keys()
    assert all(timing["blocks"] for timing in comparison["timings"].values())
    assert graph["winner"] == "predicted"
    assert graph["plan"]["origin"] == "measured"
    assert graph["plan"]["measured"]["lower"] > 0
    assert Path(graph["path"]).parent == commands_plans

    (kept,) = run_json(*arguments)["graphs"]
    assert not kept["measured_now"]
    assert kept["plan"] == graph["plan"]
    assert "tuned before" in run(*arguments).stdout
    (planned,) = run_json("plan", f"{models}:make", "--batch", "64")["graphs"]
    assert planned["plan"]["origin"] == "measured"

    anew = run(*arguments, "--again")
    assert anew.exit_code == 0
    assert "95 % interval" in anew.stdout
    assert graph["path"] in anew.stdout


def test_tune_with_a_budget_measures_what_was_searched_as_well(
    models: str, monkeypatch: pytest.MonkeyPatch, commands_plans: Path
) -> None:
    monkeypatch.setattr(
        "passwright.scheduler.compiler.compile_with_inductor",
        lambda module, _inputs, **_: module.forward,
    )
    predicted = Plan.from_json(
        json.dumps(run_json("plan", f"{models}:make", "--batch", "64")["graphs"][0]["plan"])
    )
    asked: list[tuple[str, float]] = []

    def best_plans(model: str, *, budget: float, **_: Any) -> list[tuple[Plan, ...]]:
        asked.append((model, budget))
        # A part of the plan: another graph than the predicted one.
        return [(predicted.replaced(steps=predicted.steps[:1]),)]

    monkeypatch.setattr("passwright.training.tune_search.best_plans", best_plans)
    arguments = ("tune", f"{models}:make", "--batch", "64", "--set", "tune_seconds=1")
    (graph,) = run_json(*arguments, "--budget", "2m")["graphs"]
    assert asked == [(f"{models}:make", pytest.approx(120.0, abs=5.0))]
    assert {"default", "predicted", "searched 1"} <= graph["variants"].keys()
    assert graph["measured_now"]
    wrong = run(*arguments, "--budget", "soon")
    assert wrong.exit_code == 2
    assert "90s, 10m or 2h" in wrong.stderr.replace("\n", " ")


@pytest.mark.inductor
def test_tune_in_training_compiles_backwards_before_it_measures(models: str) -> None:
    (graph,) = run_json("tune", f"{models}:scaled", "--train", "--set", "tune_seconds=0.5")[
        "graphs"
    ]
    assert graph["comparison"]["censored"] == {}
    assert {"default", "predicted"} <= graph["comparison"]["timings"].keys()
    assert graph["plan"]["training"]
    assert graph["plan"]["ops_before"] == 1 + 2 * (2 + 2 * 8)


def test_tune_says_when_a_model_does_not_compile(
    models: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("no compiler today")

    monkeypatch.setattr("passwright.scheduler.compiler.compile_with_inductor", fail)
    result = run("tune", f"{models}:make")
    assert result.exit_code == 1
    assert "does not compile" in result.stderr
    assert "no compiler today" in result.stderr

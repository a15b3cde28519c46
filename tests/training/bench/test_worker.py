"""What a worker answers: facts and times of every rival, with eager in place of Inductor; once for real."""

from __future__ import annotations

import math
import sys
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from bench_runs import case, rivals
from torch import fx
from typer.testing import CliRunner

from passwright.scheduler import cli, inductor
from passwright.training import variants
from passwright.training.bench.rivals import COMBO, EAGER, OPTIMUS, PREDICT, TUNE, Rival, graphs
from passwright.training.bench.rows import State, load, rows_of
from passwright.training.bench.worker import Bench, Limits, task_of
from passwright.training.collect_worker import doing
from passwright.training.device_lock import DeviceLock
from passwright.training.headroom.final import DEFAULT
from passwright.training.headroom.worker import Task
from passwright.training.worker import Seat

CASE = case("own:norm_branches?fields=3", batch=8, precision="fp32")
SHORT = Limits(measure=0.1, compile=60.0)


class Compiled:
    """Stands in for Inductor: remembers options and caches, and runs graphs as they are."""

    def __init__(self) -> None:
        self.asked: list[tuple[str | None, dict[str, Any]]] = []
        self.caches: list[str] = []
        #: Options with which it fails, is off, or takes for ever.
        self.refuses: dict[str, Any] = {}
        self.spoils: dict[str, Any] = {}
        self.hangs: dict[str, Any] = {}

    def __call__(
        self,
        gm: fx.GraphModule,
        inputs: Sequence[Any],
        *,
        mode: str | None = None,
        options: Any = None,
        **_: Any,
    ) -> Any:
        self.asked.append((mode, dict(options)))
        self.caches.append(str(inductor.cache_directory()))
        if self.refuses and self.refuses.items() <= options.items():
            raise RuntimeError("cannot compile this")
        if self.hangs and self.hangs.items() <= options.items():
            for _ in range(3000):
                time.sleep(0.01)
        if self.spoils and self.spoils.items() <= options.items():
            return lambda *arguments: tuple(1.01 * value for value in gm.forward(*arguments))
        return gm.forward


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> Compiled:
    found = Compiled()
    monkeypatch.setattr(inductor, "compile_with_inductor", found)
    return found


@pytest.fixture
def answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("TORCHINDUCTOR_COMPILE_THREADS", "1")
    found = Bench(Seat(str(tmp_path), 0, "cpu", torch.get_num_threads()))
    yield found
    found.tidy_up()


def task(**changes: Any) -> Task:
    return task_of(
        case(**{"model": CASE.model, "batch": 8, "precision": "fp32"} | changes), device="cpu"
    )


STOCK = rivals(EAGER, DEFAULT, graphs(DEFAULT), OPTIMUS, COMBO)


@pytest.mark.parametrize("train", [False, True])
def test_every_rival_is_compiled_checked_and_timed(
    train: bool, answers: Bench, compiled: Compiled
) -> None:
    answer = answers.rivals(task(train=train), STOCK, SHORT)
    found = {one.rival: one for one in rows_of(CASE, STOCK, answer)}
    assert found.pop(graphs(DEFAULT)).state is State.NOT_HERE
    assert {one.state for one in found.values()} == {State.OK}
    for one in found.values():
        assert one.device is not None
        assert one.device.method == "wall"
        assert one.wall is None
        assert one.agreement is not None
        assert one.agreement["ok"]
        assert one.peak_bytes is None
    assert len(found[DEFAULT].device.again) == len(found[DEFAULT].device.seconds)  # type: ignore[union-attr]
    assert found[EAGER].compile_seconds is None
    assert found[EAGER].kernels is None
    assert found[COMBO].compile_seconds is not None
    # Default compile comes first of all once for nothing.
    options = [given for _, given in compiled.asked]
    assert options[:2] == [{}, {}]
    assert options[3] == {"combo_kernels": True}
    assert options[2].keys() == {"pre_grad_fusion_options", "post_grad_fusion_options"}


def test_each_compile_has_a_cache_of_its_own_which_is_gone_afterwards(
    answers: Bench, compiled: Compiled, tmp_path: Path
) -> None:
    answers.rivals(task(), rivals(DEFAULT, COMBO), SHORT)
    assert len(set(compiled.caches)) == len(compiled.caches) == 3
    assert all(Path(cache).is_relative_to(tmp_path) for cache in compiled.caches)
    assert not any(Path(cache).exists() for cache in compiled.caches)


def test_a_rival_that_fails_hangs_or_is_wrong_costs_its_own_row(
    answers: Bench, compiled: Compiled
) -> None:
    wanted = (
        *rivals(DEFAULT, OPTIMUS, COMBO),
        Rival("bad", "", {"epilogue_fusion": False}),
        Rival("slow", "", {"max_fusion_size": 16}),
    )
    compiled.refuses = {"epilogue_fusion": False}
    compiled.spoils = {"combo_kernels": True}
    compiled.hangs = {"max_fusion_size": 16}
    answer = answers.rivals(task(), wanted, Limits(measure=0.1, compile=2.0))
    found = {one.rival: one for one in rows_of(CASE, wanted, answer)}
    assert {name: one.state.value for name, one in found.items()} == {
        DEFAULT: "ok",
        OPTIMUS: "ok",
        COMBO: "wrong",
        "bad": "failed",
        "slow": "timeout",
    }
    assert found["bad"].why == "RuntimeError: cannot compile this"
    assert found["slow"].why.startswith("TimeLimit")


def test_where_default_compile_fails_the_others_are_measured_all_the_same(
    answers: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def only_combo(gm: fx.GraphModule, _: Any, *, options: Any, **__: Any) -> Any:
        if not options:
            raise MemoryError("too large")
        return gm.forward

    monkeypatch.setattr(inductor, "compile_with_inductor", only_combo)
    wanted = rivals(EAGER, DEFAULT, COMBO)
    found = {one.rival: one for one in rows_of(CASE, wanted, answers.rivals(task(), wanted, SHORT))}
    assert found[DEFAULT].state is State.FAILED
    assert found[DEFAULT].why == "MemoryError: too large"
    assert found[EAGER].device is not None
    assert found[COMBO].device is not None


def test_who_is_being_compiled_is_noted(
    answers: Bench, compiled: Compiled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    seat = Seat(str(tmp_path), 0, "cpu", 1)

    def look(*arguments: Any, **options: Any) -> Any:
        seen.append(doing(seat).read_text(encoding="utf-8"))
        return compiled(*arguments, **options)

    monkeypatch.setattr(inductor, "compile_with_inductor", look)
    answers.rivals(task(), rivals(DEFAULT, COMBO), SHORT)
    assert seen == [DEFAULT, DEFAULT, COMBO]
    assert doing(seat).read_text(encoding="utf-8") == ""


def test_precisions() -> None:
    found = {p: task(precision=p) for p in ("fp32", "tf32", "bf16")}
    assert [found[p].precision for p in found] == ["highest", "high", "highest"]
    assert [found[p].bfloat16 for p in found] == [False, False, True]


def test_a_model_in_bfloat16(answers: Bench, compiled: Compiled) -> None:
    model = answers.model(task(precision="bf16"))
    assert {p.dtype for p in model.subject.module.parameters()} == {torch.bfloat16}
    assert all(x.dtype == torch.bfloat16 for x in model.subject.inputs)
    found = answers.rivals(task(precision="bf16"), rivals(DEFAULT), SHORT)["rivals"][DEFAULT]
    assert found["agreement"]["ok"]


def test_a_kernelbench_task(answers: Bench, compiled: Compiled, tmp_path: Path) -> None:
    path = tmp_path / "level1" / "1_Relu.py"
    path.parent.mkdir()
    text = "import torch\nclass Model(torch.nn.Module):\n def forward(self, x): return x.relu()\n"
    text += "def get_inputs(): return [torch.randn(4)]\ndef get_init_inputs(): return []\n"
    path.write_text(text, encoding="utf-8")
    one = case("kernelbench:level1/1_Relu", suite="kernelbench", batch=None, precision="fp32")
    wanted = rivals(EAGER, DEFAULT)
    asked = task_of(one, device="cpu", home=str(tmp_path))
    found = rows_of(one, wanted, answers.rivals(asked, wanted, SHORT))
    assert [row.state for row in found] == [State.OK] * 2


# ---- what a case leaves behind


@pytest.mark.parametrize("fails", [False, True])
def test_nothing_is_kept_of_a_case(
    fails: bool, answers: Bench, compiled: Compiled, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = weakref.ref(answers.model(task()).subject.module)
    if fails:
        compiled.refuses = {"combo_kernels": True}
    answers.rivals(task(), rivals(EAGER, DEFAULT, COMBO), SHORT)
    assert module() is not None
    answers.tidy_up()
    assert module() is None


@pytest.mark.inductor
def test_what_inductor_has_written_for_a_case_is_not_kept_either(
    answers: Bench, tmp_path: Path
) -> None:
    def written() -> list[str]:
        files = [str(getattr(module, "__file__", "")) for module in [*sys.modules.values()]]
        return [file for file in files if file.startswith(str(tmp_path))]

    task_ = task(model="own:split_cat?fields=3")
    model = weakref.ref(answers.model(task_).subject.module)
    found = answers.rivals(task_, rivals(DEFAULT, PREDICT), SHORT)["rivals"]
    answers.tidy_up()
    assert not any("why" in facts for facts in found.values())
    assert written() == []
    assert model() is None


def test_modules_are_forgotten_by_their_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "other"):
        module = ModuleType(f"generated_{name}")
        module.__file__ = str(tmp_path / name / "generated.py")
        monkeypatch.setitem(sys.modules, module.__name__, module)
    inductor.forget_modules(tmp_path / "one")
    assert "generated_one" not in sys.modules
    assert "generated_other" in sys.modules


def test_seconds_of_a_compile_do_not_hold_the_wait_for_the_device(
    answers: Bench, compiled: Compiled, tmp_path: Path
) -> None:
    model = answers.model(task())
    first = variants.compiled(model, {})[1]["compile_seconds"]
    torch._dynamo.reset()
    busy = threading.Event()

    def measure() -> None:
        with DeviceLock(tmp_path, "cpu").alone():
            busy.set()
            time.sleep(first + 1.5)

    thread = threading.Thread(target=measure)
    thread.start()
    busy.wait(10)
    begin = time.perf_counter()
    second = variants.compiled(model, {}, quiet=True)[1]["compile_seconds"]
    thread.join(10)
    assert time.perf_counter() - begin > first + 1.0
    assert second < first + 1.0


# ---- for real


@pytest.mark.slow
@pytest.mark.inductor
def test_a_tiny_benchmark_from_end_to_end(tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    model = ["own:split_cat?fields=4", "--mode", "infer", "--batch", "8", "--device", "cpu"]
    limits = ["--jobs", "1", "--seconds", "0.3", "--time-limit", "280", "--json", str(path)]
    names = "eager,default*,optimus,combo kernels,predict,tune"
    arguments = ["bench", *model, "--rivals", names, *limits]
    result = CliRunner(env={"COLUMNS": "220"}).invoke(cli.app, arguments)
    assert result.exit_code == 0, result.output
    found = {row.rival: row for row in load(path).rows}
    assert found.pop(graphs(DEFAULT)).state is State.NOT_HERE
    assert {row.state for row in found.values()} == {State.OK}
    assert found[PREDICT].kernels is not None
    assert found[DEFAULT].kernels is not None
    assert found[PREDICT].kernels < found[DEFAULT].kernels
    assert found[PREDICT].steps
    assert found[TUNE].compile_seconds is not None
    assert all(math.isfinite(row.seconds or math.nan) for row in found.values())
    assert "over default compile, geometric means" in result.stdout


def test_optimus_rewrites_what_its_patterns_match() -> None:
    from torch._inductor.fx_passes.pre_grad import pre_grad_passes

    layers = torch.nn.ModuleList(torch.nn.LayerNorm(4) for _ in range(3))
    pieces = torch.randn(2, 12)
    norms: list[tuple[int, int]] = []

    def model(x: torch.Tensor) -> torch.Tensor:
        parts = torch.split(x, 4, dim=1)
        return torch.cat([layer(part) for layer, part in zip(layers, parts, strict=True)], dim=1)

    def backend(gm: fx.GraphModule, inputs: Sequence[torch.Tensor]) -> Any:
        [rival] = rivals(OPTIMUS)
        before = gm.code.count("layer_norm(")
        with inductor.patched(rival.options):
            found = pre_grad_passes(gm, inputs)
        norms.append((before, found.code.count("layer_norm(")))
        return found.forward

    with torch.no_grad():
        torch.testing.assert_close(torch.compile(model, backend=backend)(pieces), model(pieces))
    assert norms == [(3, 1)]


# ---- on a GPU


@pytest.mark.gpu
@pytest.mark.parametrize("train", [False, True])
def test_every_rival_on_a_gpu(train: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    names = (EAGER, DEFAULT, OPTIMUS, COMBO, PREDICT)
    wanted = rivals(*names, *(graphs(name) for name in names))
    answers = Bench(Seat(str(tmp_path), 0, "cuda", 1))
    one = case("own:norm_branches?fields=4", train, batch=512)
    found = rows_of(one, wanted, answers.rivals(task_of(one, device="cuda"), wanted, Limits(0.3)))
    answers.tidy_up()
    assert [(row.rival, row.state) for row in found] == [(r.name, State.OK) for r in wanted]
    by_name = {row.rival: row for row in found}
    for row in found:
        assert row.wall is not None
        assert (row.device is None) is row.rival.endswith("CUDA graphs")
        assert (row.peak_bytes is None) is row.rival.endswith("CUDA graphs")
        assert row.note == "", row.rival
    assert by_name[DEFAULT].device is not None
    assert by_name[DEFAULT].device.method == "cuda-graph"
    assert by_name[PREDICT].kernels < by_name[DEFAULT].kernels  # type: ignore[operator]
    # Without launches between kernels, a call of a small model takes less.
    assert by_name[graphs(EAGER)].wall.median < by_name[EAGER].wall.median  # type: ignore[union-attr]


@pytest.mark.gpu
def test_cases_leave_no_memory_of_a_gpu_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    wanted = rivals(DEFAULT, PREDICT, graphs(DEFAULT), graphs(PREDICT))
    device = f"cuda:{torch.cuda.device_count() - 1}"
    answers = Bench(Seat(str(tmp_path), 0, device, 1))
    kept: list[tuple[int, int]] = []
    try:
        for batch in (256, 512, 1024):
            one = case("own:norm_branches?fields=4", True, batch=batch)
            answers.rivals(task_of(one, device=device), wanted, Limits(0.1))
            answers.tidy_up()
            kept.append((torch.cuda.memory_allocated(), torch.cuda.memory_reserved()))
    finally:
        torch.cuda.set_device(0)
    assert kept[1] == kept[2]

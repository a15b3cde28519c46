"""Gains of single steps from the rounds of one comparison, and a plan that is compiled part by part."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from passwright.scheduler.commands.models import Subject
from passwright.scheduler.comparison import Comparison, Gain, Timing
from passwright.scheduler.settings import Settings
from passwright.training.report import measure_steps
from passwright.training.report.kernels import profiled
from passwright.training.report.measure_steps import (
    STOPPED,
    Limits,
    Timed,
    chosen_prefixes,
    gain_between,
)
from passwright.training.report.model_content import DEFAULT, Variant
from passwright.training.report.of_model import Request, gather
from passwright.training.report.run import finish

CPU = torch.device("cpu")


class Split(nn.Module):
    """A chain that clean-up straightens."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(2):
            x = torch.cat([torch.relu(piece) for piece in x.split(8, dim=1)], dim=1)
        return x


def comparison(**blocks: list[float]) -> Comparison:
    """Rounds of variants; default twice as slow as its first appearance says in its second."""
    timings = {name: Timing(name, "wall", tuple(values), 1) for name, values in blocks.items()}
    base = blocks[DEFAULT]
    gains = {name: Gain(0.0, -0.1, 0.1) for name in blocks if name != DEFAULT}
    again = Timing(DEFAULT, "wall", tuple(base), 1)
    return Comparison(DEFAULT, timings, gains, 0.02, "all blocks measured", again=again)


@pytest.mark.parametrize(
    ("steps", "most", "expected"),
    [(3, 8, [1, 2, 3]), (10, 4, [2, 5, 8, 10]), (100, 1, [100]), (1, 5, [1])],
)
def test_prefixes_lie_evenly_and_end_with_the_last(
    steps: int, most: int, expected: list[int]
) -> None:
    assert chosen_prefixes(steps, most) == expected


def test_a_step_gains_between_two_prefixes_round_by_round() -> None:
    # The machine becomes slower and slower; each round both prefixes are hit alike.
    drift = [1.0 + 0.5 * at for at in range(10)]
    found = comparison(
        default=[4.0 * d for d in drift], one=[2.0 * d for d in drift], two=[1.0 * d for d in drift]
    )
    gain = gain_between(found, "one", "two")
    assert gain is not None
    assert gain.median == pytest.approx(math.log(2))
    assert gain.upper - gain.lower < 1e-9
    assert gain_between(found, DEFAULT, "one") == found.gains["one"]


def test_steps_telescope() -> None:
    found = comparison(default=[4.0] * 8, one=[3.0] * 8, two=[2.0] * 8)
    timed = Timed(comparison=found)
    first, second = timed.gain("one", "two"), timed.gain("two", "one")
    assert first is not None
    assert second is not None
    assert first.gain == pytest.approx(-second.gain)
    assert first.floor == 0.02


def test_the_same_code_gains_nothing_and_needs_no_timing() -> None:
    variants = {DEFAULT: Variant(DEFAULT, 1.0, 3), "1": Variant("1", 1.0, 3)}
    timed = Timed(variants, None, same={"1": DEFAULT})
    found = timed.gain(DEFAULT, "1")
    assert found is not None
    assert found.same_code
    assert timed.gain(DEFAULT, "2") is None


def test_what_was_censored_has_no_gain() -> None:
    found = comparison(default=[1.0] * 6, one=[1.0] * 6)
    assert gain_between(found, "one", "slow") is None


@pytest.fixture
def request_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Request]:
    """Makes requests for the toy. No compile time is looked at, so caches may be warm."""
    monkeypatch.setattr(measure_steps, "warm_toolchain", lambda _: None)
    monkeypatch.setattr(measure_steps, "cold_cache", lambda _: nullcontext())

    def make(**changes: Any) -> Request:
        subject = Subject("toy", Split(), (torch.randn(16, 64),), train=False)
        settings = Settings(plan_directory=str(tmp_path / "plans"), levels="torch")
        plain = Request(subject, settings, CPU, 16, "passwright report toy", True, Limits(1, 0.5))
        return replace(plain, **changes)

    return make


def test_without_measuring_it_says_what_is_predicted(request_of: Callable[..., Request]) -> None:
    report = gather(request_of(measure=False))
    assert report.ended == ""
    first = report.steps[0]
    assert first.pattern == "clean_up"
    assert first.diff
    assert "free and always helps" in first.why
    [graph] = report.graphs
    assert graph.before is not None
    assert graph.after is not None
    assert {node.mark for node in graph.before.nodes} == {"", "removed"}
    assert {node.step for node in graph.before.nodes if node.mark} <= {
        step.number for step in report.steps
    }
    assert len(graph.after.nodes) < len(graph.before.nodes)
    assert report.found is None
    assert report.parts == ()


@pytest.mark.inductor
def test_every_part_is_compiled_and_timed(
    request_of: Callable[..., Request], tmp_path: Path
) -> None:
    said: list[str] = []
    report = gather(request_of(), said.append)
    assert report.ended == ""
    assert "compiling: as default does" in said
    # One prefix at most: all steps are one part, which is the whole.
    [part] = report.parts
    assert (part.first, part.last) == (1, len(report.steps))
    assert part.found == report.found
    assert report.found is not None
    assert report.before is not None
    assert report.after is not None
    assert report.after.agrees
    assert report.after.kernels < report.before.kernels
    assert len(report.before.blocks) == len(report.after.blocks)
    assert report.kernels_after is not None
    assert any(row.name.startswith("cpp_fused") for row in report.kernels_after.rows)
    code = finish(report, output=tmp_path / "page.html", json_file=tmp_path / "report.json")
    assert code == 0
    assert (tmp_path / "page.html").stat().st_size > 1_000_000


@pytest.mark.inductor
def test_ctrl_c_keeps_what_was_planned(
    request_of: Callable[..., Request], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(measure_steps, "compile_with_inductor", interrupt)
    report = gather(request_of())
    assert report.ended == STOPPED
    assert report.steps
    assert report.graphs[0].after is not None
    assert report.found is None


def test_a_default_compile_that_fails_is_told(
    request_of: Callable[..., Request], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("no compiler")

    monkeypatch.setattr(measure_steps, "compile_with_inductor", fail)
    monkeypatch.setattr(measure_steps, "replaying", lambda *_: fail)
    report = gather(request_of())
    assert "no compiler" in report.ended
    assert report.steps


@pytest.mark.inductor
def test_ctrl_c_while_timing_keeps_what_was_compiled(
    request_of: Callable[..., Request], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("passwright.training.variants.compare", interrupt)
    report = gather(request_of())
    assert report.ended == STOPPED
    assert report.found is None
    assert report.before is not None
    assert report.after is not None
    assert report.after.kernels < report.before.kernels


@pytest.mark.inductor
def test_time_that_is_up_leaves_prefixes_out(request_of: Callable[..., Request]) -> None:
    report = gather(request_of(limits=Limits(3, 0.2, deadline=0.0)))
    assert report.ended == ""
    assert report.found is not None
    assert len(report.parts) == len(report.steps)
    assert report.parts[0].found is None
    assert "time limit" in report.parts[0].why
    # The last is the whole, of which the gain over what comes before it is not known.
    assert report.parts[-1].total == report.found
    assert report.parts[-1].found is None


@pytest.mark.inductor
def test_what_fails_when_its_memory_is_looked_at_is_told(
    request_of: Callable[..., Request], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[object] = []

    def peak(step: object, _: object) -> None:
        calls.append(step)
        if len(calls) == 1:  # Passwright's is the first
            raise RuntimeError("out of memory")

    monkeypatch.setattr("passwright.training.variants.peak_memory", peak)
    report = gather(request_of())
    assert report.ended == ""
    assert "out of memory" in report.parts[-1].why
    assert any("out of memory" in note for note in report.notes)
    assert report.before is not None
    assert report.after is None


@pytest.mark.gpu
def test_on_a_gpu_kernels_have_names_and_times() -> None:
    subject = Subject("toy", Split().cuda(), (torch.randn(512, 64, device="cuda"),), train=False)
    device = torch.device("cuda")
    report = gather(
        Request(subject, Settings(), device, 512, "passwright report toy", True, Limits(2, 2.0))
    )
    assert report.ended == ""
    assert report.before is not None
    assert report.before.peak_bytes is not None
    assert report.kernels_before is not None
    assert any(row.name.startswith("triton_") for row in report.kernels_before.rows)
    assert report.found is not None


def test_the_profiler_lists_library_calls_and_gives_functions_back() -> None:
    weight = torch.randn(64, 64)

    def cpp_fused_double(x: torch.Tensor) -> torch.Tensor:
        return x + x

    names = {"cpp_fused_double": cpp_fused_double, "other": 3}

    def step() -> torch.Tensor:
        found: torch.Tensor = names["cpp_fused_double"](weight @ weight)  # type: ignore[operator]
        return found

    rows = {row.name: row for row in profiled(step, CPU, [names]).rows}
    assert rows["aten::mm"].kind == "GEMM"
    assert rows["aten::mm"].launches == 1
    assert rows["cpp_fused_double"].launches == 1
    assert names["cpp_fused_double"] is cpp_fused_double

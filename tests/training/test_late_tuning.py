"""Choosing configurations of kernels when the device is quiet."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, ClassVar
from unittest.mock import MagicMock

import pytest
import torch

from passwright.scheduler.inductor import fresh_cache
from passwright.training import late_tuning
from passwright.training.late_tuning import (
    Known,
    Noted,
    padded_alike,
    timed_alone,
    tuned_by_replays,
    tuning_put_off,
)

heuristics = pytest.importorskip(
    "torch._inductor.runtime.triton_heuristics", reason="needs Triton: pip install triton"
)


class _Kernel:
    """What Inductor's class does with its launchers."""

    def __init__(self) -> None:
        self.launchers = ["a", "b"]
        self._cached_launcher: str | None = None

    def run(self) -> str:
        if self._cached_launcher is not None:
            return self._cached_launcher
        if len(self.launchers) > 1:
            heuristics.CachingAutotuner.autotune_to_one_config(self)
        (launcher,) = self.launchers
        self._cached_launcher = launcher
        return launcher


def test_kernels_are_tuned_in_the_first_call_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    tuned: list[_Kernel] = []

    def tune(kernel: _Kernel) -> None:
        tuned.append(kernel)
        kernel.launchers = ["b"]

    monkeypatch.setattr(heuristics.CachingAutotuner, "autotune_to_one_config", tune)
    kernel = _Kernel()
    with tuning_put_off():
        assert [kernel.run(), kernel.run()] == ["a", "a"]
        assert not tuned
    assert heuristics.CachingAutotuner.autotune_to_one_config is tune
    assert [kernel.run(), kernel.run()] == ["b", "b"]
    assert tuned == [kernel]


def test_what_fails_leaves_nothing_behind() -> None:
    tune = heuristics.CachingAutotuner.autotune_to_one_config
    with pytest.raises(ValueError, match="wrong"), tuning_put_off():
        raise ValueError("wrong")
    assert heuristics.CachingAutotuner.autotune_to_one_config is tune


class _Timer:
    """Inductor's own."""

    asked = 0

    def benchmark_gpu(self, call: object, **_: object) -> float:
        self.asked += 1
        return 1.0


class _Tuned(_Kernel):
    """As Inductor's class tunes: by what the timer says of each launcher but those that spill."""

    def bench(self, launcher: str, *_: object) -> float:
        from torch._inductor.runtime import benchmarking

        if launcher == "spills":
            return float("inf")
        return float(benchmarking.benchmarker.benchmark_gpu(lambda: launcher, rep=40))

    def tune(self, *args: object) -> None:
        found = {launcher: self.bench(launcher, *args) for launcher in self.launchers}
        self.launchers = [min(found, key=lambda launcher: found[launcher])]


@pytest.fixture
def timer(monkeypatch: pytest.MonkeyPatch) -> _Timer:
    """Neither a GPU nor Triton is needed."""
    from torch._inductor.runtime import benchmarking

    timer = _Timer()
    monkeypatch.setattr(benchmarking, "benchmarker", timer)
    monkeypatch.setattr(heuristics.CachingAutotuner, "autotune_to_one_config", _Tuned.tune)
    for name in ("synchronize", "Stream", "current_stream", "stream"):
        monkeypatch.setattr(torch.cuda, name, lambda *_: MagicMock())
    return timer


@pytest.mark.parametrize(
    ("seconds", "choice"),
    [
        ({"a": 3e-6, "b": 2e-6}, "b"),
        ({"a": 2.01e-6, "b": 2e-6}, "a"),
        ({"a": 2e-6, "b": 3e-6}, "a"),
    ],
)
def test_configurations_are_compared_by_replays(
    monkeypatch: pytest.MonkeyPatch, timer: _Timer, seconds: dict[str, float], choice: str
) -> None:
    """In rounds, in which now and then something disturbs; of equals it is the first."""
    calls: list[str] = []

    def launches(call: Callable[[], str]) -> Callable[[], float]:
        launcher = call()

        def run() -> float:
            calls.append(launcher)
            return seconds[launcher] * (1.5 if len(calls) % 7 == 0 else 1.0)

        return run

    monkeypatch.setattr(late_tuning, "_launches", launches)
    kernel = _Tuned()
    kernel.launchers = ["spills", "a", "b"]
    with tuned_by_replays():
        heuristics.CachingAutotuner.autotune_to_one_config(kernel)
    assert kernel.launchers == [choice]
    assert calls[:4] == ["a", "b", "a", "b"]
    assert "benchmark_gpu" not in vars(timer)
    assert heuristics.CachingAutotuner.autotune_to_one_config is _Tuned.tune


class _Written(_Tuned):
    """With what says which kernel it is."""

    size_hints: ClassVar[dict[str, int]] = {"x": 64}
    triton_meta: ClassVar[dict[str, str]] = {"signature": "*fp32"}
    mutated_arg_names: ClassVar[list[str]] = []

    def __init__(self, name: str, code: str = "x + 1") -> None:
        super().__init__()
        self.fn = SimpleNamespace(src=f"def {name}(x): return {code}", __name__=name)
        self.launchers = [_Launcher("a"), _Launcher("b")]

    def bench(self, launcher: Any, *_: object) -> float:
        return super().bench(launcher.config)


class _Launcher(SimpleNamespace):
    def __init__(self, config: str) -> None:
        super().__init__(config=config)

    def __hash__(self) -> int:
        return hash(self.config)


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch, timer: _Timer) -> list[str]:
    """The configurations that are timed; `b` is the quicker one."""
    asked: list[str] = []

    def launches(call: Callable[[], str]) -> Callable[[], float]:
        asked.append(call())
        return lambda: 2e-6 if call() == "b" else 3e-6

    monkeypatch.setattr(late_tuning, "_launches", launches)
    return asked


def _choice(kernel: _Written, *args: object, known: Known) -> str:
    with tuned_by_replays(known):
        heuristics.CachingAutotuner.autotune_to_one_config(kernel, *args)
    (launcher,) = kernel.launchers
    return str(launcher.config)


def test_a_kernel_of_another_name_is_not_timed_again(timed: list[str]) -> None:
    known: Known = {}
    rows = torch.zeros(4, 16)
    assert _choice(_Written("fused_3"), rows, 64, known=known) == "b"
    assert timed == ["a", "b"]
    assert _choice(_Written("fused_7"), torch.ones(4, 16), 64, known=known) == "b"
    assert timed == ["a", "b"]
    assert len(known) == 1


@pytest.mark.parametrize(
    ("kernel", "rows", "count"),
    [
        (_Written("fused_3", "x + 2"), torch.zeros(4, 16), 64),
        (_Written("fused_3"), torch.zeros(16, 4).t(), 64),
        (_Written("fused_3"), torch.zeros(4, 16), 32),
    ],
    ids=["code", "strides", "count"],
)
def test_what_differs_is_timed(
    timed: list[str], kernel: _Written, rows: torch.Tensor, count: int
) -> None:
    known: Known = {}
    _choice(_Written("fused_3"), torch.zeros(4, 16), 64, known=known)
    timed.clear()
    _choice(kernel, rows, count, known=known)
    assert timed == ["a", "b"]


def test_kernels_that_say_not_what_they_are_are_timed_each(timed: list[str]) -> None:
    known: Known = {}
    for _ in range(2):
        kernel = _Tuned()
        with tuned_by_replays(known):
            heuristics.CachingAutotuner.autotune_to_one_config(kernel)
        assert kernel.launchers == ["b"]
    assert timed == ["a", "b", "a", "b"]
    assert not known


def test_inductor_times_what_cannot_be_captured(
    monkeypatch: pytest.MonkeyPatch, timer: _Timer
) -> None:
    def fails(_: object) -> None:
        raise RuntimeError("cannot be captured")

    monkeypatch.setattr(late_tuning, "_launches", fails)
    kernel = _Tuned()
    with tuned_by_replays():
        heuristics.CachingAutotuner.autotune_to_one_config(kernel)
    assert kernel.launchers == ["a"]
    assert timer.asked == 2


def test_padding_is_decided_once() -> None:
    pad_mm = pytest.importorskip("torch._inductor.fx_passes.pad_mm")
    theirs = pad_mm.get_pad_cache
    noted = Noted()
    with padded_alike(noted):
        assert pad_mm.get_cached_should_pad("a product") is None
        pad_mm.set_cached_should_pad("a product", False)
        pad_mm.set_cached_base_mm_benchmark_time("its time", 2.0)
        assert pad_mm.get_cached_should_pad("a product") is False
        assert pad_mm.get_cached_base_mm_benchmark_time("its time") == 2.0
    assert pad_mm.get_pad_cache is theirs
    with padded_alike(noted):
        assert pad_mm.get_cached_should_pad("a product") is False
    with padded_alike(Noted()):
        assert pad_mm.get_cached_should_pad("a product") is None


class _InPlace(_Tuned):
    """A kernel that writes over its argument, which Inductor copies in each launch that it times."""

    def __init__(self, zeroed: list[str]) -> None:
        super().__init__()
        self.reset_to_zero_arg_names = zeroed
        self.copies: list[str] = []

    def copy_args_to_cpu_if_needed(self, *_: object) -> dict[str, object]:
        self.copies.append("to the CPU")
        return {"x": None}

    def maybe_clone_args(self, exclude: object, *args: object) -> object:
        assert not exclude
        self.copies.append("on the device")
        return args

    def bench(self, launcher: str, *args: object) -> float:
        from torch._inductor.runtime import benchmarking

        there = self.copy_args_to_cpu_if_needed(*args)
        call = lambda: (self.maybe_clone_args(there, *args), launcher)[1]  # noqa: E731
        return float(benchmarking.benchmarker.benchmark_gpu(call))


@pytest.mark.parametrize(("zeroed", "copied"), [([], 1), (["x"], 2)])
def test_what_a_kernel_writes_over_is_copied_once(
    monkeypatch: pytest.MonkeyPatch, timer: _Timer, zeroed: list[str], copied: int
) -> None:
    """Of what has to be zero before each launch, there is a copy for each."""

    def launches(call: Callable[[], str]) -> Callable[[], float]:
        launcher = call()
        return lambda: {"a": 2e-6, "b": 1e-6}[launcher]

    monkeypatch.setattr(late_tuning, "_launches", launches)
    kernel = _InPlace(zeroed)
    with tuned_by_replays():
        heuristics.CachingAutotuner.autotune_to_one_config(kernel, torch.zeros(3))
    assert kernel.launchers == ["b"]
    # Inductor goes through the configurations a second time, to be told the figures.
    timed, told = kernel.copies[:copied], kernel.copies[copied:]
    assert timed == ["on the device"] * copied
    assert told == ["to the CPU"] * 2
    assert not {"copy_args_to_cpu_if_needed", "maybe_clone_args"} & vars(kernel).keys()


@pytest.mark.parametrize("captured", [True, False])
def test_what_is_timed_in_a_compile_is_timed_alone(
    monkeypatch: pytest.MonkeyPatch, timer: _Timer, captured: bool
) -> None:
    """By replays, where it can be captured."""

    def launches(_: object) -> Callable[[], float]:
        assert seen == ["alone"]
        if not captured:
            raise RuntimeError("cannot be captured")
        return lambda: 2e-6

    monkeypatch.setattr(late_tuning, "_launches", launches)
    seen: list[str] = []

    @contextmanager
    def alone() -> Iterator[None]:
        seen.append("alone")
        yield
        seen.append("not any more")

    with timed_alone(alone):
        assert timer.benchmark_gpu(lambda: 0.0, rep=40) == (2e-3 if captured else 1.0)
    assert timer.benchmark_gpu(lambda: 0.0) == 1.0
    assert timer.asked == 2 - captured
    assert seen == ["alone", "not any more"]


def _counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the kernels that are tuned from now on."""
    tuned: list[str] = []
    tune = heuristics.CachingAutotuner.autotune_to_one_config

    def counted(kernel: object, *args: object, **named: object) -> None:
        tuned.append(kernel.fn.__name__)  # type: ignore[attr-defined]
        tune(kernel, *args, **named)

    monkeypatch.setattr(heuristics.CachingAutotuner, "autotune_to_one_config", counted)
    return tuned


def _timed(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds of the configurations that are compared from now on."""
    seconds: list[float] = []
    compared = late_tuning.compared

    def noted(runs: list[Callable[[], float]]) -> list[float]:
        found = compared(runs)
        seconds.extend(found)
        return found

    monkeypatch.setattr(late_tuning, "compared", noted)
    return seconds


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU: make gpu-test")
def test_a_kernel_that_writes_over_what_it_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """No copy by way of the CPU is timed, though less memory was used before than a copy needs."""
    seconds = _timed(monkeypatch)
    x = torch.zeros(1 << 22, device="cuda")
    torch._dynamo.reset()
    with fresh_cache():
        run = torch.compile(lambda x: x.add_(1.0).sin_())
        with tuning_put_off():
            run(x)
        x.zero_()
        torch.cuda.reset_peak_memory_stats()
        with tuned_by_replays():
            run(x)
    assert len(seconds) >= 2
    # 32 MiB to move; through the CPU's bus the copy alone would take 300 us.
    assert all(5e-6 < found < 1e-4 for found in seconds)
    torch.testing.assert_close(x, torch.ones_like(x).sin())


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU: make gpu-test")
def test_a_compiled_kernel_is_tuned_later_and_by_replays(monkeypatch: pytest.MonkeyPatch) -> None:
    tuned = _counted(monkeypatch)
    seconds = _timed(monkeypatch)
    x = torch.randn(1 << 20, device="cuda")
    torch._dynamo.reset()
    with fresh_cache():
        run = torch.compile(lambda x: (x.sin() + 1).cos())
        with tuning_put_off():
            early = run(x)
        assert not tuned
        with tuned_by_replays():
            late = run(x)
    assert len(tuned) == 1
    assert len(seconds) >= 2
    # 8 MiB to move take at least 1.6 us of an H200 and far less than a millisecond of anything.
    assert all(1e-6 < found < 1e-3 for found in seconds)
    torch.testing.assert_close(early, late)
    torch.testing.assert_close(late, (x.sin() + 1).cos())

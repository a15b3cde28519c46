"""Probes: what follows from what is timed, on clocks that we turn, and one of this CPU."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
import torch

from passwright.scheduler import device_probe, device_table, device_trials
from passwright.scheduler.device import DeviceDescriptor, assumed, describe_cpu, describe_gpu
from passwright.scheduler.device_probe import Measuring, Probe, ProbeError, probe
from passwright.scheduler.device_store import FIGURES, Probed
from passwright.scheduler.device_trials import Trial, Tries

CPU, META = torch.device("cpu"), torch.device("meta")
cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


class Clock:
    """Times trials as a device of these figures would take them, and remembers them."""

    def __init__(self, device: DeviceDescriptor, spread: float = 0.0) -> None:
        self.device, self.spread = device, spread
        self.trials: list[Trial] = []

    def __call__(self, trial: Trial) -> Tries:
        trial.call()
        self.trials.append(trial)
        device = self.device
        took = device.extern_launch if trial.library else device.fused_launch
        took += trial.moved / device.bandwidth_for(trial.moved)
        if trial.work:
            took = trial.work / device.peak_flops[trial.precision]
        return Tries(took, self.spread)


def test_a_probe_finds_the_figures_of_a_gpu(t4: DeviceDescriptor) -> None:
    """Of one quite unlike what is assumed; on tensors that hold nothing."""
    rates = {name: 3 * rate for name, rate in t4.peak_flops.items()}
    true = replace(
        t4,
        memory_bandwidth=2.5e11,
        cache_bandwidth=9e11,
        fused_launch=4e-6,
        extern_launch=6e-6,
        peak_flops=rates | {"tf32": rates["fp32"]},
    )
    steps: list[str] = []
    found = Measuring(t4, META, Clock(true), steps.append).all()
    # What a kernel costs beyond beginning and ending is in proportion.
    fused = device_table.GPU_FUSED_LAUNCH / device_table.GPU_PROBED_FUSED
    extern = device_table.GPU_EXTERN_LAUNCH / device_table.GPU_PROBED_EXTERN
    assert found.figures["fused_launch"] == pytest.approx(fused * true.fused_launch)
    assert found.figures["extern_launch"] == pytest.approx(extern * true.extern_launch)
    assert found.figures["cache_bandwidth"] == pytest.approx(true.cache_bandwidth)
    assert found.figures["memory_bandwidth"] == pytest.approx(true.memory_bandwidth, rel=0.01)
    assert found.peak_flops == pytest.approx(true.peak_flops)
    assert len(steps) == 7
    assert (found.kind, found.name, found.cores) == ("cuda", "Tesla T4", 40)


def test_tf32_is_timed_apart_where_there_is_any() -> None:
    seen: list[tuple[str, str]] = []
    clock = Clock(describe_gpu("NVIDIA H200"))

    def timer(trial: Trial) -> Tries:
        if trial.work:
            seen.append((trial.precision, torch.backends.cuda.matmul.fp32_precision))
        return clock(trial)

    before = torch.backends.cuda.matmul.fp32_precision
    Measuring(describe_gpu("NVIDIA H200"), META, timer).all()
    assert torch.backends.cuda.matmul.fp32_precision == before
    assert {precision for precision, _ in seen} == {"fp64", "fp32", "tf32", "bf16", "fp16"}
    assert all((precision == "tf32") == (allowed == "tf32") for precision, allowed in seen)


def test_large_products_are_left_out_where_they_take_long_or_do_not_fit(
    t4: DeviceDescriptor,
) -> None:
    def largest(device: DeviceDescriptor, room: float) -> dict[str, float]:
        clock = Clock(device)
        Measuring(device, META, clock, room=room).all()
        return {t.precision: t.work for t in clock.trials if t.work}

    slow = largest(t4, math.inf)
    assert slow["fp64"] == 2 * 1024**3  # a third of a TFLOP/s
    assert slow["fp16"] == 2 * 8192**3
    assert largest(t4, 500e6)["fp16"] == 2 * 4096**3


def test_what_a_device_cannot_do_stays_as_it_was(t4: DeviceDescriptor) -> None:
    clock = Clock(t4)

    def timer(trial: Trial) -> Tries:
        if trial.precision == "bf16":
            raise RuntimeError("no such products\nhere")
        return clock(trial)

    measuring = Measuring(t4, META, timer)
    assert "bf16" not in measuring.all().peak_flops
    assert measuring.left == ["bf16: RuntimeError: no such products"]


def test_calls_from_python_stand_in_for_compiled_code_on_a_cpu() -> None:
    known = describe_cpu("AVX2", 1, "CPU", 1 << 20)
    slow = replace(known, fused_launch=4e-6, extern_launch=16e-6)
    found = Measuring(known, CPU, Clock(slow)).all().figures
    assert set(found) == set(FIGURES)
    assert found["fused_launch"] == pytest.approx(4e-6 * device_table.CPU_NEST_SHARE)
    assert found["extern_launch"] == pytest.approx(16e-6)
    assert found["call_seconds"] == pytest.approx(2 * known.call_seconds)


# ---- something else uses the device


@pytest.mark.parametrize(
    ("spread", "crowding", "busy"), [(0.05, 0.0, False), (0.6, 0.0, True), (0.05, 100.0, True)]
)
def test_a_busy_device(spread: float, crowding: float, busy: bool, t4: DeviceDescriptor) -> None:
    probed = Probed(
        "cuda", t4.name, t4.cores, {}, {}, Measuring(t4, META, Clock(t4, spread)).all().spread
    )
    assert Probe(t4, probed, (), 1.0, crowding).busy == busy


def test_one_uneven_trial_on_a_gpu_is_enough(t4: DeviceDescriptor) -> None:
    even, uneven = Clock(t4, 0.05), Clock(t4, 0.6)

    def timer(trial: Trial) -> Tries:
        return (uneven if trial.precision == "fp32" else even)(trial)

    assert Measuring(t4, META, timer).all().spread == 0.6


def clock_of(times: Iterator[float], monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    now = [0.0]

    def call() -> None:
        now[0] += next(times)

    monkeypatch.setattr(device_trials.time, "perf_counter", lambda: now[0])
    return call


def test_the_best_try_counts_and_the_median_tells_how_far_it_is_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    call = clock_of(iter([1.0, 0.02, 0.01, 0.03, 0.02, 0.3]), monkeypatch)
    found = device_trials.cpu_tries(Trial(call))
    assert found.best == pytest.approx(0.01)
    assert found.spread == pytest.approx(1.0)


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA tried to allocate much\nand more"),
        RuntimeError("CUDA error: out of memory\nand more"),
    ],
)
def test_memory_that_runs_out_is_said(error: RuntimeError, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: Trial) -> Tries:
        raise error

    monkeypatch.setattr(device_probe, "cpu_tries", full)
    with pytest.raises(ProbeError, match=r"cpu has no memory left .* end what else runs on it"):
        probe(CPU)


def test_a_driver_that_fails_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: Trial) -> Tries:
        raise RuntimeError("CUDA error: no kernel image\nmore")

    monkeypatch.setattr(device_probe, "cpu_tries", broken)
    with pytest.raises(
        ProbeError, match=r"cpu cannot be measured: RuntimeError: CUDA error: no kernel image$"
    ):
        probe(CPU)


# ---- real ones


def test_a_probe_of_this_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be busy: figures are far off then, but there are figures."""
    monkeypatch.setattr(device_trials, "_PATIENCE", 0.01)
    steps: list[str] = []
    found = probe(CPU, steps.append)
    assert len(steps) == device_probe.steps_of(CPU)
    assert found.seconds < 10
    assert found.left == ()
    assert set(found.probed.figures) == set(FIGURES)
    assert set(found.probed.peak_flops) == set(assumed(CPU).peak_flops)
    assert found.measured.key() != assumed(CPU).key()
    assert Probed.from_json(found.probed.to_json()) == found.probed
    assert found.probed.torch == torch.__version__
    assert 1e-7 < found.measured.fused_launch < 1e-3


@pytest.mark.gpu
@cuda
def test_a_probe_of_a_gpu() -> None:
    device = torch.device("cuda")
    known, found = assumed(device), probe(device)
    assert known == assumed(device)
    assert found.seconds < 10
    assert len(found.probed.peak_flops) == 5
    # A table that is off by more than this misleads the cost model.
    assert found.measured.memory_bandwidth == pytest.approx(known.memory_bandwidth, rel=0.5)
    assert found.measured.peak_flops["bf16"] == pytest.approx(known.peak_flops["bf16"], rel=0.5)
    # The table's figures are what the probe is calibrated by.
    assert found.measured.fused_launch == pytest.approx(known.fused_launch, rel=0.5)
    assert found.measured.extern_launch == pytest.approx(known.extern_launch, rel=0.5)

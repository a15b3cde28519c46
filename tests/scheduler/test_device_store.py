"""Probes that are kept: files, what is wrong with them, and who reads them."""

from __future__ import annotations

import json
import logging
import stat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from passwright.scheduler import device as device_module
from passwright.scheduler import device_store, once
from passwright.scheduler.device import Source, assumed, describe, describe_gpu
from passwright.scheduler.device_store import Probed
from passwright.scheduler.optimize import Scheduler, key_of
from passwright.scheduler.settings import Settings

CPU = torch.device("cpu")
UNKNOWN = SimpleNamespace(
    name="NVIDIA Unheard-of 9000",
    major=8,
    minor=9,
    multi_processor_count=20,
    clock_rate=1_500_000,
    memory_clock_rate=5_000_000,
    memory_bus_width=128,
    L2_cache_size=8 << 20,
)


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where probes are kept: nobody else's."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    device_store.forget()
    once.warn_once.cache_clear()
    device_module._suggest_probe.cache_clear()
    return tmp_path / "passwright" / "devices"


def of(device: torch.device, **figures: float) -> Probed:
    known = assumed(device)
    return Probed(
        known.kind, known.name, known.cores, figures, {"fp32": 3e9}, torch="2.99", date="2030-01-02"
    )


def test_what_was_measured_is_used_and_the_rest_stays() -> None:
    known = describe(CPU)
    assert known == assumed(CPU)
    device_store.keep(of(CPU, fused_launch=7e-6))
    found = describe(CPU)
    assert (found.fused_launch, found.peak_flops["fp32"]) == (7e-6, 3e9)
    assert found.source is Source.PROBE
    assert found.extern_launch == known.extern_launch
    assert found.peak_flops["fp64"] == known.peak_flops["fp64"]
    assert assumed(CPU) == known
    assert found.key() != known.key()


def test_the_last_probe_counts_and_is_the_users_own(kept: Path) -> None:
    device_store.keep(of(CPU, fused_launch=7e-6))
    path = device_store.keep(of(CPU, fused_launch=8e-6))
    assert describe(CPU).fused_launch == 8e-6
    assert list(kept.iterdir()) == [path]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(kept.stat().st_mode) == 0o700


def test_each_file_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    device_store.keep(of(CPU, fused_launch=7e-6))
    reads = []
    read = Path.read_text
    monkeypatch.setattr(
        Path, "read_text", lambda self, **how: reads.append(self) or read(self, **how)
    )
    assert describe(CPU) == describe(CPU)
    assert len([path for path in reads if path.name.startswith("cpu-")]) == 1


def test_plans_are_made_anew_after_a_probe(tmp_path: Path) -> None:
    options = {"plan_directory": str(tmp_path / "plans")}
    scheduler = Scheduler.of(Settings.resolve(options, environment={}))
    before = key_of("graph", False, scheduler.context(describe(CPU)))
    device_store.keep(of(CPU, fused_launch=7e-6))
    assert key_of("graph", False, scheduler.context(describe(CPU))) != before


def test_other_threads_are_another_device() -> None:
    threads = torch.get_num_threads()
    device_store.keep(of(CPU, fused_launch=7e-6))
    try:
        torch.set_num_threads(threads + 1)
        assert describe(CPU).source is not Source.PROBE
    finally:
        torch.set_num_threads(threads)


def good() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(of(CPU, fused_launch=7e-6).to_json())
    return found


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        "\xff",
        json.dumps(good() | {"format": 99}),
        json.dumps(good() | {"more": 1}),
        json.dumps(good() | {"figures": None}),
        json.dumps(good() | {"figures": {"fused_launch": -1.0}}),
        json.dumps(good() | {"figures": {"fused_launch": "1"}}),
        json.dumps(good() | {"figures": {"fused_launch": float("nan")}}),
        json.dumps(good() | {"figures": {"cores": 3}}),
        json.dumps(good() | {"peak_flops": {"fp8": 1.0}}),
        json.dumps(good() | {"name": "another"}),
    ],
)
def test_a_file_that_cannot_be_used_costs_one_warning(text: str, warned: list[str]) -> None:
    path = device_store.keep(of(CPU))
    path.write_text(text, encoding="latin-1")
    device_store.forget()
    assert [describe(CPU), describe(CPU)] == [assumed(CPU)] * 2
    assert len(warned) == 1
    assert str(path) in warned[0]
    assert "passwright doctor --probe" in warned[0]


def test_a_directory_in_its_place_costs_one_warning(warned: list[str]) -> None:
    path = device_store.keep(of(CPU))
    path.unlink()
    path.mkdir()
    device_store.forget()
    assert describe(CPU) == assumed(CPU)
    assert len(warned) == 1


def test_without_a_home_nothing_is_kept_and_nothing_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless(_: Path) -> Path:
        raise RuntimeError("no home directory")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "expanduser", homeless)
    assert describe(CPU) == assumed(CPU)


# ---- unknown GPUs


@pytest.fixture
def unknown_gpu(monkeypatch: pytest.MonkeyPatch) -> torch.device:
    """A GPU that no table knows, and that need not be here."""
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: UNKNOWN)
    return torch.device("cuda")


def test_an_unknown_gpu_is_derived_and_a_probe_is_suggested_once(
    unknown_gpu: torch.device, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="passwright"):
        found = describe(unknown_gpu)
        describe(unknown_gpu)
    assert found == describe_gpu(UNKNOWN.name, UNKNOWN)
    assert found.source is Source.DERIVED
    assert found.memory_bandwidth == pytest.approx(140e9)
    lines = [
        (r.levelno, r.getMessage()) for r in caplog.records if "no table knows" in r.getMessage()
    ]
    assert len(lines) == 1
    assert lines[0][0] == logging.INFO
    assert "passwright doctor --probe" in lines[0][1]


def test_a_probed_gpu_is_not_unknown_any_more(
    unknown_gpu: torch.device, caplog: pytest.LogCaptureFixture
) -> None:
    device_store.keep(of(unknown_gpu, memory_bandwidth=1e11))
    with caplog.at_level(logging.INFO, logger="passwright"):
        found = describe(unknown_gpu)
    assert found.memory_bandwidth == 1e11
    assert found.error < assumed(unknown_gpu).error
    assert not caplog.records
    # Whether TF32 is allowed is the process's affair, not the probe's.
    torch.backends.cuda.matmul.fp32_precision, before = (
        "tf32",
        torch.backends.cuda.matmul.fp32_precision,
    )
    try:
        assert describe(unknown_gpu).tf32
    finally:
        torch.backends.cuda.matmul.fp32_precision = before

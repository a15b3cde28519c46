"""The command line: `passwright doctor --probe`, and what `doctor` says of figures."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from cli_runs import run, run_json

from passwright.scheduler import device_store
from passwright.scheduler.commands import probe as probe_command
from passwright.scheduler.device import Source, assumed, describe
from passwright.scheduler.device_probe import Probe, ProbeError
from passwright.scheduler.device_store import Probed

CPU = torch.device("cpu")
pytestmark = pytest.mark.usefixtures("commands_plans")


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where probes are kept: nobody else's."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    device_store.forget()
    return tmp_path / "passwright" / "devices"


def measures(
    monkeypatch: pytest.MonkeyPatch, spread: float = 0.02, version: str = torch.__version__
) -> None:
    """Probes find half of the memory bandwidth and a quarter of the rate in fp32."""
    known = assumed(CPU)
    probed = Probed(
        known.kind,
        known.name,
        known.cores,
        {"memory_bandwidth": known.memory_bandwidth / 2, "fused_launch": 3e-6},
        {"fp32": known.peak_flops["fp32"] / 4},
        spread,
        torch=version,
        date="2030-01-02T03:04:05Z",
    )

    def stand_in(device: torch.device, step: object) -> Probe:
        step("memory")  # type: ignore[operator]
        return Probe(known, probed, ("fp16: no such products",), 1.5)

    monkeypatch.setattr(probe_command, "probe", stand_in)


def figures(*arguments: str) -> dict[str, str]:
    result = run("doctor", "--json", "--no-compile", "--device", "cpu", *arguments)
    found = {finding["name"]: finding for finding in json.loads(result.stdout)["findings"]}
    return found["device figures"]


def test_a_probe_is_shown_and_kept(monkeypatch: pytest.MonkeyPatch, kept: Path) -> None:
    measures(monkeypatch)
    result = run("doctor", "--probe", "--device", "cpu")
    assert result.exit_code == 0, result.stderr
    lines = {line.split("  ")[0]: line.split() for line in result.stdout.splitlines()}
    assert lines["memory"][-2:] == ["0.50", "GB/s"]
    assert lines["products in fp32"][-2:] == ["0.25", "GFLOP/s"]
    assert "not measured: fp16: no such products" in result.stderr
    (path,) = kept.iterdir()
    assert str(path) in result.stderr
    assert describe(CPU).source is Source.PROBE
    assert describe(CPU).fused_launch == 3e-6


def test_a_probe_as_json(monkeypatch: pytest.MonkeyPatch, kept: Path) -> None:
    measures(monkeypatch)
    found = run_json("doctor", "--probe", "--device", "cpu")
    assert found["kept"] == str(next(kept.iterdir()))
    assert found["key"] == describe(CPU).key()
    ratios = {row["figure"]: row["ratio"] for row in found["figures"]}
    assert ratios["memory"] == 0.5
    assert not found["busy"]


def test_figures_of_a_busy_device_are_not_kept(monkeypatch: pytest.MonkeyPatch, kept: Path) -> None:
    measures(monkeypatch, spread=0.8)
    result = run("doctor", "--probe", "--device", "cpu")
    assert result.exit_code == 1
    assert "something else uses the device" in result.stderr
    assert "tries differ by 80%" in result.stderr
    assert not kept.exists()
    assert describe(CPU) == assumed(CPU)


def test_a_directory_that_cannot_be_written_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    measures(monkeypatch)
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    result = run("doctor", "--probe", "--device", "cpu")
    assert result.exit_code == 1
    assert "XDG_CACHE_HOME" in result.stderr


def test_a_probe_that_fails_is_one_line(monkeypatch: pytest.MonkeyPatch, kept: Path) -> None:
    def fails(*_: object) -> Probe:
        raise ProbeError("cpu has no memory left")

    monkeypatch.setattr(probe_command, "probe", fails)
    result = run("doctor", "--probe", "--device", "cpu", "--json")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "passwright: cpu has no memory left" in result.stderr
    assert not kept.exists()


def test_there_is_no_such_device() -> None:
    result = run("doctor", "--probe", "--device", "cuda:99")
    assert result.exit_code == 2
    assert "CUDA devices here" in result.stderr


def test_doctor_says_where_figures_come_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "SVE256")
    found = figures()
    assert found["state"] == "warning"
    assert "passwright doctor --probe --device cpu" in found["cure"]

    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX2")
    assert figures()["state"] == "optional"

    measures(monkeypatch)
    run("doctor", "--probe", "--device", "cpu")
    found = figures()
    assert (found["state"], found["cure"]) == ("ok", "")
    assert "a probe of 2030-01-02" in found["value"]

    measures(monkeypatch, version="1.0")
    run("doctor", "--probe", "--device", "cpu")
    found = figures()
    assert found["state"] == "optional"
    assert "measured with torch 1.0" in found["value"]


def test_help_teaches() -> None:
    text = run("doctor", "--help").stdout
    assert "--probe" in text
    assert "passwright doctor --probe" in text

"""The command line: what `passwright doctor` finds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from cli_runs import run

from passwright.scheduler import toolchain
from passwright.scheduler.commands import doctor as doctor_command

pytestmark = pytest.mark.usefixtures("commands_plans")


# ---- doctor


def findings(*arguments: str, code: int = 0) -> dict[str, dict[str, str]]:
    result = run("doctor", "--json", *arguments)
    assert result.exit_code == code, result.stdout
    data = json.loads(result.stdout)
    assert data["ok"] == (code == 0)
    return {finding["name"]: finding for finding in data["findings"]}


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchain, "cpp_compiler", lambda: ("g++", "g++ 99"))


@pytest.mark.usefixtures("compiler")
def test_doctor_lists_what_is_here(commands_plans: Path) -> None:
    found = findings("--no-compile", "--device", "cpu")
    assert found["torch"]["value"] == torch.__version__
    assert found["C++ compiler"]["value"] == "g++: g++ 99"
    assert str(commands_plans) in found["plan directory"]["value"]
    assert found["device"]["value"].startswith("cpu: ")
    assert "self-test" not in found
    shown = run("doctor", "--no-compile", "--device", "cpu").stdout
    assert all(name in shown for name in found)


def test_doctor_fails_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> tuple[str, str]:
        raise toolchain.ToolchainError("no C++ compiler found")

    monkeypatch.setattr(toolchain, "cpp_compiler", none)
    found = findings("--no-compile", "--device", "cpu", code=1)
    assert found["C++ compiler"]["state"] == "missing"
    assert "g++" in found["C++ compiler"]["cure"]


@pytest.mark.usefixtures("compiler")
def test_doctor_tells_how_to_get_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    version_of = toolchain.version_of
    monkeypatch.setattr(
        toolchain, "version_of", lambda name: None if name == "torchfm" else version_of(name)
    )
    file = tmp_path / "file"
    file.touch()
    monkeypatch.setenv("PASSWRIGHT_PLAN_DIRECTORY", str(file / "plans"))
    found = findings("--no-compile", "--device", "cpu")
    assert found["extra zoo"]["state"] == "optional"
    assert "torchfm" in found["extra zoo"]["value"]
    assert "pip install 'passwright[zoo]'" in found["extra zoo"]["cure"]
    assert found["plan directory"]["state"] == "warning"
    assert "PASSWRIGHT_PLAN_DIRECTORY" in found["plan directory"]["cure"]

    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(file / "cache"))
    found = findings("--no-compile", "--device", "cpu", code=1)
    assert found["cache directory"]["state"] == "missing"


@pytest.mark.parametrize(
    ("version", "inside"),
    [("2.10.1", False), ("2.11.0", True), ("2.14.1+cu130", True), ("2.15.0a0", False)],
)
def test_doctor_knows_the_versions_it_was_tested_with(
    version: str, inside: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "__version__", version)
    found = {f.name: f for f in [doctor_command._torch()]}
    assert (found["torch"].state == "ok") == inside


def test_the_self_test_finds_wrong_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", lambda _fn, **_: lambda x: x + 1)
    assert doctor_command.self_test(torch.device("cpu")).state == "missing"
    monkeypatch.setattr(torch, "compile", lambda fn, **_: fn)
    assert doctor_command.self_test(torch.device("cpu")).state == "ok"


@pytest.mark.inductor
def test_the_self_test_passes_here() -> None:
    assert doctor_command.self_test(torch.device("cpu")).state == "ok"

"""What stands around torch: compiler, directories, requirements."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from passwright.scheduler import toolchain


@pytest.mark.inductor
def test_the_compiler_is_the_one_of_inductor() -> None:
    command, version = toolchain.cpp_compiler()
    assert command
    assert re.search(r"\d+\.\d+", version)


def test_a_compiler_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._inductor import config, cpp_builder

    # The search is remembered; a fresh one must come to nothing.
    cpp_builder.cpp_compiler_search.cache_clear()
    try:
        with (
            config.patch({"cpp.cxx": ("no-such-compiler",)}),
            pytest.raises(toolchain.ToolchainError),
        ):
            toolchain.cpp_compiler()
    finally:
        cpp_builder.cpp_compiler_search.cache_clear()


def test_a_compiler_that_does_not_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / "g++"
    broken.write_text("#!/bin/sh\nexit 1\n", encoding="utf-8")
    broken.chmod(0o755)
    monkeypatch.setattr("torch._inductor.cpp_builder.get_cpp_compiler", lambda: os.fspath(broken))
    with pytest.raises(toolchain.ToolchainError, match="does not run"):
        toolchain.cpp_compiler()


def test_writing_is_tried_where_the_directory_would_be(tmp_path: Path) -> None:
    assert toolchain.why_not_writable(tmp_path) == ""
    assert toolchain.why_not_writable(tmp_path / "a" / "b") == ""
    assert not (tmp_path / "a").exists()
    file = tmp_path / "file"
    file.touch()
    assert str(file) in toolchain.why_not_writable(file / "a")


def test_requirements_are_those_of_the_package() -> None:
    plain = dict(toolchain.requirements())
    assert plain["torch"] == "<2.15,>=2.11"
    assert "triton" not in plain
    assert {"triton"} == {name for name, _ in toolchain.requirements("gpu")}
    assert ("torchfm", "==0.7.0") in list(toolchain.requirements("zoo"))


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchain, "version_of", lambda _: None)
    assert "torchfm==0.7.0" in toolchain.missing("zoo")
    monkeypatch.setattr(toolchain, "version_of", lambda _: "1")
    assert toolchain.missing("zoo") == []


@pytest.mark.parametrize(
    ("text", "version"),
    [
        (
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 2023",
            "535.104.05",
        ),
        (
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build",
            "580.65.06",
        ),
        (
            "NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  580.65  Release Build",
            "580.65",
        ),
        ("GCC version: gcc version 12.3.0", ""),
        ("", ""),
    ],
)
def test_the_driver_is_told_from_the_architecture(text: str, version: str) -> None:
    assert toolchain.module_version(text) == version

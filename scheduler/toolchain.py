"""What stands around torch on this machine: C++ compiler, CUDA driver, directories, extras."""

from __future__ import annotations

import ctypes
import importlib.metadata
import re
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

_DISTRIBUTION = "passwright"
_REQUIREMENT = re.compile(r"^([\w.-]+)(.*?)(?:;.*extra\s*==\s*[\"'](\w+)[\"'].*)?$")


class ToolchainError(RuntimeError):
    """Inductor could not compile here; the message says what it looked for."""


def cpp_compiler() -> tuple[str, str]:
    """Command and version of the C++ compiler that Inductor will use. Raises ToolchainError."""
    from torch._inductor.cpp_builder import get_cpp_compiler

    try:
        command = get_cpp_compiler()
    except Exception as error:
        raise ToolchainError(str(error).partition("\n")[0] or "no C++ compiler found") from error
    try:
        done = subprocess.run(
            [command, "--version"], capture_output=True, text=True, timeout=20, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise ToolchainError(f"{command} does not run: {error}") from error
    return command, done.stdout.partition("\n")[0]


def cuda_driver() -> str | None:
    """The newest CUDA that the driver supports, as `13.0`; None without a driver."""
    version = ctypes.c_int(0)
    try:
        ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(version))
    except OSError:
        return None
    return f"{version.value // 1000}.{version.value % 1000 // 10}" if version.value else None


def gpu_driver() -> str:
    """The driver's version and the newest CUDA that it supports, `580.65.06, CUDA 13.0`; "" without one."""
    newest = cuda_driver()
    try:
        text = Path("/proc/driver/nvidia/version").read_text(encoding="utf-8")
    except OSError:
        text = ""
    parts = [module_version(text), f"CUDA {newest}" if newest else ""]
    return ", ".join(part for part in parts if part)


def module_version(text: str) -> str:
    """Of what `/proc/driver/nvidia/version` says: `580.65.06`; "" where it says none. Some drivers name the
    machine's architecture before it."""
    own = re.search(r"Kernel Module.*?\s(\d+(?:\.\d+)+)\b", text)
    return own.group(1) if own else ""


def why_not_writable(directory: Path) -> str:
    """Why nothing can be written there, or "". A directory that is not there yet is not made."""
    existing = next(path for path in (directory, *directory.parents) if path.exists())
    try:
        with tempfile.TemporaryFile(dir=existing):
            return ""
    except OSError as error:
        return f"{existing}: {error.strerror}"


def version_of(distribution: str) -> str | None:
    """The installed version; None if it is not there."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def own_version() -> str:
    """Of this package."""
    return version_of(_DISTRIBUTION) or "not installed"


def requirements(extra: str | None = None) -> Iterator[tuple[str, str]]:
    """(name, version specifier) of what the package needs, by itself or for one of its extras."""
    try:
        lines = importlib.metadata.requires(_DISTRIBUTION) or ()
    except importlib.metadata.PackageNotFoundError:  # a checkout on the path, not installed
        return
    for line in lines:
        found = _REQUIREMENT.match(line)
        if found and found[3] == extra:
            yield found[1], found[2].strip()


def missing(extra: str) -> list[str]:
    """What has to be installed before the extra is complete."""
    return [name + bound for name, bound in requirements(extra) if version_of(name) is None]

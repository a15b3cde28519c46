"""`passwright doctor`: what is here, what is missing, and how to get it."""

from __future__ import annotations

import platform
import re
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

import torch

from passwright.scheduler import toolchain
from passwright.scheduler.commands.console import FAILED, cause, console, print_json
from passwright.scheduler.commands.probe import cores_of, origin
from passwright.scheduler.device import Source, describe
from passwright.scheduler.inductor import cache_directory
from passwright.scheduler.optimize import Scheduler
from passwright.scheduler.settings import Settings

#: What each extra of the package is for.
EXTRAS = {
    "gpu": "Triton kernels on a GPU",
    "zoo": "the public models of the demo",
    "train": "training gain models",
}


class State(StrEnum):
    """How much a finding matters."""

    OK = "ok"
    #: Something optional is not there.
    OPTIONAL = "optional"
    #: Works, but not as it should.
    WARNING = "warning"
    #: Compiling with Passwright does not work.
    MISSING = "missing"


@dataclass(frozen=True)
class Finding:
    """One line of the doctor's report. `cure` says what to do about it."""

    name: str
    state: State
    value: str
    cure: str = ""


def doctor(device: torch.device, settings: Settings, *, compile_test: bool, as_json: bool) -> int:
    """Prints the findings; the exit code is 1 if something essential is missing."""
    findings = [*examine(device, settings)]
    if compile_test:
        findings.append(self_test(device))
    broken = any(finding.state is State.MISSING for finding in findings)
    if as_json:
        print_json({"ok": not broken, "findings": [asdict(finding) for finding in findings]})
    else:
        _show(findings)
    return FAILED if broken else 0


def examine(device: torch.device, settings: Settings) -> list[Finding]:
    """All findings that need no compile."""
    return [
        Finding("passwright", State.OK, toolchain.own_version()),
        Finding("python", State.OK, platform.python_version()),
        _torch(),
        _compiler(),
        *_cuda(device),
        _device(device),
        _figures(device),
        _directory("cache directory", cache_directory(), State.MISSING, "TORCHINDUCTOR_CACHE_DIR"),
        _directory(
            "plan directory",
            Scheduler.of(settings).store.directory,
            State.WARNING,
            "PASSWRIGHT_PLAN_DIRECTORY",
        ),
        *(_extra(name, purpose) for name, purpose in EXTRAS.items()),
    ]


def _torch() -> Finding:
    version = torch.__version__
    bounds = dict(toolchain.requirements()).get("torch", "")
    if not _within(version, bounds):
        cure = f"pip install 'torch{bounds}'"
        return Finding("torch", State.WARNING, f"{version}, tested with {bounds}", cure)
    return Finding("torch", State.OK, version)


def _within(version: str, bounds: str) -> bool:
    """Whether `2.13.0+cpu` lies in `<2.15,>=2.11`."""
    numbers = _numbers(version)
    compare: dict[str, Callable[[list[int], list[int]], bool]] = {
        "<": lambda have, bound: have < bound,
        ">=": lambda have, bound: have >= bound,
    }
    found = re.findall(r"(<|>=)([\d.]+)", bounds)
    return all(compare[sign](numbers, _numbers(bound)) for sign, bound in found)


def _numbers(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", version.partition("+")[0])[:2]]


def _compiler() -> Finding:
    try:
        command, version = toolchain.cpp_compiler()
    except toolchain.ToolchainError as error:
        cure = "install one, e.g. `apt install g++`, or set CXX to its path"
        return Finding("C++ compiler", State.MISSING, str(error), cure)
    return Finding("C++ compiler", State.OK, f"{command}: {version}")


def _cuda(device: torch.device) -> list[Finding]:
    runtime, driver = torch.version.cuda, toolchain.cuda_driver()
    found = []
    if runtime is None:
        found.append(Finding("CUDA", State.OK, "this torch is built without CUDA"))
    elif not torch.cuda.is_available():
        value = f"torch is built for {runtime}, the driver supports {driver or 'nothing'}"
        found.append(Finding("CUDA", State.OPTIONAL, value, "no GPU is needed; plans fit the CPU"))
    else:
        found.append(
            Finding("CUDA", State.OK, f"torch is built for {runtime}, the driver supports {driver}")
        )
    triton = toolchain.version_of("triton")
    needed = device.type == "cuda"
    if triton is not None or needed:
        state = State.OK if triton else State.MISSING
        cure = "" if triton else "pip install 'passwright[gpu]'"
        found.append(Finding("triton", state, triton or "not installed", cure))
    return found


def _device(device: torch.device) -> Finding:
    d = describe(device)
    flops = ", ".join(f"{name} {rate / 1e9:,.0f}" for name, rate in sorted(d.peak_flops.items()))
    value = (
        f"{device}: {d.name}, {d.cores} {cores_of(d)},"
        f" memory {d.memory_bandwidth / 1e9:,.0f} GB/s, cache {d.cache_bytes / 2**20:,.0f} MiB at"
        f" {d.cache_bandwidth / 1e9:,.0f} GB/s, GFLOP/s {flops}; launch"
        f" {d.fused_launch * 1e6:.1f} us fused, {d.extern_launch * 1e6:.1f} us library ({d.key()})"
    )
    return Finding("device", State.OK, value)


def _figures(device: torch.device) -> Finding:
    """Where the device's figures come from, and whether a probe would make them better."""
    source, text, against = origin(device)
    cure = f"passwright doctor --probe --device {device}  (measures it, about 5 s)"
    state = {Source.DERIVED: State.WARNING, Source.TABLE: State.OPTIONAL}.get(source, State.OK)
    if against:
        state, text = State.OPTIONAL, f"{text}, {against}"
    return Finding("device figures", state, text, "" if state is State.OK else cure)


def _directory(name: str, path: Path, state: State, variable: str) -> Finding:
    reason = toolchain.why_not_writable(path)
    if reason:
        cure = f"set {variable} to a directory that can be written"
        return Finding(name, state, f"{path} (not writable: {reason})", cure)
    there = "" if path.exists() else " (not there yet)"
    return Finding(name, State.OK, f"{path}{there}")


def _extra(name: str, purpose: str) -> Finding:
    missing = toolchain.missing(name)
    if not missing:
        return Finding(f"extra {name}", State.OK, purpose)
    cure = f"pip install 'passwright[{name}]', or in a checkout `make setup EXTRAS=dev,zoo,{name}`"
    if name == "zoo":
        cure = "pip install 'passwright[zoo]', or in a checkout `make setup`"
    return Finding(f"extra {name}", State.OPTIONAL, f"{purpose}: {', '.join(missing)}", cure)


def self_test(device: torch.device) -> Finding:
    """Compiles a function of three ops with the backend and compares it with eager."""

    def function(x: torch.Tensor) -> torch.Tensor:
        first, second = torch.split(x, 8, dim=1)
        return torch.cat([first, second.sin()], dim=1)

    x = torch.arange(64.0, device=device).reshape(4, 16) / 64
    start = time.perf_counter()
    try:
        compiled = torch.compile(function, backend="passwright")
        actual = compiled(x)
    except Exception as error:
        cure = "see the findings above; TORCH_LOGS=+passwright shows more"
        return Finding("self-test", State.MISSING, cause(error), cure)
    seconds = time.perf_counter() - start
    if not torch.allclose(actual, function(x), rtol=1e-5, atol=1e-6):
        cure = "please report it with the output of `passwright doctor --json`"
        return Finding("self-test", State.MISSING, "wrong result", cure)
    value = f'torch.compile(backend="passwright") is right, {seconds:.1f} s'
    return Finding("self-test", State.OK, value)


_STYLE = {
    State.OK: "green",
    State.OPTIONAL: "cyan",
    State.WARNING: "yellow",
    State.MISSING: "bold red",
}


def _show(findings: list[Finding]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=False, pad_edge=False)
    for finding in findings:
        value = Text(finding.value)
        if finding.cure and finding.state is not State.OK:
            value.append(f"\n-> {finding.cure}", style="italic")
        style = _STYLE[finding.state]
        table.add_row(Text(finding.state, style=style), Text(finding.name), value)
    console().print(table)

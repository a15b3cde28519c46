"""`passwright doctor --probe`: measures the device, shows what was assumed of it, and keeps the figures."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from passwright.scheduler import device_store
from passwright.scheduler.commands.console import FAILED, console, print_json, progress, say
from passwright.scheduler.device import DeviceDescriptor, Source, describe
from passwright.scheduler.device_probe import Probe, ProbeError, probe, steps_of

#: Name, unit and size of the unit of each figure, in the order of the table.
_FIGURES = {
    "memory_bandwidth": ("memory", "GB/s", 1e9),
    "cache_bandwidth": ("cache", "GB/s", 1e9),
    "fused_launch": ("launch, generated", "us", 1e-6),
    "extern_launch": ("launch, library", "us", 1e-6),
    "call_seconds": ("call of a graph", "us", 1e-6),
    "item_seconds": ("batched product", "us", 1e-6),
    "exp_rate": ("exponentials", "G/s", 1e9),
    "fresh_bandwidth": ("fresh memory", "GB/s", 1e9),
}
_RATE = ("GFLOP/s", 1e9)
#: What figures are called that nobody measured on this device.
ORIGIN = {
    Source.PROBE: "a probe",
    Source.MEASURED: "the tables, measured on such a device",
    Source.TABLE: "the tables, for such devices in general",
    Source.DERIVED: "derived from units and clocks",
}


@dataclass(frozen=True)
class Row:
    """One measured figure beside the assumed one, both in `unit`."""

    figure: str
    unit: str
    measured: float
    assumed: float

    @property
    def ratio(self) -> float:
        """Measured over assumed."""
        return self.measured / self.assumed if self.assumed else 0.0


def probe_command(device: torch.device, *, as_json: bool) -> int:
    """Measures, shows and keeps. The exit code is 1 where nothing was kept."""
    try:
        found = _measure(device)
    except ProbeError as error:
        say(f"passwright: {error}")
        return FAILED
    path, why_not = _keep(found)
    if as_json:
        print_json(_data(device, found, path, why_not))
    else:
        _show(found)
    if why_not:
        say(f"passwright: not kept: {why_not}")
        return FAILED
    if not as_json:
        say(f"kept as {path}; every compile by this user on such a device goes by it from now on")
        say(f"delete the file to go back to {ORIGIN[found.assumed.source]}")
    return 0


def _measure(device: torch.device) -> Probe:
    with progress(steps_of(device)) as reporter:
        last: list[str] = []

        def step(what: str) -> None:
            for before in last:
                reporter.finished(f"{before}: measured")
            last[:] = [what]
            reporter.working_on(what)

        found = probe(device, step)
        step("done")
        return found


def _keep(found: Probe) -> tuple[str, str]:
    """Where the figures are kept now, and why they are not; one of them is empty."""
    if found.busy:
        stopped = (
            f", threads made room {found.crowding:.0f} times a second" if found.crowding else ""
        )
        return "", (
            f"something else uses the device (tries differ by {found.probed.spread:.0%}{stopped}); probe"
            " again when it is idle. What was used before is still used"
        )
    try:
        return str(device_store.keep(found.probed)), ""
    except (OSError, RuntimeError) as error:
        return "", f"{error}; set XDG_CACHE_HOME to a directory that can be written"


def rows(found: Probe) -> Iterator[Row]:
    """Every figure that was measured."""
    for name, (label, unit, size) in _FIGURES.items():
        if name in found.probed.figures:
            known = float(getattr(found.assumed, name))
            yield Row(label, unit, found.probed.figures[name] / size, known / size)
    unit, size = _RATE
    for precision, rate in found.probed.peak_flops.items():
        known = found.assumed.peak_flops[precision]
        yield Row(f"products in {precision}", unit, rate / size, known / size)


def _data(device: torch.device, found: Probe, path: str, why_not: str) -> dict[str, Any]:
    return {
        "device": str(device),
        "name": found.assumed.name,
        "key": found.measured.key(),
        "assumed_from": found.assumed.source.value,
        "figures": [
            {
                "figure": row.figure,
                "unit": row.unit,
                "measured": row.measured,
                "assumed": row.assumed,
                "ratio": row.ratio,
            }
            for row in rows(found)
        ],
        "not_measured": list(found.left),
        "seconds": found.seconds,
        "spread": found.probed.spread,
        "crowding": found.crowding,
        "busy": found.busy,
        "kept": path,
        "why_not_kept": why_not,
    }


def _show(found: Probe) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    table.add_column(f"{found.assumed.name}, {found.assumed.cores} {cores_of(found.assumed)}")
    for title in ("measured", "assumed", "ratio"):
        table.add_column(title, justify="right")
    table.add_column("")
    for row in rows(found):
        numbers = (
            f"{number:,.3g}" if number < 100 else f"{number:,.0f}"
            for number in (row.measured, row.assumed)
        )
        table.add_row(row.figure, *numbers, f"{row.ratio:.2f}", row.unit)
    console().print(table)
    for line in found.left:
        say(f"not measured: {line}")
    say(
        f"assumed: {ORIGIN[found.assumed.source]}; {found.seconds:.1f} s, tries differ by"
        f" {found.probed.spread:.0%}"
    )


def cores_of(device: DeviceDescriptor) -> str:
    """What its `cores` are."""
    return "threads" if device.kind == "cpu" else "multiprocessors"


def origin(device: torch.device) -> tuple[Source, str, str]:
    """Where the figures that compiles use come from, in words, and what is to be said against them."""
    used = describe(device)
    text = ORIGIN[used.source]
    if used.source is not Source.PROBE:
        return used.source, text, ""
    probed = device_store.find(used.kind, used.name, used.cores)
    assert probed is not None
    path = device_store.path_of(used.kind, used.name, used.cores)
    other = "" if probed.torch == torch.__version__ else f"measured with torch {probed.torch}"
    return used.source, f"a probe of {probed.date[:10]} ({path})", other

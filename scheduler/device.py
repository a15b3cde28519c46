"""What a device can do, in the few figures that a cost estimate needs.

The figures are what compiled code reaches, not peaks of a datasheet. `describe` looks them up and
never measures, so that the same machine gives the same plans; `passwright doctor --probe` measures, and
keeps what it found for `describe` (`device_probe.py`, `device_store.py`).
"""

from __future__ import annotations

import functools
import hashlib
import json
import logging
import math
import platform
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

import torch

from passwright.scheduler import device_store
from passwright.scheduler import device_table as table

log = logging.getLogger(__name__)


class Source(StrEnum):
    """Where the figures of a device come from."""

    #: A probe of this very device.
    PROBE = "probe"
    #: The tables, which were fitted to measurements of a device of this name.
    MEASURED = "measured"
    #: The tables: the maker's datasheet for this name, or what CPUs of this kind reach.
    TABLE = "table"
    #: No table knows the device: units times clocks, as the driver tells them.
    DERIVED = "derived"


@dataclass(frozen=True)
class DeviceDescriptor:
    """One device, as cost estimates see it.

    `cores`: threads that torch uses on a CPU, streaming multiprocessors on a GPU. Bandwidths are in
    bytes per second, counting what is read and what is written. `peak_flops` maps fp64, fp32, tf32,
    bf16 and fp16 to the operations per second that large matrix products reach (a multiply-add
    counts as two). `fused_launch` and `extern_launch` are the seconds that one more kernel costs,
    however small, when Inductor generated it and when it is a library call (GEMM). `serial_flops`:
    a matrix product of less work runs on one core (CPU only). `item_seconds`: what each product of a
    batched one costs beside its work. `exp_rate`: how many exponentials of float32 are computed per
    second, 0 where memory is always slower. `call_seconds`: what one call of a compiled graph costs,
    however small the graph. `fresh_bandwidth`: how many bytes a second the system hands out of memory
    that was not used before (CPU only; 0 where that costs nothing). `tf32`: whether products of float32
    may use TF32.
    """

    kind: str
    name: str
    cores: int
    memory_bandwidth: float
    cache_bandwidth: float
    cache_bytes: int
    peak_flops: Mapping[str, float] = field(hash=False)
    fused_launch: float
    extern_launch: float
    serial_flops: float = 0.0
    item_seconds: float = 0.0
    exp_rate: float = 0.0
    call_seconds: float = 2e-6
    fresh_bandwidth: float = 0.0
    tf32: bool = False
    source: Source = Source.TABLE

    @property
    def error(self) -> float:
        """One standard error of the figures, as a part of them, in cost estimates."""
        return table.DERIVED_ERROR if self.source is Source.DERIVED else table.KNOWN_ERROR

    def key(self) -> str:
        """A short name of the device and all its figures, the same in any process."""
        figures = hashlib.sha256(self.to_json().encode()).hexdigest()[:12]
        name = re.sub(r"[^A-Za-z0-9]+", "-", self.name).strip("-").lower()
        return f"{self.kind}-{name}-{self.cores}-{figures}"

    def bandwidth_for(self, moved: float) -> float:
        """Bytes per second at which a kernel moves so many bytes in all."""
        return self.cache_bandwidth if moved <= self.cache_bytes else self.memory_bandwidth

    def allocation_seconds(self, nbytes: float, *, by_library: bool = False) -> float:
        """Seconds that a result of so many bytes costs before anything is written to it."""
        smallest = table.CPU_FRESH_BYTES if by_library else table.CPU_ALWAYS_FRESH_BYTES
        large = self.fresh_bandwidth > 0 and nbytes >= smallest
        return nbytes / self.fresh_bandwidth if large else 0.0

    def matmul_seconds(self, dtype: torch.dtype, work: float, outputs: float) -> float:
        """Seconds of arithmetic in a matrix product, or in a batch of them, counted together.

        `work` is its number of operations, `outputs` the number of elements it computes. A small
        product does not fill the device: on a CPU it runs on one core; on a GPU a step of the inner
        product takes no less than that of a fill of outputs, until it is worth splitting.
        """
        precision = self._precision(dtype)
        peak = self.peak_flops[precision]
        if self.kind == "cpu":
            return work / (peak / self.cores if work < self.serial_flops else peak)
        steps = work / max(1.0, outputs)
        waiting = steps * table.GPU_FILL[precision] * self.cores / peak
        return work / peak + min(waiting, table.GPU_SPLIT_LAUNCHES * self.extern_launch)

    def attention_seconds(self, items: float, queries: float, itemsize: int) -> float:
        """Seconds that attention of so many heads in all takes at least, each of so many queries."""
        if self.kind != "cuda":
            return 0.0
        rounds = items * math.ceil(queries / table.GPU_ATTENTION_QUERIES) / self.cores
        return rounds * table.GPU_ATTENTION_BLOCK.get(itemsize, table.GPU_ATTENTION_BLOCK[4])

    def _precision(self, dtype: torch.dtype) -> str:
        if dtype == torch.float32:
            return "tf32" if self.tf32 else "fp32"
        names = {torch.float64: "fp64", torch.bfloat16: "bf16", torch.float16: "fp16"}
        return names.get(dtype, "fp32")

    def to_json(self) -> str:
        """One JSON object, keys sorted."""
        return json.dumps(asdict(self), sort_keys=True, indent=1)


def describe(device: torch.device) -> DeviceDescriptor:
    """The device's figures: what a probe of it found, if there was one; else what `assumed` says.

    A probe counts also where the tables know the device: whoever measures his own wants to be believed.
    Nothing is measured here, and no file is read twice in a process. Raises ValueError for a device that
    is neither a CPU nor CUDA.
    """
    known = assumed(device)
    probed = device_store.find(known.kind, known.name, known.cores)
    if probed is not None:
        return with_probe(known, probed)
    if known.source is Source.DERIVED:
        _suggest_probe(known.name)
    return known


def with_probe(known: DeviceDescriptor, probed: device_store.Probed) -> DeviceDescriptor:
    """The figures, with those that a probe measured in their place."""
    figures: dict[str, Any] = dict(probed.figures)
    rates = {**known.peak_flops, **probed.peak_flops}
    return replace(known, **figures, peak_flops=rates, source=Source.PROBE)


@functools.cache
def _suggest_probe(name: str) -> None:
    """Once a device: nothing is wrong, so no warning."""
    log.info(
        "no table knows %s: its figures are derived from its units and clocks, and gains have to be"
        " larger to count; run `passwright doctor --probe` to measure it",
        name,
    )


def assumed(device: torch.device) -> DeviceDescriptor:
    """The device's figures from the tables, or derived from its properties, whatever a probe found.

    On a CPU the figures go with `torch.get_num_threads()`, as times do. Raises as `describe` does.
    """
    if device.type == "cpu":
        capability = torch.backends.cpu.get_cpu_capability()
        return describe_cpu(capability, torch.get_num_threads(), _cpu_name(), _cpu_cache())
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        return describe_gpu(properties.name, properties, tf32=_tf32_allowed())
    raise ValueError(f"no figures for {device.type!r} devices; only for cpu and cuda")


def describe_cpu(capability: str, threads: int, name: str, cache_bytes: int) -> DeviceDescriptor:
    """A CPU of which torch uses so many threads, with `capability` as torch names it."""
    core = table.cpu_core(capability)
    return DeviceDescriptor(
        kind="cpu",
        name=f"{name} {capability}",
        cores=threads,
        memory_bandwidth=min(core.memory_bandwidth * threads, core.memory_bandwidth_limit),
        cache_bandwidth=core.cache_bandwidth * threads,
        cache_bytes=int(cache_bytes * table.CPU_CACHE_SHARE),
        peak_flops={precision: rate * threads for precision, rate in core.flops.items()},
        fused_launch=table.CPU_FUSED_LAUNCH,
        extern_launch=table.CPU_EXTERN_LAUNCH,
        serial_flops=table.CPU_SERIAL_FLOPS if threads > 1 else 0.0,
        item_seconds=table.CPU_ITEM / threads,
        exp_rate=core.exp_rate * threads,
        call_seconds=table.CPU_CALL,
        fresh_bandwidth=table.CPU_FRESH_BANDWIDTH,
        source=Source.TABLE if table.knows_cpu(capability) else Source.DERIVED,
    )


def describe_gpu(name: str, properties: Any = None, *, tf32: bool = False) -> DeviceDescriptor:
    """A GPU by its name, present or not; with `properties` as CUDA gives them, any GPU.

    A known GPU of which the properties show fewer multiprocessors (a MIG slice) gets its share.
    Raises LookupError for an unknown name without properties.
    """
    gpu = table.known_gpu(name)
    if gpu is None and properties is None:
        raise LookupError(f"no figures for a GPU named {name!r}; give its CUDA properties")
    source = Source.DERIVED
    if gpu is None:
        gpu = table.derived_gpu(properties)
    else:
        source = Source.MEASURED if gpu.measured else Source.TABLE
    cores = gpu.cores if properties is None else int(properties.multi_processor_count)
    share = min(1.0, cores / gpu.cores)
    bandwidth = gpu.memory_bandwidth * table.GPU_REACHED_BANDWIDTH * share
    return DeviceDescriptor(
        kind="cuda",
        name=name,
        cores=cores,
        memory_bandwidth=bandwidth,
        cache_bandwidth=bandwidth * table.GPU_CACHE_FACTOR,
        cache_bytes=int(gpu.cache_bytes * share),
        peak_flops={
            precision: rate * table.reached(rate, gpu) * share
            for precision, rate in gpu.flops.items()
        },
        fused_launch=table.GPU_FUSED_LAUNCH,
        extern_launch=table.GPU_EXTERN_LAUNCH,
        call_seconds=table.GPU_CALL,
        tf32=tf32,
        source=source,
    )


def _tf32_allowed() -> bool:
    # Not torch.get_float32_matmul_precision: that raises when the newer setting was used.
    return bool(torch.backends.cuda.matmul.fp32_precision == "tf32")


@functools.cache
def _cpu_name() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        text = ""
    found = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return found[1].strip() if found else platform.processor() or platform.machine()


@functools.cache
def _cpu_cache() -> int:
    """Bytes of the last-level cache; 8 MiB where the system does not tell."""
    sizes = [8 << 10]
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        found = re.match(r"(\d+)([KM])", path.read_text(encoding="ascii"))
        if found:
            sizes.append(int(found[1]) * {"K": 1, "M": 1 << 10}[found[2]])
    return max(sizes[1:] or sizes) << 10

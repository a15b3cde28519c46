"""Figures of known devices, and rules for those that no table knows.

Each figure says where it comes from. "Datasheet" means the maker's; "measured" means in this
project's own runs, on an NVIDIA H200 or on two cores of an AMD EPYC of the Zen 3 generation (AVX2)
in a virtual machine; "estimated" is a guess that nobody has checked.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class CpuCore:
    """One core's share: bytes, operations and exponentials per second that compiled code reaches."""

    flops: Mapping[str, float]
    exp_rate: float
    cache_bandwidth: float
    memory_bandwidth: float
    #: Of all cores together.
    memory_bandwidth_limit: float


@dataclass(frozen=True)
class Gpu:
    """A whole GPU: `cores` are streaming multiprocessors; bandwidth and rates are the maker's.

    Rates are those of dense products, on tensor cores where there are any for the dtype.
    """

    cores: int
    memory_bandwidth: float
    cache_bytes: int
    flops: Mapping[str, float]
    #: What is fitted to measurements below was measured on this one.
    measured: bool = False


#: One standard error of a device's figures, as a part of them: where they were measured, here or on
#: others of the name; and where they are derived from units and clocks. Assumed.
KNOWN_ERROR, DERIVED_ERROR = 0.2, 0.4


# ---- CPU. Measured with torch 2.13 in code that Inductor compiled.

#: One more small loop nest in a generated kernel. Measured: 0.8 to 1.3 us for 256 elements in a
#: chain of dependent nests, 1.6 to 3 us with an output tensor of its own.
CPU_FUSED_LAUNCH = 2e-6
#: One more library call from Inductor's wrapper. Measured: 7.5 to 8.5 us for addmm of 8x8 by 8x8.
CPU_EXTERN_LAUNCH = 8e-6
#: What one more loop nest takes of what `add` takes when it is called from Python, by which a probe
#: measures it. Measured on two cores with AVX512: 1.5 us in a chain of softmaxes of 8x8, against 2.7 us.
#: One more addmm of 8x8 took 2.3 us there in compiled code, and 2.6 us called as the wrapper calls it.
CPU_NEST_SHARE = 1.5 / 2.7
#: Measured: products up to 1 MFLOP gain nothing from a second core, one of 2 MFLOP gains 1.15x,
#: those from 7 MFLOP on gain 1.4x to 2x.
CPU_SERIAL_FLOPS = 4e6
#: One product of a batched one, on one core. Measured: 0.21 us for 4x8 by 8x4, 1024 of them.
CPU_ITEM = 0.2e-6
#: One call of a compiled module: guards, and the wrapper around the kernels. Measured: 81 us with one
#: Linear of 8x8 in it.
CPU_CALL = 70e-6
#: Results of this size and more come in pages that the system hands out anew. Estimated: where malloc
#: gives memory back depends on what was allocated before.
CPU_FRESH_BYTES = 1 << 20
#: The same for any result, wherever it comes from: malloc never keeps blocks of this size for reuse
#: (glibc's largest mmap threshold).
CPU_ALWAYS_FRESH_BYTES = 32 << 20
#: Bytes of such pages per second. Measured: a batched product with 992 page faults a call takes 0.39
#: ms longer than without.
CPU_FRESH_BANDWIDTH = 992 * 4096 / 0.39e-3

#: Measured, fp32: 58 to 93 GFLOP/s a core at 256x256x256, 51 to 79 at 512x429x128, 67 to 72 at
#: 2048x1024x1024; fp64: 38 to 44. AVX2 has no arithmetic in 16 bits: bf16 and fp16 gave 4 to 9.
#: Bandwidth measured for x + 1 over 1 to 10 MB: 35 to 45 GB/s a core while both buffers lie in the
#: last-level cache, 10 to 14 over 64 MB. The limit is 80 % of eight channels of DDR4-3200
#: (datasheet: 205 GB/s), which is estimated. An exponential took 0.9 ns.
_AVX2 = CpuCore(
    exp_rate=1.1e9,
    flops={"fp64": 37e9, "fp32": 72e9, "tf32": 72e9, "bf16": 4e9, "fp16": 4e9},
    cache_bandwidth=40e9,
    memory_bandwidth=12e9,
    memory_bandwidth_limit=160e9,
)
#: Estimated: registers twice as wide as AVX2's at a somewhat lower clock; 16 bits as fast as 32.
_AVX512 = CpuCore(
    exp_rate=2e9,
    flops={"fp64": 60e9, "fp32": 120e9, "tf32": 120e9, "bf16": 120e9, "fp16": 60e9},
    cache_bandwidth=50e9,
    memory_bandwidth=12e9,
    memory_bandwidth_limit=240e9,
)
#: Estimated: registers of 128 bits (Arm's NEON, plain SSE).
_OTHER = CpuCore(
    exp_rate=0.5e9,
    flops={"fp64": 12e9, "fp32": 25e9, "tf32": 25e9, "bf16": 10e9, "fp16": 10e9},
    cache_bandwidth=25e9,
    memory_bandwidth=10e9,
    memory_bandwidth_limit=100e9,
)
_CORES = {"AVX2": _AVX2, "AVX512": _AVX512}


def cpu_core(capability: str) -> CpuCore:
    """Figures for a capability as `torch.backends.cpu.get_cpu_capability()` names it."""
    return _CORES.get(capability, _OTHER)


def knows_cpu(capability: str) -> bool:
    """Whether the table has figures for the capability, and not only for CPUs of which nothing is known."""
    return capability in _CORES


#: Part of the last-level cache that one program can count on. Estimated: others use it too. Measured: 256
#: products that touch 21 MB take 37 us each one after another, and 13 us again and again, where the
#: cache is said to hold 32 MiB.
CPU_CACHE_SHARE = 0.5


# ---- CUDA

#: One more generated kernel. Measured on an H200 in CUDA graphs: 1.4 to 1.5 us for x + 1 and for each
#: of 26 look-ups, 1.2 for each of 26 independent ones, 1.7 in a chain of 256. Eager launches cost more.
GPU_FUSED_LAUNCH = 1.6e-6
#: One more GEMM. Fitted to 900 products on an H200 (data/devices/h200.json): 2.5 us in bf16,
#: 3 in TF32, 2.5 to 10 in plain fp32, where cuBLAS splits some small ones in two kernels.
GPU_EXTERN_LAUNCH = 3.0e-6
#: What a probe measures of the two on an H200: an `add` and an `addmm` of 8x8 by 8x8 that do nothing but
#: begin and end, in a CUDA graph. Elsewhere both are taken to be longer or shorter in the same proportion.
GPU_PROBED_FUSED, GPU_PROBED_EXTERN = 1.17e-6, 2.12e-6
#: One call of a compiled graph, as the device sees it. Estimated: it keeps tiny graphs from infinite gains.
GPU_CALL = 2e-6
#: Part of the datasheet's memory bandwidth that a copy reaches. Measured on an H200: 4.1 to 4.3
#: TB/s.
GPU_REACHED_BANDWIDTH = 4.2 / 4.8
#: Part of the datasheet's rate that large products reach, on tensor cores and without. Measured on an
#: H200: 790 of 989 TFLOP/s in bf16, 370 to 390 of 494 in TF32; 49 of 67 in plain fp32.
GPU_REACHED_TENSOR, GPU_REACHED_VECTOR = 790 / 989, 49 / 67
#: Outputs of a product that one multiprocessor computes in the time of one, and the most time that is
#: lost with fewer, in launches of a GEMM (5 us on an H200): a long inner product is then split. Fitted to
#: the same products; `errors` of `training/device_sweep.py` tells how far off each is, and a test bounds
#: it. fp64: as fp32, assumed.
GPU_FILL = {"fp64": 1800, "fp32": 1800, "tf32": 6000, "bf16": 2600, "fp16": 2600}
GPU_SPLIT_LAUNCHES = 5 / 3
#: One block of attention (up to 64 queries of one head) on one multiprocessor, however little it has to
#: do, in 32 and in 16 bits. Measured on an H200 in FTTransformer (data/reports/headroom-h200.json: batch
#: 2048, 8 heads of 40 tokens of width 16): fused attention takes 250 us more in three layers than
#: products and softmax, which move 0.4 GB a layer. In 16 bits: estimated.
GPU_ATTENTION_BLOCK = {4: 1.5e-6, 2: 0.75e-6}
GPU_ATTENTION_QUERIES = 64
#: The L2 cache against the memory. Measured on an H200: x + 1 over 34 MB runs at 7.5 TB/s.
GPU_CACHE_FACTOR = 1.7

_MIB = 1 << 20
_TERA = 1e12


def _rates(fp64: float, fp32: float, tf32: float, half: float) -> dict[str, float]:
    return {
        "fp64": fp64 * _TERA,
        "fp32": fp32 * _TERA,
        "tf32": tf32 * _TERA,
        "bf16": half * _TERA,
        "fp16": half * _TERA,
    }


#: Datasheets of NVIDIA, without sparsity. The first pattern found in the name counts; neither GH200
#: nor L40 counts as H200 or L4.
_GPUS: tuple[tuple[str, Gpu], ...] = (
    (r"\bH200\b", Gpu(132, 4.8 * _TERA, 50 * _MIB, _rates(67, 67, 494, 989), True)),
    (r"\bH100 PCIe\b", Gpu(114, 2.0 * _TERA, 50 * _MIB, _rates(51, 51, 378, 756))),
    (r"\bH100 NVL\b", Gpu(132, 3.9 * _TERA, 50 * _MIB, _rates(60, 60, 418, 835))),
    (r"\bH100\b", Gpu(132, 3.35 * _TERA, 50 * _MIB, _rates(67, 67, 494, 989))),
    (r"\bA100.*\b80GB", Gpu(108, 2.0 * _TERA, 40 * _MIB, _rates(19.5, 19.5, 156, 312))),
    (r"\bA100\b", Gpu(108, 1.555 * _TERA, 40 * _MIB, _rates(19.5, 19.5, 156, 312))),
    (r"\bL4\b", Gpu(58, 0.3 * _TERA, 48 * _MIB, _rates(0.47, 30.3, 60, 121))),
)

#: Compute capability; of one multiprocessor in one clock the fp32 lanes and the 16-bit operations
#: on tensor cores; by how much fp64 is slower than fp32. From NVIDIA's architecture white papers. A
#: capability between two counts as the lower.
_ARCHITECTURES: tuple[tuple[tuple[int, int], int, int, int], ...] = (
    ((6, 0), 64, 0, 2),
    ((6, 1), 128, 0, 32),
    ((7, 0), 64, 1024, 2),
    ((7, 5), 64, 1024, 32),
    ((8, 0), 64, 2048, 2),
    ((8, 6), 128, 1024, 64),
    ((9, 0), 128, 4096, 2),
    ((10, 0), 128, 8192, 2),
    ((12, 0), 128, 1024, 64),
)


def reached(rate: float, gpu: Gpu) -> float:
    """Part of a rate that products reach: of tensor cores, if it is more than that of fp32."""
    return GPU_REACHED_TENSOR if rate > gpu.flops["fp32"] else GPU_REACHED_VECTOR


def known_gpu(name: str) -> Gpu | None:
    """The GPU that the table has under this name, as `torch.cuda` gives it."""
    return next((gpu for pattern, gpu in _GPUS if re.search(pattern, name)), None)


def derived_gpu(properties: Any) -> Gpu:
    """Figures from CUDA's properties: units times clock.

    Where the driver does not tell, 1.5 GHz and 500 GB/s are assumed.
    """
    capability = (properties.major, properties.minor)
    _, lanes, tensor, doubles = max(
        (entry for entry in _ARCHITECTURES if entry[0] <= capability),
        default=_ARCHITECTURES[0],
    )
    per_clock = properties.multi_processor_count * (_hertz(properties, "clock_rate") or 1.5e9)
    fp32 = 2 * lanes * per_clock / _TERA
    half = max(fp32, tensor * per_clock / _TERA)
    # bf16 and TF32, which runs at half the rate of 16 bits, came with capability 8.0.
    ampere = capability >= (8, 0)
    flops = _rates(fp32 / doubles, fp32, max(fp32, half / 2) if ampere else fp32, half)
    if not ampere:
        flops["bf16"] = flops["fp32"]
    # Two transfers a clock over a bus of so many bits.
    bus = getattr(properties, "memory_bus_width", 0) / 8
    bandwidth = 2 * _hertz(properties, "memory_clock_rate") * bus
    return Gpu(
        properties.multi_processor_count,
        bandwidth or 500e9,
        getattr(properties, "L2_cache_size", 0) or 4 * _MIB,
        flops,
    )


def _hertz(properties: Any, name: str) -> float:
    """A clock that CUDA gives in kHz; 0 where it does not."""
    return float(getattr(properties, name, 0)) * 1e3

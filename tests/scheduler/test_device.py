"""Device descriptors: tables, rules for unknown devices, stable keys. Probes: `test_device_probe.py`."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from passwright.scheduler import device_table
from passwright.scheduler.device import (
    DeviceDescriptor,
    Source,
    describe,
    describe_cpu,
    describe_gpu,
)
from passwright.training.device_sweep import errors

CPU = torch.device("cpu")
cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@contextmanager
def threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


# ---- the CPU


def test_this_cpu() -> None:
    with threads(2):
        cpu = describe(CPU)
        assert describe(CPU) == cpu
    assert (cpu.kind, cpu.cores) == ("cpu", 2)
    assert set(cpu.peak_flops) == {"fp64", "fp32", "tf32", "bf16", "fp16"}
    assert cpu.cache_bandwidth > cpu.memory_bandwidth > 0
    assert 1 << 18 <= cpu.cache_bytes <= 1 << 34
    assert 0 < cpu.fused_launch < cpu.extern_launch


def test_the_key_is_the_same_in_another_process() -> None:
    code = (
        "import torch; from passwright.scheduler.device import describe; torch.set_num_threads(2)\n"
        "print(describe(torch.device('cpu')).key())"
    )
    other = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=100
    )
    with threads(2):
        assert other.stdout.strip() == describe(CPU).key()


def test_the_key_tells_devices_and_figures_apart() -> None:
    cpu = describe_cpu("AVX2", 2, "Some CPU (R) 123", 1 << 25)
    assert cpu.key().startswith("cpu-some-cpu-r-123-avx2-2-")
    others = [
        describe_cpu("AVX2", 4, "Some CPU (R) 123", 1 << 25),
        describe_cpu("AVX512", 2, "Some CPU (R) 123", 1 << 25),
        replace(cpu, extern_launch=2 * cpu.extern_launch),
        replace(cpu, tf32=True),
        describe_gpu("NVIDIA H200"),
        describe_gpu("NVIDIA H200", tf32=True),
        describe_gpu("NVIDIA H100 80GB HBM3"),
    ]
    assert len({cpu.key(), *(other.key() for other in others)}) == len(others) + 1
    assert cpu.key() == describe_cpu("AVX2", 2, "Some CPU (R) 123", 1 << 25).key()


def test_a_small_product_runs_on_one_core() -> None:
    two = describe_cpu("AVX2", 2, "CPU", 1 << 25)
    one = describe_cpu("AVX2", 1, "CPU", 1 << 25)
    small, large = 2.0 * 64**3, 2.0 * 1024**3
    seconds = [
        [d.matmul_seconds(torch.float32, w, 1.0) for w in (small, large)] for d in (one, two)
    ]
    assert seconds[0][0] == seconds[1][0]
    assert seconds[0][1] == 2 * seconds[1][1]


def test_unknown_capability_still_has_figures() -> None:
    cpu = describe_cpu("SVE256", 64, "Neoverse", 1 << 26)
    assert cpu.peak_flops["fp32"] > 0
    # Cores share the memory: its bandwidth does not grow for ever.
    assert cpu.memory_bandwidth == describe_cpu("SVE256", 128, "Neoverse", 1 << 26).memory_bandwidth


def test_bandwidth_goes_with_size() -> None:
    cpu = describe_cpu("AVX2", 2, "CPU", 1 << 25)
    assert cpu.bandwidth_for(1 << 24) == cpu.cache_bandwidth
    assert cpu.bandwidth_for(1 << 25) == cpu.memory_bandwidth


# ---- GPUs


def test_h200_has_the_measured_figures() -> None:
    gpu = describe_gpu("NVIDIA H200", tf32=True)
    assert gpu.cores == 132
    assert gpu.memory_bandwidth == pytest.approx(4.2e12)
    assert gpu.peak_flops["bf16"] == pytest.approx(790e12)
    assert gpu.fused_launch == pytest.approx(1.6e-6)


def test_tf32_is_used_only_where_allowed() -> None:
    work = 2.0 * 8192**3
    plain, fast = describe_gpu("NVIDIA H200"), describe_gpu("NVIDIA H200", tf32=True)
    outputs = 8192.0**2

    def rate(device: DeviceDescriptor, dtype: torch.dtype) -> float:
        return work / device.matmul_seconds(dtype, work, outputs)

    assert rate(plain, torch.float32) == pytest.approx(plain.peak_flops["fp32"], rel=0.02)
    assert rate(fast, torch.float32) == pytest.approx(fast.peak_flops["tf32"], rel=0.02)
    assert rate(plain, torch.bfloat16) == pytest.approx(plain.peak_flops["bf16"], rel=0.02)


def test_a_product_of_few_outputs_does_not_fill_a_gpu() -> None:
    gpu = describe_gpu("NVIDIA H200", tf32=True)
    work, outputs = 2.0 * 2048 * 429 * 128, 2048.0 * 128
    alone = gpu.matmul_seconds(torch.float32, work, outputs)
    assert alone > 2 * work / gpu.peak_flops["tf32"]
    # A batch of eight fills the device better, and a long inner product is split.
    assert gpu.matmul_seconds(torch.float32, 8 * work, 8 * outputs) < 4 * alone
    assert gpu.matmul_seconds(torch.float32, work, 1.0) < 10e-6


def test_estimates_of_products_are_near_the_measured_ones() -> None:
    path = Path(__file__).parents[2] / "data" / "devices" / "h200.json"
    rows = json.loads(path.read_text())["products"]
    for precision, middle in (("fp32", 0.15), ("tf32", 0.2), ("bf16", 0.25)):
        off = sorted(abs(error) for error in errors(rows, precision))
        assert len(off) > 200
        assert off[len(off) // 2] < middle


@pytest.mark.parametrize(
    ("name", "cores", "terabytes"),
    [
        ("NVIDIA H200", 132, 4.8),
        ("NVIDIA H100 80GB HBM3", 132, 3.35),
        ("NVIDIA H100 PCIe", 114, 2.0),
        ("NVIDIA H100 NVL", 132, 3.9),
        ("NVIDIA A100-SXM4-80GB", 108, 2.0),
        ("NVIDIA A100 80GB PCIe", 108, 2.0),
        ("NVIDIA A100-SXM4-40GB", 108, 1.555),
        ("NVIDIA L4", 58, 0.3),
    ],
)
def test_names_of_known_gpus(name: str, cores: int, terabytes: float) -> None:
    gpu = device_table.known_gpu(name)
    assert gpu is not None
    assert (gpu.cores, gpu.memory_bandwidth) == (cores, terabytes * 1e12)


@pytest.mark.parametrize("name", ["NVIDIA GH200 480GB", "NVIDIA L40S", "NVIDIA A10", "Tesla T4"])
def test_names_that_only_look_alike(name: str) -> None:
    assert device_table.known_gpu(name) is None
    with pytest.raises(LookupError, match=name):
        describe_gpu(name)


def properties(
    major: int, minor: int, cores: int, megahertz: int, memory_megahertz: int, bus: int
) -> SimpleNamespace:
    return SimpleNamespace(
        major=major,
        minor=minor,
        multi_processor_count=cores,
        clock_rate=megahertz * 1000,
        memory_clock_rate=memory_megahertz * 1000,
        memory_bus_width=bus,
        L2_cache_size=40 << 20,
    )


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("NVIDIA A100-SXM4-40GB", properties(8, 0, 108, 1410, 1215, 5120)),
        ("NVIDIA H100 80GB HBM3", properties(9, 0, 132, 1980, 2619, 5120)),
        ("NVIDIA L4", properties(8, 9, 58, 2040, 6251, 192)),
    ],
)
def test_the_rules_agree_with_the_table(name: str, shown: SimpleNamespace) -> None:
    gpu, known = device_table.derived_gpu(shown), device_table.known_gpu(name)
    assert known is not None
    assert gpu.memory_bandwidth == pytest.approx(known.memory_bandwidth, rel=0.01)
    for precision in ("fp32", "tf32", "bf16", "fp16"):
        assert gpu.flops[precision] == pytest.approx(known.flops[precision], rel=0.12)


def test_before_ampere_there_is_neither_bf16_nor_tf32(t4: DeviceDescriptor) -> None:
    assert t4.peak_flops["bf16"] == t4.peak_flops["tf32"] == t4.peak_flops["fp32"]
    assert t4.peak_flops["fp16"] > 4 * t4.peak_flops["fp32"]


def test_a_driver_that_tells_little() -> None:
    bare = SimpleNamespace(major=99, minor=0, multi_processor_count=10)
    gpu = describe_gpu("Future GPU", bare)
    assert gpu.memory_bandwidth > 0
    assert gpu.cache_bytes > 0
    assert min(gpu.peak_flops.values()) > 0


def test_a_slice_of_a_gpu_gets_its_share() -> None:
    whole = describe_gpu("NVIDIA H200")
    part = describe_gpu("NVIDIA H200 MIG 3g.71gb", properties(9, 0, 66, 1980, 3201, 6144))
    assert part.cores == 66
    assert part.memory_bandwidth == pytest.approx(whole.memory_bandwidth / 2)
    assert part.peak_flops["bf16"] == pytest.approx(whole.peak_flops["bf16"] / 2)


def test_other_devices_are_refused() -> None:
    with pytest.raises(ValueError, match="'meta'"):
        describe(torch.device("meta"))


# ---- how far to trust the figures


def test_figures_that_nobody_measured_are_less_sure(t4: DeviceDescriptor) -> None:
    measured, table = describe_gpu("NVIDIA H200"), describe_gpu("NVIDIA H100 PCIe")
    sources = [device.source for device in (measured, table, t4)]
    assert sources == [Source.MEASURED, Source.TABLE, Source.DERIVED]
    assert measured.error == table.error < t4.error
    assert describe_cpu("AVX512", 2, "CPU", 1 << 25).source is Source.TABLE
    assert describe_cpu("SVE256", 2, "CPU", 1 << 25).source is Source.DERIVED


def test_what_a_split_product_loses_goes_with_launches() -> None:
    gpu = describe_gpu("NVIDIA H200")
    quick = replace(gpu, extern_launch=gpu.extern_launch / 2)
    work = 2.0 * 1e6
    assert gpu.matmul_seconds(torch.float32, work, 1.0) > 5e-6
    assert quick.matmul_seconds(torch.float32, work, 1.0) < 2.6e-6


def test_fresh_memory_costs_what_the_device_says() -> None:
    cpu = describe_cpu("AVX2", 2, "CPU", 1 << 25)
    slow = replace(cpu, fresh_bandwidth=cpu.fresh_bandwidth / 2)
    large = float(64 << 20)
    assert slow.allocation_seconds(large) == 2 * cpu.allocation_seconds(large) > 0
    assert describe_gpu("NVIDIA H200").allocation_seconds(large) == 0

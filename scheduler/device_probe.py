"""Measures a device in a few seconds: `passwright doctor --probe`.

What is timed stands in for what Inductor's code does: its generated kernels move bytes as `add` does,
and its wrapper calls libraries from Python. The best of many tries counts, for whatever else runs on the
machine can only make things slower. How far a usual try is from the best tells whether something did; so
does, on a CPU, how often threads had to make room, since with one of them gone no try is good.
"""

from __future__ import annotations

import datetime as dt
import math
import resource
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from passwright.passes.errors import cause
from passwright.scheduler import device_table as table
from passwright.scheduler.device import DeviceDescriptor, assumed, with_probe
from passwright.scheduler.device_store import Probed
from passwright.scheduler.device_trials import Timer, Trial, cpu_tries, gpu_tries
from passwright.scheduler.toolchain import gpu_driver

#: Rows, inner length and columns of the products tried, smallest first; the best rate counts.
_CPU_PRODUCTS = ((256, 256, 256), (512, 429, 128), (2048, 1024, 1024))
_GPU_PRODUCTS = ((1024, 1024, 1024), (4096, 4096, 4096), (8192, 8192, 8192))
_DTYPES = {
    "fp64": torch.float64,
    "fp32": torch.float32,
    "tf32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
}
#: A larger product is not tried if it would take longer than this, by the rate of the last.
_LONGEST = 0.03
#: Bytes of the array that is copied through memory, at most.
_LARGE = 512 << 20
#: Bytes of memory that was not used before: more than malloc ever keeps (`CPU_ALWAYS_FRESH_BYTES`).
_FRESH = 64 << 20
#: Exponentials in one call, and small products in one batched product.
_EXPONENTIALS, _ITEMS = 1 << 18, 1024
#: Something else seems to use the device where a usual try takes longer than the shortest by more than this
#: part of it (in the worst trial on a GPU, in a usual one on a CPU), and where a thread of a CPU makes room
#: more often than this in a second. Limits that we chose: no file holds trials that they were taken from.
BUSY, CROWDED = 0.25, 10.0


_NO_MEMORY = "{} has no memory left to measure with; end what else runs on it, and probe again"


class ProbeError(RuntimeError):
    """The device cannot be measured now; the message says why, and what to do about it."""


@dataclass(frozen=True)
class Probe:
    """What was measured, beside what is assumed of the device otherwise."""

    assumed: DeviceDescriptor
    probed: Probed
    #: Figures that could not be measured, with the reason.
    left: tuple[str, ...]
    seconds: float
    #: How often a second each thread had to make room for another program's (several threads of a CPU).
    crowding: float = 0.0

    @property
    def measured(self) -> DeviceDescriptor:
        return with_probe(self.assumed, self.probed)

    @property
    def busy(self) -> bool:
        """Something else seems to have used the device: the figures are not to be trusted."""
        return self.probed.spread > BUSY or self.crowding > CROWDED


def probe(device: torch.device, step: Callable[[str], None] = lambda _: None) -> Probe:
    """Measures the device, in less than 10 seconds. `step` is told what is measured next.

    Raises ProbeError where that is impossible: no memory is left on it, or its driver fails.
    """
    start, crowded = time.perf_counter(), _made_room()
    with _said(device):
        known = assumed(device)
        if device.type == "cuda":
            with torch.cuda.device(device):
                room = torch.cuda.mem_get_info(device)[0]
                measuring = Measuring(known, device, gpu_tries, step, room)
                found = measuring.all()
        else:
            measuring = Measuring(known, device, cpu_tries, step)
            found = measuring.all()
    probed = replace(
        found,
        torch=torch.__version__,
        driver=gpu_driver() if device.type == "cuda" else "",
        date=dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    )
    seconds = time.perf_counter() - start
    # One thread alone waits for no other: some of its tries are undisturbed.
    together = device.type == "cpu" and known.cores > 1
    crowding = (_made_room() - crowded) / seconds / known.cores if together else 0.0
    return Probe(known, probed, tuple(measuring.left), seconds, crowding)


@contextmanager
def _said(device: torch.device) -> Iterator[None]:
    """What goes wrong on the device inside is a ProbeError; memory taken there is given back."""
    try:
        yield
    except RuntimeError as error:
        # CUDA may run out of memory before torch's allocator, which has an error of its own, is asked.
        if isinstance(error, torch.OutOfMemoryError) or "out of memory" in str(error):
            raise ProbeError(_NO_MEMORY.format(device)) from error
        raise ProbeError(f"{device} cannot be measured: {cause(error)}") from error
    finally:
        if device.type == "cuda":
            with suppress(RuntimeError):  # of a context that is broken
                torch.cuda.empty_cache()


def _made_room() -> int:
    """How often threads of this process had to stop for others so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


def steps_of(device: torch.device) -> int:
    """How many steps `probe` tells of. Raises as it does."""
    with _said(device):
        known = assumed(device)
    return 3 + len(_DTYPES) - (not _has_tf32(known)) + 3 * (known.kind == "cpu")


def _has_tf32(known: DeviceDescriptor) -> bool:
    return known.kind == "cuda" and known.peak_flops["tf32"] > known.peak_flops["fp32"]


class Measuring:
    """One probe: what is timed, and which figures follow from it."""

    def __init__(
        self,
        known: DeviceDescriptor,
        device: torch.device,
        timer: Timer,
        step: Callable[[str], None] = lambda _: None,
        room: float = math.inf,
    ) -> None:
        """`known`: what is assumed of the device, and stays where nothing is measured. `room`: bytes."""
        self.known, self.device, self.room = known, device, room
        self.on_cuda = known.kind == "cuda"
        self.step, self._timer = step, timer
        self.left: list[str] = []
        #: Seconds that launching a trial takes, where these are no part of what it does.
        self._launch = 0.0
        self._spreads: list[float] = []

    def all(self) -> Probed:
        """Every figure that can be measured on such a device."""
        with torch.no_grad():
            figures = self._launches()
            figures |= self._bandwidths()
            rates = dict(self._rates())
            if not self.on_cuda:
                figures |= self._cpu_figures(figures["extern_launch"])
        # On a GPU a program that shares it disturbs a few trials, and much; on a CPU all are a bit uneven.
        usual = max(self._spreads) if self.on_cuda else statistics.median(self._spreads)
        known = self.known
        return Probed(known.kind, known.name, known.cores, figures, rates, round(usual, 4))

    def _time(self, trial: Trial) -> float:
        found = self._timer(trial)
        self._spreads.append(found.spread)
        return found.best

    def _empty(self, count: int) -> Tensor:
        return torch.empty(count, device=self.device)

    def _launches(self) -> dict[str, float]:
        """One more kernel, generated or of a library, that does next to nothing."""
        self.step("launches")
        x = torch.randn(8, 8, device=self.device)
        added = self._time(Trial(lambda: torch.add(x, 1)))
        out = partial(torch.empty_like, x)
        called = self._time(Trial(lambda: torch.addmm(x[0], x, x, out=out()), library=True))
        if self.on_cuda:
            self._launch = added
            return {
                "fused_launch": added * table.GPU_FUSED_LAUNCH / table.GPU_PROBED_FUSED,
                "extern_launch": called * table.GPU_EXTERN_LAUNCH / table.GPU_PROBED_EXTERN,
            }
        return {
            "fused_launch": added * table.CPU_NEST_SHARE,
            "extern_launch": called,
            # Calling a graph is Python and dispatch, as calling a library is: as much faster or slower.
            "call_seconds": self.known.call_seconds * called / table.CPU_EXTERN_LAUNCH,
        }

    def _bandwidths(self) -> dict[str, float]:
        """Of arrays that lie in the cache, and of those that do not."""
        cache = self.known.cache_bytes
        self.step("cache")
        cached = self._move(cache // (3 if self.on_cuda else 8), self._launch)
        self.step("memory")
        large = (
            min(_LARGE, self.room / 8) if self.on_cuda else max(min(4 * cache, 256 << 20), 64 << 20)
        )
        return {"cache_bandwidth": cached, "memory_bandwidth": self._move(int(large), 0.0)}

    def _move(self, size: int, launch: float) -> float:
        """Bytes read and written per second by `x + 1` of so many bytes; launching it does not count."""
        source = self._empty(size // 4).fill_(1.0)
        target = torch.empty_like(source)
        took = self._time(Trial(lambda: torch.add(source, 1, out=target), moved=2.0 * size))
        return 2 * size / max(took - launch, took / 4)

    def _rates(self) -> Iterator[tuple[str, float]]:
        """Operations per second of large products in each precision."""
        for precision, dtype in _DTYPES.items():
            if precision == "tf32" and not _has_tf32(self.known):
                continue
            self.step(f"products in {precision}")
            # 16 and 64 bits can be slow on a CPU: one size has to do.
            few = not self.on_cuda and precision != "fp32"
            sizes = _GPU_PRODUCTS if self.on_cuda else _CPU_PRODUCTS[1:2] if few else _CPU_PRODUCTS
            try:
                rate = self._best_rate(precision, dtype, sizes)
            except torch.OutOfMemoryError:
                raise
            except RuntimeError as error:  # no such products on this device
                self.left.append(f"{precision}: {cause(error)}")
                continue
            yield precision, rate
            if precision == "fp32" and not _has_tf32(self.known):
                yield "tf32", rate

    def _best_rate(
        self, precision: str, dtype: torch.dtype, sizes: tuple[tuple[int, int, int], ...]
    ) -> float:
        best = 0.0
        for rows, inner, columns in sizes:
            work = 2.0 * rows * inner * columns
            needed = dtype.itemsize * (rows * inner + inner * columns + rows * columns)
            if best and (work / best > _LONGEST or needed > self.room / 4):
                break
            left = torch.randn(rows, inner, device=self.device).to(dtype)
            right = torch.randn(inner, columns, device=self.device).to(dtype)
            out = torch.empty(rows, columns, device=self.device, dtype=dtype)
            with _tf32(precision):
                call = partial(torch.mm, left, right, out=out)
                took = self._time(Trial(call, work=work, precision=precision, library=True))
            best = max(best, work / took)
        return best

    def _cpu_figures(self, launch: float) -> dict[str, float]:
        self.step("exponentials")
        x, y = (self._empty(_EXPONENTIALS).fill_(0.5) for _ in range(2))
        exponential = self._time(Trial(lambda: torch.exp(x, out=y))) / _EXPONENTIALS
        self.step("batched products")
        left, right = torch.randn(_ITEMS, 4, 8), torch.randn(_ITEMS, 8, 4)
        batched = self._time(Trial(lambda: torch.bmm(left, right), library=True))
        self.step("fresh memory")
        used = torch.empty(_FRESH // 4)
        fresh = self._time(Trial(lambda: torch.empty(_FRESH // 4).fill_(1.0)))
        again = self._time(Trial(lambda: used.fill_(1.0)))
        return {
            "exp_rate": 1 / exponential,
            "item_seconds": max(batched - launch, batched / 4) / _ITEMS,
            "fresh_bandwidth": _FRESH / max(fresh - again, fresh / 100),
        }


@contextmanager
def _tf32(precision: str) -> Iterator[None]:
    """Products of float32 use TF32 inside if that is the precision, else not."""
    matmul = torch.backends.cuda.matmul
    before = matmul.fp32_precision
    matmul.fp32_precision = "tf32" if precision == "tf32" else "ieee"
    try:
        yield
    finally:
        matmul.fp32_precision = before

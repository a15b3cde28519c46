"""Builds the samples of records, workloads side by side in worker processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import TYPE_CHECKING

from passwright.training.labels import by_graph
from passwright.training.records import Record
from passwright.training.samples import WorkloadSamples

if TYPE_CHECKING:
    from passwright.scheduler.device import DeviceDescriptor


#: Of a CPU, whose records do not say how much it has.
_CACHE = 32 << 20


@dataclass(frozen=True)
class Built:
    """What was built, in the order of the records; and of what could not be, name and reason."""

    samples: tuple[WorkloadSamples, ...]
    missing: tuple[tuple[str, str], ...]


def build_samples(
    records: Sequence[Record],
    *,
    jobs: int = 1,
    done: Callable[[str], None] = lambda _: None,
    build: Callable[[list[Record]], WorkloadSamples] | None = None,
) -> Built:
    """Of all records, floors included as they are. `done` gets a line about each workload.

    A workload that cannot be had here, is another one with this version of torch, or ends the process that
    builds it (as one does that takes too much memory) is left out. `build` makes the samples of one, in a
    process of its own.
    """
    run = _Building(by_graph(records), build or _build, done)
    left = run.go(range(len(run.groups)), jobs)
    while left:
        # Some process ended, and all had to. One after the other it is known whose fault it is.
        left = run.go(left, 1)
        if left:
            run.miss(left.pop(0), "its process ended, for want of memory perhaps")
    return Built(
        tuple(run.found[number] for number in sorted(run.found)),
        tuple(run.missing[number] for number in sorted(run.missing)),
    )


class _Building:
    """What was built so far, by the number of its group."""

    def __init__(
        self,
        groups: Sequence[list[Record]],
        build: Callable[[list[Record]], WorkloadSamples],
        done: Callable[[str], None],
    ) -> None:
        self.groups, self._build, self._done = groups, build, done
        self.found: dict[int, WorkloadSamples] = {}
        self.missing: dict[int, tuple[str, str]] = {}

    def go(self, numbers: Sequence[int], jobs: int) -> list[int]:
        """Builds these groups, in their order; those that came to nothing since a process ended."""
        from passwright.training.processes import spawning

        lost: list[int] = []
        with ProcessPoolExecutor(jobs, spawning(), _begin) as pool:
            asked: dict[Future[WorkloadSamples], int] = {
                pool.submit(self._build, self.groups[number]): number for number in numbers
            }
            try:
                for future in as_completed(asked):
                    number = asked[future]
                    try:
                        found = self.found[number] = future.result()
                        self._done(f"{found.workload}: {len(found.plans)} plans")
                    except BrokenProcessPool:
                        lost.append(number)
                    except Exception as error:  # models and tracing may raise anything
                        self.miss(number, f"{type(error).__name__}: {str(error)[:200]}")
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        return sorted(lost)

    def miss(self, number: int, why: str) -> None:
        """The group is left out."""
        name = self.groups[number][0].workload
        self.missing[number] = (name, why)
        self._done(f"{name}: {why}")


def device_of(record: Record, *, tf32: bool) -> DeviceDescriptor:
    """The descriptor of the device that a record names, as it was there."""
    from passwright.scheduler import device as devices
    from passwright.training.data_replay import on_gpu

    if on_gpu(record):
        return devices.describe_gpu(record.device, tf32=tf32)
    described, _, threads = record.device.rpartition(", ")
    name, _, capability = described.rpartition(" ")
    count = int(threads.removesuffix(" threads"))
    return devices.describe_cpu(capability, threads=count, name=name, cache_bytes=_CACHE)


def _begin() -> None:
    import torch

    from passwright.training.processes import end_with_parent

    end_with_parent()
    torch.set_num_threads(1)


def _build(group: list[Record]) -> WorkloadSamples:
    import torch

    from passwright.training.as_gpu import as_on_gpu
    from passwright.training.data_replay import on_gpu
    from passwright.training.samples import samples_of
    from passwright.training.workloads.capture import captured
    from passwright.training.workloads.exact import build_exact
    from passwright.training.workloads.spec import Spec

    first = group[0]
    spec = Spec.parse(first.workload)
    torch.set_float32_matmul_precision(spec.matmul_precision)
    module, inputs = build_exact(first.workload, torch.device("cpu"))
    graphs = captured(module, inputs, train=first.train)
    gpu = any(map(on_gpu, group))
    for graph in graphs if gpu else ():
        as_on_gpu(graph.graph)
    known = next((record for record in group if on_gpu(record)), first)
    device = device_of(known, tf32=spec.matmul_precision != "highest")
    return samples_of(group, graphs, device)

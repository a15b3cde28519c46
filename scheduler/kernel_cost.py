"""How long Inductor's kernels take, estimated: what a launch, a byte and an operation cost, and what
it costs or saves to run kernels together.

After S. Williams et al., "Roofline" (CACM 2009), as in `cost.py`, but over the kernels themselves: what
each of them reads and writes is known here, and nothing has to be guessed about fusion.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

from passwright.passes.inductor.combine_kernels import CombineKernels
from passwright.passes.inductor.fuse_siblings import FuseSiblings
from passwright.passes.inductor.keep_cats_apart import KeepCatsApart
from passwright.passes.inductor.kernels import Kernel, KernelKind, KernelView
from passwright.passes.inductor.pattern import KernelCandidate
from passwright.scheduler.device import DeviceDescriptor
from passwright.scheduler.estimate import Estimate, Seconds, gain_between
from passwright.scheduler.gain import Interval

#: Seconds that a member adds to the launch of its group: each block looks for its kernel in a chain of
#: comparisons. This and what follows was measured on an H200, `data/devices/groups-h200.json` (made by
#: `python -m passwright.training.grouping_sweep`): 16 kernels of 4,096 elements take 1.6 us, 4 take 1.4.
MEMBER_SECONDS = 0.02e-6
#: Elements for which each part of a cat is asked whether it is its, per second; of a GPU with so many
#: multiprocessors as an H200. 5 to 7 of 26 parts, twice as many of 64.
CAT_RATE = 6e12
#: Longest row that a reduction holds as a whole, as in `codegen/triton.py`. Over a longer one it walks
#: several times and computes the cat each time: 2.4 times what the cat takes alone.
PERSISTENT = 1024
PASSES = 2.4
_H200_CORES = 132
_NO_GAIN = Interval(0.0, 0.0, 0.0)


class KernelCost:
    """Estimates the kernels of one graph on one device, and what choices about them gain."""

    def __init__(self, view: KernelView, device: DeviceDescriptor) -> None:
        self.view = view
        self.device = device
        self._parts = {kernel.address: self.seconds(kernel) for kernel in view}

    @property
    def estimate(self) -> Estimate:
        """One run of all kernels."""
        return self._estimate_of(dict(self._parts))

    def seconds(self, kernel: Kernel) -> Seconds:
        """One kernel alone."""
        if kernel.kind is KernelKind.OTHER:
            return Seconds()
        traffic = kernel.moved / self.device.bandwidth_for(kernel.moved)
        if kernel.generated:
            cat = self._cat_seconds(kernel)
            return Seconds(self.device.fused_launch, max(0.0, cat - traffic), traffic)
        dtype = getattr(torch, kernel.dtype, torch.float32)
        compute = self.device.matmul_seconds(dtype, kernel.flops, kernel.elements)
        return Seconds(self.device.extern_launch, compute if kernel.flops else 0.0, traffic)

    def gain(self, candidate: KernelCandidate) -> Interval:
        """log(before / after) of the whole graph's kernels, with a 90 % interval."""
        members = candidate.match.members
        pattern = candidate.pattern
        if isinstance(pattern, CombineKernels):
            after = self._combined(members)
        elif isinstance(pattern, FuseSiblings):
            after = self._fused(members)
        elif isinstance(pattern, KeepCatsApart):
            return self._apart(*members)
        else:
            return _NO_GAIN  # somebody else's pattern: measured or not at all
        return self._instead(members, after)

    def _instead(self, members: Iterable[Kernel], after: Seconds) -> Interval:
        before = self.estimate
        parts = dict(before.parts)
        first, *rest = members
        for kernel in rest:
            del parts[kernel.address]
        parts[first.address] = after
        return gain_between(before, self._estimate_of(parts))

    def _combined(self, members: tuple[Kernel, ...]) -> Seconds:
        """One launch, in which every member has blocks of its own."""
        together = self._fused(members)
        return together.plus(Seconds(MEMBER_SECONDS * len(members)))

    def _fused(self, members: tuple[Kernel, ...]) -> Seconds:
        """One launch, in which every thread computes all members."""
        alone = [self._parts[kernel.address] for kernel in members]
        arithmetic = sum(part.arithmetic for part in alone)
        return Seconds(self.device.fused_launch, arithmetic, sum(part.traffic for part in alone))

    def _apart(self, producer: Kernel, consumer: Kernel) -> Interval:
        """A cat that is written and read, against one that is computed in every pass of a reduction."""
        cat, reduction = self._parts[producer.address], self._parts[consumer.address]
        passes = PASSES if consumer.reduced > PERSISTENT else 1.0
        # Half of what a cat moves it reads, and the other half the reduction need not read.
        traffic = cat.traffic / 2 + max(0.0, reduction.traffic - cat.traffic / 2)
        inside = Seconds(
            reduction.launch,
            reduction.arithmetic + max(0.0, passes * self._cat_seconds(producer) - traffic),
            traffic,
        )
        after = dict(self._parts)
        before = {key: part for key, part in after.items() if key != producer.address}
        before[consumer.address] = inside
        return gain_between(self._estimate_of(before), self._estimate_of(after))

    def _estimate_of(self, parts: dict[str, Seconds]) -> Estimate:
        return Estimate(parts, len(parts), self.device.call_seconds, self.device.error)

    def _cat_seconds(self, kernel: Kernel) -> float:
        """What asking for the parts of a cat takes."""
        if kernel.parts < 2 or self.device.kind != "cuda":
            return 0.0
        rate = CAT_RATE * self.device.cores / _H200_CORES
        return kernel.elements * kernel.reduced * kernel.parts / rate

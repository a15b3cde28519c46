"""Pointwise kernels over the same number of elements become one loop, though they share no data."""

from __future__ import annotations

from collections.abc import Iterator

from passwright.passes.inductor.kernels import Kernel, KernelKind, KernelView
from passwright.passes.inductor.pattern import KernelEditor, KernelMatch, KernelPattern

#: Values that a loop holds at a time cost registers: Inductor's own bound is 64 nodes.
MOST = 8
MAX_ARGUMENTS = 48


class FuseSiblings(KernelPattern):
    """Pointwise kernels of one size that do not wait for each other are computed by one loop.

    for i: a[i] = f(x[i]);  for i: b[i] = g(y[i])   ==>   for i: a[i] = f(x[i]); b[i] = g(y[i])

    Inductor fuses only kernels that share data (`aggressive_fusion` would fuse all). A rival of
    combine_kernels for kernels of equal size: no block searches for its kernel, but each holds more.
    """

    conditions = ("no member waits for another", "the same number of elements", "nothing reduced")

    def matches(self, view: KernelView) -> Iterator[KernelMatch]:
        levels = view.earliest()
        groups: dict[tuple[int, str, int], list[Kernel]] = {}
        for kernel in view:
            if kernel.kind is KernelKind.POINTWISE and not kernel.parts and not kernel.bound:
                key = (levels[kernel.address], kernel.device, kernel.elements)
                groups.setdefault(key, []).append(kernel)
        for group in groups.values():
            for start in range(0, len(group) - 1, MOST):
                part = group[start : start + MOST]
                if len(part) > 1 and sum(k.arguments for k in part) <= MAX_ARGUMENTS:
                    yield KernelMatch(tuple(part))

    def apply(self, m: KernelMatch, edit: KernelEditor) -> None:
        edit.fuse(m.members)

"""Small kernels that do not wait for each other share one launch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from passwright.passes.inductor.kernels import Kernel, KernelKind, KernelView
from passwright.passes.inductor.pattern import KernelEditor, KernelMatch, KernelPattern
from passwright.passes.pattern import Exactness

#: Most kernels that one launch takes, as candidates of their own: every block looks for its kernel in a
#: chain of comparisons, and all take the block size of the hungriest.
SIZES = (4, 8, 16)
MOST = 16
#: As in `codegen/triton_combo_kernel.py`: Inductor splits a group with more buffers than this, and
#: keeps reductions of long rows by themselves.
MAX_ARGUMENTS = 250
LONG_ROW = 2048
#: Larger kernels stay by themselves: what they move outweighs the launch that is saved, and a group of
#: large reductions can take many times as long. Measured on an H200 (`data/devices/groups-h200.json`): 16
#: softmaxes of 2048x256 are 1.5 times as fast together, of 2048x1024 2.4 times as slow.
LARGE = {KernelKind.POINTWISE: 1 << 20, KernelKind.REDUCTION: 1 << 19}
LARGE_BYTES = 8 << 20


class CombineKernels(KernelPattern):
    """Kernels of one kind that do not wait for each other become one launch, each in its own blocks.

    k1(a); k2(b); k3(c)   ==>   k1(a) | k2(b) | k3(c)

    Known as combo kernels in Inductor, which groups whatever is ready at the same time. Here each group
    is a choice: kernels may wait for others that come later, unlike ones stay apart, and so do large
    ones, that have nothing to gain.
    """

    exactness = Exactness.REASSOCIATING
    conditions = ("no member waits for another", "small kernels of one kind on one device")

    def matches(self, view: KernelView) -> Iterator[KernelMatch]:
        seen: set[tuple[str, ...]] = set()
        for form, levels in (("early", view.earliest()), ("level", balanced(view))):
            for group in _groups(view, levels):
                for members in _parts(group):
                    addresses = tuple(kernel.address for kernel in members)
                    if addresses not in seen:
                        seen.add(addresses)
                        yield KernelMatch(tuple(members), form)

    def apply(self, m: KernelMatch, edit: KernelEditor) -> None:
        edit.combine(m.members)


def combinable(kernel: Kernel) -> bool:
    """Small, and of a kind that Inductor can put beside others."""
    if kernel.kind is KernelKind.REDUCTION and kernel.reduced > LONG_ROW:
        return False
    if not kernel.generated or kernel.bound:
        return False
    return kernel.elements * kernel.reduced <= LARGE[kernel.kind] and kernel.moved <= LARGE_BYTES


def balanced(view: KernelView) -> dict[str, int]:
    """A level for each kernel between its earliest and its latest, where most of its kind are.

    Kernels are placed in order, those without choice first; whatever reads a kernel stays later.
    """
    earliest, latest = view.earliest(), view.latest()
    crowd: Counter[tuple[object, ...]] = Counter()
    for kernel in view:
        if combinable(kernel) and earliest[kernel.address] == latest[kernel.address]:
            crowd[_kind(kernel), earliest[kernel.address]] += 1
    placed: dict[str, int] = {}
    for kernel in sorted(view, key=lambda k: earliest[k.address]):
        after = max((placed[p.address] + 1 for p in view.producers(kernel)), default=0)
        last = latest[kernel.address]
        chosen = after
        if combinable(kernel) and after < last:
            chosen = max(range(after, last + 1), key=lambda n: (crowd[_kind(kernel), n], -n))
        placed[kernel.address] = chosen
        if combinable(kernel) and earliest[kernel.address] != last:
            crowd[_kind(kernel), chosen] += 1
    return placed


def _kind(kernel: Kernel) -> tuple[object, ...]:
    """Kernels of one kind may share a launch; reductions must reduce as much, since they get one block
    size: sums over 16 and over 1,024 gained 1.1x together where equal ones gained 4x."""
    return (kernel.kind, kernel.device, kernel.reduced)


def _groups(view: KernelView, levels: Mapping[str, int]) -> Iterator[list[Kernel]]:
    """Kernels of one kind at one level, like sizes beside each other."""
    groups: dict[tuple[object, ...], list[Kernel]] = {}
    for kernel in view:
        if combinable(kernel):
            groups.setdefault((levels[kernel.address], *_kind(kernel)), []).append(kernel)
    for group in groups.values():
        if len(group) > 1:
            yield sorted(group, key=lambda k: (k.reduced, k.elements))


def _parts(group: Sequence[Kernel]) -> Iterator[Sequence[Kernel]]:
    """The whole group, and its parts of each size."""
    if len(group) <= MOST and sum(kernel.arguments for kernel in group) <= MAX_ARGUMENTS:
        yield group
    for size in SIZES:
        if size < len(group):
            for start in range(0, len(group) - 1, size):
                part = group[start : start + size]
                if len(part) > 1 and sum(k.arguments for k in part) <= MAX_ARGUMENTS:
                    yield part

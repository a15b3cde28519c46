"""The third IR level as patterns see it: kernels that Inductor is about to generate, and what waits for
what.

Plain data, so that everything that thinks about kernels runs without a GPU and without Inductor.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any

from passwright.passes.address import digest


class KernelKind(StrEnum):
    """What becomes of a scheduler node."""

    POINTWISE = "pointwise"
    REDUCTION = "reduction"
    #: A product or convolution from one of Inductor's templates, with what is fused into it.
    TEMPLATE = "template"
    #: A call of a library.
    EXTERN = "extern"
    #: Anything else: nothing at all, a group that is there already, a user's own kernel.
    OTHER = "other"


GENERATED = frozenset({KernelKind.POINTWISE, KernelKind.REDUCTION})


@dataclass(frozen=True)
class Kernel:
    """One node of Inductor's scheduler, before or after fusion.

    `elements` counts what is computed apart from the reduced dims, `reduced` the elements that each
    of them sums up (1 if nothing is reduced); `moved` the bytes read and written; `arguments` the
    buffers. `parts`: the inputs of the largest cat that is computed in it, each masked.
    """

    #: Hash of what is computed and from what; the same in every process.
    address: str
    kind: KernelKind
    device: str
    elements: int
    reduced: int = 1
    moved: int = 0
    arguments: int = 0
    parts: int = 0
    flops: int = 0
    dtype: str = ""
    #: It may share a launch with nothing, whatever it is.
    bound: bool = False
    #: For readers: the ops that it came from.
    ops: tuple[str, ...] = ()
    #: Inductor's node.
    node: Any = field(default=None, compare=False, repr=False)

    @property
    def generated(self) -> bool:
        """Inductor writes it, in Triton or C++."""
        return self.kind in GENERATED

    @property
    def line(self) -> str:
        """`reduction 2048x64 (mean, rsqrt)`."""
        size = f"{self.elements}x{self.reduced}" if self.reduced > 1 else str(self.elements)
        return f"{self.kind} {size} ({', '.join(self.ops)})"


class KernelView:
    """Kernels in an order in which they can run, and from which others each of them reads."""

    def __init__(
        self, kernels: Sequence[Kernel], producers: Mapping[str, Iterable[str]] | None = None
    ) -> None:
        """`producers` maps the address of a kernel to those of the kernels that it waits for."""
        self.kernels = tuple(kernels)
        self.by_address = {kernel.address: kernel for kernel in self.kernels}
        if len(self.by_address) < len(self.kernels):
            raise ValueError("two kernels have the same address")
        self._producers = {
            k.address: tuple(dict.fromkeys((producers or {}).get(k.address, ())))
            for k in self.kernels
        }
        self._consumers: dict[str, list[str]] = {k.address: [] for k in self.kernels}
        for address, sources in self._producers.items():
            for source in sources:
                self._consumers[source].append(address)

    @cached_property
    def fingerprint(self) -> str:
        """Of all kernels and how they hang together."""
        edges = (f"{a}<{','.join(sorted(p))}" for a, p in sorted(self._producers.items()))
        return digest("kernels", *edges) + digest("edges", len(self.kernels), *edges)

    def producers(self, kernel: Kernel) -> list[Kernel]:
        return [self.by_address[address] for address in self._producers[kernel.address]]

    def consumers(self, kernel: Kernel) -> list[Kernel]:
        return [self.by_address[address] for address in self._consumers[kernel.address]]

    def earliest(self) -> dict[str, int]:
        """Of each kernel how many kernels must run one after the other before it."""
        levels: dict[str, int] = {}
        for address in self._sorted():
            sources = self._producers[address]
            levels[address] = 1 + max((levels[s] for s in sources), default=-1)
        return levels

    def latest(self) -> dict[str, int]:
        """The same counted from the end: the level at which each must run at the latest, if no more
        levels are to be there than must be."""
        depth = max(self.earliest().values(), default=0)
        levels: dict[str, int] = {}
        for address in reversed(self._sorted()):
            users = self._consumers[address]
            levels[address] = min((levels[u] for u in users), default=depth + 1) - 1
        return levels

    def _sorted(self) -> list[str]:
        """Topological order that keeps to the given one where it can (Kahn, 1962)."""
        waiting = {address: len(sources) for address, sources in self._producers.items()}
        ready = deque(address for address, count in waiting.items() if not count)
        found: list[str] = []
        while ready:
            address = ready.popleft()
            found.append(address)
            for user in self._consumers[address]:
                waiting[user] -= 1
                if not waiting[user]:
                    ready.append(user)
        if len(found) < len(self.kernels):
            raise ValueError("kernels wait for each other")
        return found

    def acyclic_with(self, groups: Iterable[Sequence[Kernel]]) -> bool:
        """Whether an order is left if each group runs as one kernel."""
        home = {k.address: k.address for k in self.kernels}
        for group in groups:
            for kernel in group:
                home[kernel.address] = group[0].address
        edges: dict[str, set[str]] = {}
        waiting: Counter[str] = Counter()
        for address, sources in self._producers.items():
            here = home[address]
            for source in sources:
                there = home[source]
                if there == here:
                    return False  # a member waits for another
                if here not in edges.setdefault(there, set()):
                    edges[there].add(here)
                    waiting[here] += 1
        ready = [address for address in set(home.values()) if not waiting[address]]
        done = 0
        while ready:
            done += 1
            for user in edges.get(ready.pop(), ()):
                waiting[user] -= 1
                if not waiting[user]:
                    ready.append(user)
        return done == len(set(home.values()))

    def __iter__(self) -> Iterator[Kernel]:
        return iter(self.kernels)

    def __len__(self) -> int:
        return len(self.kernels)

"""Kernels for tests of Inductor-IR, without Inductor."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from passwright.passes.errors import IllegalRewrite
from passwright.passes.inductor.kernels import Kernel, KernelKind, KernelView


def kernel(name: str, kind: str = "pointwise", **facts: object) -> Kernel:
    """A small kernel on a GPU."""
    usual: dict[str, object] = {"elements": 2048, "moved": 16384, "arguments": 2}
    return Kernel(name, KernelKind(kind), "cuda:0", **{**usual, **facts})  # type: ignore[arg-type]


def chains(*lengths: int) -> KernelView:
    """Independent chains of pointwise kernels: `a0 <- a1 <- ...`, `b0 <- ...`."""
    kernels, producers = [], {}
    for letter, length in zip("abcdefghijklmnopqrstuvwxyz", lengths, strict=False):
        for number in range(length):
            kernels.append(kernel(f"{letter}{number}"))
            if number:
                producers[f"{letter}{number}"] = [f"{letter}{number - 1}"]
    return KernelView(kernels, producers)


class Recorder:
    """A KernelEditor that notes what it is asked for, and refuses what it is told to."""

    def __init__(self, refuse: Iterable[str] = ()) -> None:
        self.done: list[tuple[str, tuple[str, ...]]] = []
        self._refuse = set(refuse)

    def combine(self, members: Sequence[Kernel]) -> None:
        self._note("combine", members)

    def fuse(self, members: Sequence[Kernel]) -> None:
        self._note("fuse", members)

    def keep_apart(self, producer: Kernel, consumer: Kernel) -> None:
        self._note("keep_apart", (producer, consumer))

    def _note(self, what: str, members: Sequence[Kernel]) -> None:
        if what in self._refuse:
            raise IllegalRewrite(f"no {what} here")
        self.done.append((what, tuple(k.address for k in members)))

"""What a pattern of Inductor-IR is: a choice about kernels that are about to be made."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import ClassVar, Protocol

from passwright.passes.address import digest
from passwright.passes.inductor.kernels import Kernel, KernelView
from passwright.passes.pattern import Exactness, name_of


class When(StrEnum):
    """At which point of Inductor's scheduling a choice is made."""

    BEFORE_FUSION = "before fusion"
    AFTER_FUSION = "after fusion"


@dataclass(frozen=True)
class KernelMatch:
    """Kernels that a choice is about, in the order of the graph; `form` tells alike choices apart."""

    members: tuple[Kernel, ...]
    form: str = ""


class KernelEditor(Protocol):
    """What can be done to kernels. Each raises IllegalRewrite, and does nothing, if it cannot be."""

    def combine(self, members: Sequence[Kernel]) -> None:
        """One launch runs all of them, each in blocks of its own."""

    def fuse(self, members: Sequence[Kernel]) -> None:
        """One loop computes all of them."""

    def keep_apart(self, producer: Kernel, consumer: Kernel) -> None:
        """Inductor may not fuse these two."""


class KernelPattern(ABC):
    """A family of choices about kernels, none of which changes a value."""

    when: ClassVar[When] = When.AFTER_FUSION
    #: Kinds of device on which the choice means anything.
    devices: ClassVar[frozenset[str]] = frozenset({"cuda"})
    exactness: ClassVar[Exactness] = Exactness.BITWISE
    conditions: ClassVar[tuple[str, ...]] = ()

    @classmethod
    @cache
    def name(cls) -> str:
        """`CombineKernels` is called combine_kernels."""
        return name_of(cls)

    @abstractmethod
    def matches(self, view: KernelView) -> Iterator[KernelMatch]:
        """Yields every choice, in an order that depends on the kernels alone."""

    @abstractmethod
    def apply(self, m: KernelMatch, edit: KernelEditor) -> None:
        """Makes one. May raise IllegalRewrite: nothing has been done."""


@dataclass(frozen=True)
class KernelCandidate:
    """A choice that could be made, addressed so that another process finds it again."""

    pattern: KernelPattern
    match: KernelMatch

    @property
    def anchor(self) -> str:
        return self.match.members[0].address

    @property
    def key(self) -> str:
        members = (kernel.address for kernel in self.match.members)
        return digest(self.pattern.name(), *members)

    @property
    def parameters(self) -> str:
        return f"{{members={len(self.match.members)}}}"

    @property
    def label(self) -> str:
        return f"{self.pattern.name()}{self.parameters} @ {self.anchor}:{self.key}"

    def diff(self) -> tuple[str, ...]:
        """The members for readers."""
        return tuple(f"* {kernel.line}" for kernel in self.match.members)

"""A cat of several parts is written to memory, and not computed anew inside what reads it."""

from __future__ import annotations

from collections.abc import Iterator

from passwright.passes.inductor.kernels import KernelKind, KernelView
from passwright.passes.inductor.pattern import KernelEditor, KernelMatch, KernelPattern, When


class KeepCatsApart(KernelPattern):
    """A cat that is computed element by element is not fused into a reduction that reads it.

    norm(cat(a, b, c, d))  in one kernel   ==>   c = cat(a, b, c, d);  norm(c)

    Inside a kernel every element of a cat asks for each part whether it lies in it, and a reduction over
    rows asks again in each of its passes. Norms of such cats were seen at 3 to 33 times their roofline.
    """

    when = When.BEFORE_FUSION
    conditions = ("the producer is a cat of several parts", "the consumer reduces")

    def matches(self, view: KernelView) -> Iterator[KernelMatch]:
        for kernel in view:
            if kernel.parts < 2:
                continue
            for user in view.consumers(kernel):
                if user.kind is KernelKind.REDUCTION:
                    yield KernelMatch((kernel, user))

    def apply(self, m: KernelMatch, edit: KernelEditor) -> None:
        edit.keep_apart(*m.members)

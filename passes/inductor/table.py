"""The patterns of Inductor-IR, own and those that other packages bring."""

from __future__ import annotations

from functools import cache

from passwright.passes.inductor.combine_kernels import CombineKernels
from passwright.passes.inductor.fuse_siblings import FuseSiblings
from passwright.passes.inductor.keep_cats_apart import KeepCatsApart
from passwright.passes.inductor.pattern import KernelPattern


@cache
def kernel_patterns() -> tuple[KernelPattern, ...]:
    """All of them, in the order in which they are listed."""
    return (CombineKernels(), FuseSiblings(), KeepCatsApart())

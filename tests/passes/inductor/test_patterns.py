"""The patterns of Inductor-IR: what each proposes, and what it leaves alone."""

from __future__ import annotations

import random

import pytest
from kernel_views import Recorder, chains, kernel

from passwright.passes.inductor.combine_kernels import LONG_ROW, MOST, CombineKernels, balanced
from passwright.passes.inductor.fuse_siblings import FuseSiblings
from passwright.passes.inductor.keep_cats_apart import KeepCatsApart
from passwright.passes.inductor.kernels import KernelView
from passwright.passes.inductor.pattern import KernelCandidate, KernelPattern
from passwright.passes.inductor.table import kernel_patterns


def found(pattern: KernelPattern, view: KernelView) -> list[tuple[str, ...]]:
    return [tuple(k.address for k in m.members) for m in pattern.matches(view)]


def test_like_kernels_of_a_level_are_combined_whole_and_in_parts() -> None:
    view = chains(*[1] * 6)
    groups = found(CombineKernels(), view)
    assert tuple("abcdef"[i] + "0" for i in range(6)) in groups
    assert ("a0", "b0", "c0", "d0") in groups
    assert ("e0", "f0") in groups


def test_no_group_is_larger_than_the_largest() -> None:
    view = KernelView([kernel(f"k{n}") for n in range(40)])
    assert max(map(len, found(CombineKernels(), view))) == MOST


@pytest.mark.parametrize(
    "other",
    [
        kernel("x", "extern"),
        kernel("x", "template"),
        kernel("x", "reduction", reduced=16),
        kernel("x", elements=1 << 23),
        kernel("x", "reduction", reduced=LONG_ROW + 1),
        kernel("x", moved=1 << 24),
        kernel("x", bound=True),
    ],
    ids=["library", "template", "reduction", "large", "long rows", "much moved", "bound"],
)
def test_unlike_kernels_are_not_combined(other: object) -> None:
    view = KernelView([kernel("a"), kernel("b"), other])  # type: ignore[list-item]
    assert found(CombineKernels(), view) == [("a", "b")]


def test_groups_have_few_buffers() -> None:
    view = KernelView([kernel(f"k{n}", arguments=100) for n in range(4)])
    assert found(CombineKernels(), view) == []


def test_a_kernel_waits_for_its_like() -> None:
    """`c0` could run at once; the others of its kind come one level later."""
    kernels = [kernel("p", "extern"), kernel("a"), kernel("b"), kernel("c0"), kernel("q", "extern")]
    view = KernelView(kernels, {"a": ["p"], "b": ["p"], "q": ["a", "b", "c0"]})
    assert balanced(view)["c0"] == 1
    assert ("a", "b", "c0") in found(CombineKernels(), view)


@pytest.mark.parametrize("seed", range(20))
def test_balanced_levels_keep_the_order(seed: int) -> None:
    draw = random.Random(seed)
    names = [f"k{n}" for n in range(20)]
    producers = {
        name: draw.sample(names[:n], min(n, draw.randint(0, 2))) for n, name in enumerate(names)
    }
    kinds = ("pointwise", "reduction", "extern")
    view = KernelView([kernel(name, draw.choice(kinds)) for name in names], producers)
    levels = balanced(view)
    assert all(levels[p] < levels[name] for name, sources in producers.items() for p in sources)
    for members in CombineKernels().matches(view):
        assert view.acyclic_with([members.members])


def test_siblings_have_one_size() -> None:
    view = KernelView([kernel("a"), kernel("b"), kernel("c", elements=7), kernel("d", parts=3)])
    assert found(FuseSiblings(), view) == [("a", "b")]


def test_a_cat_is_kept_from_what_reduces_it() -> None:
    kernels = [kernel("cat", parts=4), kernel("norm", "reduction", reduced=64), kernel("sum")]
    view = KernelView(kernels, {"norm": ["cat"], "sum": ["cat"]})
    assert found(KeepCatsApart(), view) == [("cat", "norm")]
    recorder = Recorder()
    [match] = KeepCatsApart().matches(view)
    KeepCatsApart().apply(match, recorder)
    assert recorder.done == [("keep_apart", ("cat", "norm"))]


@pytest.mark.parametrize("pattern", kernel_patterns(), ids=lambda p: p.name())
def test_names_and_labels(pattern: KernelPattern) -> None:
    assert pattern.name().islower()
    assert (type(pattern).__doc__ or "").strip()
    kernels = [
        kernel("a"),
        kernel("b"),
        kernel("cat", parts=3),
        kernel("n", "reduction", reduced=8),
    ]
    view = KernelView(kernels, {"n": ["cat"]})
    labels = [KernelCandidate(pattern, m).label for m in pattern.matches(view)]
    assert labels == [KernelCandidate(pattern, m).label for m in pattern.matches(view)]
    assert all(label.startswith(f"{pattern.name()}{{members=") for label in labels)

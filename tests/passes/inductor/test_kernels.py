"""Kernels and what waits for what: levels, order, groups that would wait for themselves."""

from __future__ import annotations

import random

import pytest
from kernel_views import chains, kernel

from passwright.passes.inductor.kernels import KernelView


def test_levels_count_from_both_ends() -> None:
    view = chains(3, 1)
    assert view.earliest() == {"a0": 0, "a1": 1, "a2": 2, "b0": 0}
    assert view.latest() == {"a0": 0, "a1": 1, "a2": 2, "b0": 2}


def test_the_fingerprint_is_that_of_kernels_and_edges() -> None:
    assert chains(2, 1).fingerprint == chains(2, 1).fingerprint
    assert chains(2, 1).fingerprint != chains(1, 2).fingerprint


def test_equal_addresses_are_an_error() -> None:
    with pytest.raises(ValueError, match="same address"):
        KernelView([kernel("a"), kernel("a")])


def test_groups_that_would_wait_for_themselves() -> None:
    view = chains(2, 2)
    of = view.by_address
    assert view.acyclic_with([(of["a0"], of["b0"]), (of["a1"], of["b1"])])
    assert not view.acyclic_with([(of["a0"], of["a1"])])
    assert not view.acyclic_with([(of["a0"], of["b1"]), (of["a1"], of["b0"])])


@pytest.mark.parametrize("seed", range(20))
def test_acyclic_as_by_brute_force(seed: int) -> None:
    draw = random.Random(seed)
    names = [f"k{n}" for n in range(8)]
    producers = {
        name: draw.sample(names[:number], min(number, draw.randint(0, 2)))
        for number, name in enumerate(names)
    }
    view = KernelView([kernel(name) for name in names], producers)
    shuffled = draw.sample(view.kernels, 6)
    groups = [shuffled[:2], shuffled[2:4], shuffled[4:]]
    home = {name: name for name in names}
    home |= {k.address: group[0].address for group in groups for k in group}
    edges = {(home[p], home[c]) for c, sources in producers.items() for p in sources}
    reach = {(a, b) for a, b in edges}
    for _ in names:
        reach |= {(a, d) for a, b in reach for c, d in edges if b == c}
    assert view.acyclic_with(groups) == all(a != b for a, b in reach)

"""Graphs for the verifier, as functions that sketch them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from passwright.passes.verify import Verdict, verify


def compare(
    sketch: Any,
    original: Callable[[Any], Any],
    rewritten: Callable[[Any], Any],
    *,
    training: bool = True,
    inputs: list[Any] | None = None,
) -> Verdict:
    """Verdict on two graphs, each sketched by a function."""
    modules = []
    for build in (original, rewritten):
        s = sketch()
        build(s)
        modules.append(s.module())
    return verify(*modules, inputs, training=training)


def inputs(s: Any, count: int = 2, *shape: int, **kwargs: Any) -> list[fx.Node]:
    return [s.input(*(shape or (4, 6)), requires_grad=True, **kwargs) for _ in range(count)]


def add(alpha: float, *, swapped: bool = False) -> Callable[[Any], None]:
    def build(s: Any) -> None:
        x, y = inputs(s)
        if swapped:
            x, y = y, x
        s.output(s.call(torch.add, x, y, alpha=alpha))

    return build

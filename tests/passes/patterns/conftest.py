"""What tests of horizontal patterns do with a sketched graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from passwright.passes.pattern import Pattern
from passwright.passes.testing import Rewritten, random_inputs, rewrite_graph


@pytest.fixture
def applied() -> Callable[..., Rewritten]:
    """`applied(s, *patterns)` rewrites the sketched graph and compares it with the original."""

    def apply(s: Any, *patterns: Pattern, gradients: bool = True) -> Rewritten:
        module = s.module()
        result = rewrite_graph(module, random_inputs(module.graph), *patterns)
        result.check(gradients=gradients)
        return result

    return apply


@pytest.fixture
def groups() -> Callable[..., list[int]]:
    """`groups(s, pattern)` gives the sizes of the groups found in the sketched graph."""

    def find(s: Any, pattern: Pattern) -> list[int]:
        view = s.view()
        ops = [view.read(node) for node in view.nodes()]
        anchors = [op for op in ops if type(op) in pattern.anchors]
        return [len(m.members) for op in anchors for m in pattern.matches(view, op)]

    return find

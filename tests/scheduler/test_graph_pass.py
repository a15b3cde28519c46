"""The passes inside Inductor."""

from __future__ import annotations

import torch

from passwright.passes.dialect import Dialect
from passwright.passes.sketch import Sketch
from passwright.scheduler.graph_pass import lower_decomposed

aten = torch.ops.aten


def test_what_inductor_would_not_know_is_taken_apart() -> None:
    s = Sketch(Dialect.ATEN)
    x = s.input(4, 3)
    zeros = s.call(aten.new_zeros.default, x, [2, 3])
    s.output(
        s.call(aten._to_copy.default, x, dtype=torch.float64),
        s.call(aten.cat.default, [x, zeros]),
    )
    module, value = s.module(), torch.randn(4, 3)
    expected = module(value)
    lower_decomposed(module.graph)
    module.graph.lint()
    module.recompile()
    targets = {node.target for node in module.graph.nodes if node.op == "call_function"}
    assert targets == {
        torch.ops.prims.convert_element_type.default,
        aten.full.default,
        aten.cat.default,
    }
    torch.testing.assert_close(module(value), expected, rtol=0, atol=0)

"""Constants in rewritten graphs on their way through Inductor: both hooks, clones, caches."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, fx

from passwright.passes.constants import PREFIX
from passwright.passes.graph import GraphView
from passwright.passes.matching import Rewriter
from passwright.passes.patterns.embeddings import GatherEmbeddings
from passwright.passes.table import PatternTable
from passwright.scheduler import inductor

ROWS = (5, 9, 7)


def look_up(index: Tensor, *tables: Tensor) -> Tensor:
    columns = [F.embedding(index[:, i], table) for i, table in enumerate(tables)]
    return torch.tanh(torch.stack(columns, 1))


def gather(graph: fx.Graph) -> None:
    rewriter = Rewriter(GraphView(graph), PatternTable([GatherEmbeddings()]))
    for candidate in rewriter.candidates():
        rewriter.apply(candidate)
    rewriter.editor.finish()


def compile_rewritten(gm: fx.GraphModule, inputs: list[Any], way: str) -> Any:
    passes = {}
    if way in ("backend", "clone of a rewritten graph"):
        gm = inductor.clone_for_compile(gm)
        gather(gm.graph)
        assert sum(PREFIX in name for name in vars(gm)) == 1
    if way == "clone of a rewritten graph":
        gm = inductor.clone_for_compile(gm)
        assert not list(gm.buffers())
    if way.endswith("_pass"):
        passes = {way: inductor.graph_pass(gather, lambda: "test of constants")}
    return inductor.compile_with_inductor(gm, inputs, passes=passes)


@pytest.mark.parametrize(
    "way",
    [
        "backend",
        "clone of a rewritten graph",
        "pre_grad_custom_pass",
        "post_grad_custom_pre_pass",
    ],
)
def test_values_gradients_and_caches(way: str) -> None:
    index = torch.stack([torch.randint(0, rows, (6,)) for rows in ROWS], 1)
    tables = [torch.randn(rows, 4, requires_grad=True) for rows in ROWS]
    expected = look_up(index, *tables)
    gradients = torch.autograd.grad(expected.square().sum(), tables)
    with inductor.fresh_cache():
        for _ in range(2):
            torch.compiler.reset()
            before = inductor.cache_counters()
            compiled = torch.compile(look_up, backend=lambda *a: compile_rewritten(*a, way))
            actual = compiled(index, *tables)
            torch.testing.assert_close(actual, expected)
            found = torch.autograd.grad(actual.square().sum(), tables)
            torch.testing.assert_close(found, gradients)
            after = inductor.cache_counters()
            assert after["fx_bypass"] == before["fx_bypass"]
            assert after["aot_bypass"] == before["aot_bypass"]
        assert after["aot_hit"] > before["aot_hit"]


def test_constants_of_other_numbers_share_no_cache_entry() -> None:
    """Two rewritten graphs that differ in a constant's numbers alone."""
    index, table = torch.zeros(4, 3, dtype=torch.int64), torch.randn(40, 2)

    def shift(graph: fx.Graph, by: tuple[int, ...]) -> None:
        rewriter = Rewriter(GraphView(graph), PatternTable([]))
        add = next(n for n in graph.nodes if n.target in (torch.add, "add"))
        with rewriter.editor.step([add]):
            offsets = rewriter.editor.constant(by, torch.int64, add)
            rewriter.editor.replace(add, rewriter.editor.add(add.args[0], offsets))
        rewriter.editor.finish()

    def found(by: tuple[int, ...]) -> Tensor:
        def backend(gm: fx.GraphModule, inputs: list[Any]) -> Any:
            gm = inductor.clone_for_compile(gm)
            shift(gm.graph, by)
            return inductor.compile_with_inductor(gm, inputs)

        torch.compiler.reset()
        return torch.compile(lambda i, t: F.embedding(torch.add(i, 1), t), backend=backend)(
            index, table
        )

    with inductor.fresh_cache():
        for by in ((0, 5, 9), (1, 5, 9), (0, 5, 9)):
            torch.testing.assert_close(found(by), F.embedding(index + torch.tensor(by), table))

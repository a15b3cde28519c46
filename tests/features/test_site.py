"""The rows of candidates and of graphs: each column by its name."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from passwright.features import schema
from passwright.features.facts import Fact, Sizes, fact
from passwright.features.graph_tensors import NOTHING, Taken, graph_tensors
from passwright.features.site import Cost, Effect, Row, graph_row, site_row
from passwright.passes.graph import GraphView
from passwright.passes.matching import Rewriter
from passwright.passes.pattern import Candidate, Exactness, match
from passwright.passes.patterns import BatchLinears, MergeNestedSplits
from passwright.passes.sketch import Sketch, nested_splits
from passwright.passes.table import PatternTable

log = math.log1p

LINEAR = Fact("product", 1024, Sizes(1, 8, 32, 16))
BATCHED = Effect(
    removed=[LINEAR] * 3,
    inserted=[
        Fact("movement", 1536, None),
        Fact("movement", 6144, None),
        # The largest product by work is not that of the most rows.
        Fact("product", 200, Sizes(1, 50, 1, 1)),
        Fact("product", 3072, Sizes(3, 8, 32, 16)),
        Fact("view", 3072, None),
    ],
    before=Cost(9, Taken(9e-6, 2e-6, 1e-6)),
    after=Cost(5, Taken(5e-6, 1e-6, 4e-6)),
    gain=0.25,
    width=0.1,
)
UNCHANGED = Effect((), (), BATCHED.before, BATCHED.before, 0.0, 0.0)


def row_of(candidate: Candidate, view: GraphView, effect: Effect) -> dict[str, float]:
    graph = graph_tensors(view, lambda _: NOTHING)
    row = site_row(candidate, graph, {node: fact(view, node) for node in graph.places}, effect)
    return named(row, schema.SITE)


def named(row: Row, names: tuple[str, ...]) -> dict[str, float]:
    assert row.dtype == np.float32
    return dict(zip(names, row.tolist(), strict=True))


def linears() -> GraphView:
    """Three linears of (8, 16) by (32, 16); behind the third is a relu."""
    s = Sketch()
    xs, ws = ([s.input(*shape) for _ in range(3)] for shape in ((8, 16), (32, 16)))
    first, second, third = (s.call(F.linear, x, w) for x, w in zip(xs, ws, strict=True))
    s.output(first, second, s.call(torch.relu, third))
    return s.view()


def test_every_column_of_a_horizontal_candidate() -> None:
    view = linears()
    [candidate] = Rewriter(view, PatternTable([BatchLinears()])).candidates()
    # Bytes: x 512, w 2048, linear 1024, each three times, and relu 1024.
    all_bytes = 3 * 3584 + 1024
    expected = {
        "is_horizontal": 1,
        "reassociates": 1,
        "is_relaxed": 0,
        "log_matched": log(3),
        "log_members": log(3),
        "log_matched_bytes": log(3072),
        "log_largest_bytes": log(1024),
        # Three nodes of the four on the longest way, which goes by the third linear.
        "anchor_criticality": 3 / 4,
        "anchor_flow": 3584 / all_bytes,
        "most_criticality": 1,
        "most_flow": (3584 + 1024) / all_bytes,
        **{f"{when}_{kind}": 0 for when in ("removed", "inserted") for kind in schema.KINDS},
        "removed_product": log(3),
        "inserted_product": log(2),
        "inserted_movement": log(2),
        "inserted_view": log(1),
        "removed_log_products": log(1),
        "inserted_log_products": log(3),
        **{f"{when}_log_m": log(8) for when in ("removed", "inserted")},
        **{f"{when}_log_n": log(32) for when in ("removed", "inserted")},
        **{f"{when}_log_k": log(16) for when in ("removed", "inserted")},
        "log_removed_bytes": log(3072),
        "log_inserted_bytes": log(1536 + 6144 + 200 + 3072 + 3072),
        "saved_kernels": log(4),
        "saved_launch": log(4),
        "saved_arithmetic": log(1),
        "saved_traffic": -log(3),
        "share_launch": 4 / 12,
        "share_arithmetic": 1 / 12,
        "share_traffic": -3 / 12,
        "estimated_gain": 0.25,
        "estimated_width": 0.1,
    }
    assert set(expected) == set(schema.SITE)
    assert row_of(candidate, view, BATCHED) == pytest.approx(expected, abs=1e-6)


def test_every_column_of_a_vertical_candidate() -> None:
    """Two splits, one of a piece of the other, become one."""
    s = Sketch()
    nested_splits(s)
    view = s.view()
    [candidate] = Rewriter(view, PatternTable([MergeNestedSplits()])).candidates()
    names = [node.name for node in candidate.match.nodes]
    assert set(names) >= {"split", "split_1"}
    sizes = {"split": 96, "split_1": 64, "getitem": 32, "getitem_1": 64, "getitem_2": 24}
    sizes["getitem_3"] = 40
    nbytes = [sizes[name] for name in names]
    removed = [Fact("view", 64, None), Fact("view", 64, None)]
    cost = BATCHED.before
    found = row_of(candidate, view, Effect(removed, [], cost, cost, 0.0, 0.0))
    expected = {
        **dict.fromkeys(schema.SITE, 0.0),
        "log_matched": log(len(names)),
        "log_matched_bytes": log(sum(nbytes)),
        "log_largest_bytes": log(max(nbytes)),
        "removed_view": log(2),
        "log_removed_bytes": log(128),
    }
    stress = ("anchor_criticality", "anchor_flow", "most_criticality", "most_flow")
    assert {**found, **dict.fromkeys(stress, 0.0)} == pytest.approx(expected)
    # The longest way is that by both splits.
    assert found["anchor_criticality"] == found["most_criticality"] == 1
    assert 0 < found["anchor_flow"] <= found["most_flow"] <= 1


def test_clean_up_has_no_match() -> None:
    view = linears()
    found = row_of(Rewriter(view, PatternTable([])).sweep(), view, UNCHANGED)
    assert found["log_matched"] == found["log_matched_bytes"] == found["most_flow"] == 0
    assert found["is_horizontal"] == found["reassociates"] == found["saved_kernels"] == 0


def test_a_relaxed_pattern() -> None:
    class Relaxed(BatchLinears):
        exactness = Exactness.RELAXED

    view = linears()
    [candidate] = Rewriter(view, PatternTable([Relaxed()])).candidates()
    found = row_of(candidate, view, UNCHANGED)
    assert (found["reassociates"], found["is_relaxed"]) == (0, 1)


@pytest.mark.parametrize(
    ("parameters", "members"),
    [
        ({}, 0),
        ({"members": 4}, 4),
        # At which of several columns a group begins is no number of members.
        ({"first": 7, "members": 2}, 2),
        ({"pairs": 3, "form": "matmul"}, 3),
        ({"dim": -2, "products": 5, "runs": 2}, 5),
        ({"dim": -2}, 0),
    ],
)
def test_members(parameters: dict[str, object], members: int) -> None:
    view = linears()
    anchor = view.read(next(node for node in view.nodes() if node.op == "call_function"))
    assert anchor is not None
    found = match(anchor, parameters=parameters)
    row = row_of(Candidate.of(BatchLinears(), found, view), view, UNCHANGED)
    assert row["log_members"] == pytest.approx(log(members))


def test_what_a_step_costs_is_negative() -> None:
    [candidate] = Rewriter(view := linears(), PatternTable([BatchLinears()])).candidates()
    there = row_of(candidate, view, BATCHED)
    back = row_of(candidate, view, BATCHED._replace(before=BATCHED.after, after=BATCHED.before))
    for name in ("saved_kernels", "saved_launch", "saved_arithmetic", "saved_traffic"):
        assert back[name] == -there[name] != 0


def test_the_row_of_a_graph() -> None:
    row = graph_row(BATCHED.before, 17, training=True, half=False, tf32=True)
    expected = {
        "log_nodes": log(17),
        "log_kernels": log(9),
        "log_seconds": log(12),
        "part_launch": 9 / 12,
        "part_arithmetic": 2 / 12,
        "part_traffic": 1 / 12,
        "is_training": 1,
        "is_half": 0,
        "is_tf32": 1,
    }
    found = named(row, schema.GRAPH)
    assert tuple(expected) == schema.GRAPH
    assert found == pytest.approx(expected)
    other = named(
        graph_row(BATCHED.before, 17, training=False, half=True, tf32=False), schema.GRAPH
    )
    assert (other["is_training"], other["is_half"], other["is_tf32"]) == (0, 1, 0)


def test_a_graph_that_takes_no_time() -> None:
    row = graph_row(Cost(0, NOTHING), 1, training=False, half=False, tf32=False)
    assert np.isfinite(row).all()

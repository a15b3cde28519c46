"""Fewer boxes, without a cycle and with every change in sight; and where boxes go."""

from __future__ import annotations

import itertools

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reports import drawing

from passwright.training.report.condense import Box, condensed, plain
from passwright.training.report.layout import layered
from passwright.training.report.model_content import KEPT, REMOVED, Drawing, DrawnNode
from passwright.training.report.picture import grouped, in_full


@st.composite
def drawings(draw: st.DrawFn) -> Drawing:
    """Any graph whose edges lead forward, with marks anywhere."""
    count = draw(st.integers(1, 40))
    nodes = tuple(
        DrawnNode(
            f"n{at}",
            draw(st.sampled_from(["add", "mul", "cat"])),
            "[2]",
            mark := draw(st.sampled_from([KEPT, KEPT, KEPT, REMOVED])),
            draw(st.integers(1, 3)) if mark else 0,
            at == 0,
        )
        for at in range(count)
    )
    pairs = st.tuples(st.integers(0, count - 1), st.integers(0, count - 1))
    found = draw(st.lists(pairs, max_size=80))
    return Drawing(nodes, tuple(sorted({(a, b) for a, b in found if a < b})))


def titles(boxes: list[Box]) -> list[str]:
    return [box.title for box in boxes]


@settings(max_examples=150, deadline=None)
@given(drawings())
def test_every_node_is_in_one_box_and_no_cycle_comes(graph: Drawing) -> None:
    boxes, edges = condensed(graph)
    names = [node.name for box in boxes for node in box.members]
    assert sorted(names) == sorted(node.name for node in graph.nodes)
    assert nx.is_directed_acyclic_graph(nx.DiGraph(edges))
    # A box is removed as a whole or not at all, and never a part of an untouched region.
    for box in boxes:
        assert {(node.mark, node.step) for node in box.members} == {(box.mark, box.members[0].step)}
        assert not (box.is_region and box.mark)


@settings(max_examples=60, deadline=None)
@given(drawings())
def test_edges_lead_down_and_boxes_do_not_touch(graph: Drawing) -> None:
    boxes, edges = condensed(graph)
    widths = {at: 60.0 + 10 * (at % 3) for at in range(len(boxes))}
    placed = layered(widths, edges, gap=10.0)
    assert placed.centres.keys() == widths.keys()
    for source, target in edges:
        assert placed.centres[source][1] < placed.centres[target][1]
        route = placed.routes[source, target]
        assert (route[0], route[-1]) == (placed.centres[source], placed.centres[target])
    rows: dict[float, list[int]] = {}
    for at, (_, y) in placed.centres.items():
        rows.setdefault(y, []).append(at)
    for row in rows.values():
        row.sort(key=lambda at: placed.centres[at][0])
        for left, right in itertools.pairwise(row):
            apart = placed.centres[right][0] - placed.centres[left][0]
            assert apart >= (widths[left] + widths[right]) / 2 - 1e-6
    assert all(0 <= x <= placed.width for x, _ in placed.centres.values())


def test_alike_nodes_are_one_box() -> None:
    boxes, edges = condensed(drawing(8, REMOVED, 1))
    assert titles(boxes) == ["x", "split", "getitem \u00d78", "sigmoid \u00d78", "cat"]
    assert edges == [(0, 1), (1, 2), (2, 3), (3, 4)]


def test_steps_are_kept_apart() -> None:
    graph = drawing(8, REMOVED, 1)
    nodes = list(graph.nodes)
    nodes[2] = DrawnNode(nodes[2].name, "getitem", "[8, 8]", REMOVED, 2)
    boxes, _ = condensed(Drawing(tuple(nodes), graph.edges))
    assert "getitem" in titles(boxes)
    assert "getitem \u00d77" in titles(boxes)


def test_what_no_change_is_near_is_one_region() -> None:
    chain = [DrawnNode(f"n{at}", f"op{at}", "[2]") for at in range(30)]
    chain[0] = DrawnNode("n0", "input", "[2]", is_input=True)
    chain[15] = DrawnNode("n15", "op15", "[2]", REMOVED, 1)
    boxes, edges = condensed(Drawing(tuple(chain), tuple((at, at + 1) for at in range(29))))
    assert titles(boxes) == ["n0", "13 ops, unchanged", "op14", "op15", "op16", "13 ops, unchanged"]
    assert len(edges) == 5


def test_small_graphs_stay_as_they_are() -> None:
    graph = drawing(4, REMOVED, 1)
    assert condensed(graph) == plain(graph)
    assert in_full(graph, "") is None


def test_pictures_say_what_they_show() -> None:
    found = grouped(drawing(8, REMOVED, 3), 'a "model" & more')
    assert (found.boxes, found.nodes) == (5, 19)
    assert found.svg.count('class="box') == 5
    assert 'class="box removed many" data-steps="3"' in found.svg
    assert "removed by step 3: piece_0, piece_1" in found.svg
    assert 'aria-label="a &quot;model&quot; &amp; more"' in found.svg
    full = in_full(drawing(8, REMOVED, 3), "all")
    assert full is not None
    assert full.boxes == 19


@pytest.mark.parametrize("name", ["<b>", "a&b", '"'])
def test_names_cannot_break_out(name: str) -> None:
    svg = grouped(Drawing((DrawnNode(name, name, name),)), name).svg
    assert f">{name}<" not in svg

"""Candidates as a learned gain model sees them: rehearsed once, and the graph left as it was."""

from __future__ import annotations

import math
from dataclasses import fields, replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from passwright.features import schema
from passwright.features.device_row import device_row
from passwright.features.example import Example
from passwright.features.graph_tensors import graph_tensors
from passwright.passes.editor import GraphEditor
from passwright.passes.errors import IllegalRewrite
from passwright.passes.graph import GraphView
from passwright.passes.matching import Rewriter
from passwright.passes.pattern import Match
from passwright.passes.patterns import BatchLinears, BatchUnaries, MergeNestedSplits
from passwright.passes.random_graphs import random_graph
from passwright.passes.sketch import Sketch, nested_splits, snapshot
from passwright.passes.table import PatternTable, default_table
from passwright.passes.testing import capture
from passwright.scheduler.analytic import AnalyticGainModel
from passwright.scheduler.cost import GraphCost
from passwright.scheduler.device import describe_gpu
from passwright.scheduler.gain import Interval
from passwright.scheduler.inductor import clone_for_compile
from passwright.scheduler.sites import Site, SiteReader, figures

log = math.log1p


def read(rewriter: Rewriter, device, candidates=None, *, training=False, **options) -> list[Site]:
    candidates = rewriter.candidates() if candidates is None else candidates
    return SiteReader(rewriter.view, device, training=training).read(
        rewriter, candidates, **options
    )


def linears(count: int = 6, **options) -> Sketch:
    """So many of (8, 16) by (32, 16), each with an input of its own; nobody sees their strides."""
    s = Sketch()
    xs, ws = ([s.input(*n, **options) for _ in range(count)] for n in ((8, 16), (32, 16)))
    results = [s.call(F.linear, x, w) for x, w in zip(xs, ws, strict=True)]
    s.output(*(s.call("sum", y, 1) for y in results))
    return s


def loop(patterns=(), *, steps: int = 20) -> Rewriter:
    """An unrolled loop, in each step of which two values can be batched."""

    def fn(x):
        for _ in range(steps):
            a, b = x.chunk(2, dim=1)
            x = torch.cat([torch.tanh(a), torch.tanh(b)], 1) * 2
        return x

    module = clone_for_compile(capture(fn, (torch.randn(4, 8),))[0])
    return Rewriter(GraphView(module.graph), PatternTable(patterns or [BatchUnaries()]))


def counted(rewriter: Rewriter) -> list[str]:
    """Labels of the candidates that are rehearsed from now on."""
    seen: list[str] = []
    apply = rewriter.apply

    def counting(candidate):
        seen.append(candidate.label)
        return apply(candidate)

    rewriter.apply = counting
    return seen


def column(site: Site, name: str) -> float:
    return float(site.example.site[schema.SITE.index(name)])


def of_graph(site: Site, name: str) -> float:
    return float(site.example.graph[schema.GRAPH.index(name)])


def assert_same(first: Site, second: Site) -> None:
    for field in fields(Example):
        one, other = (getattr(site.example, field.name) for site in (first, second))
        assert np.array_equal(one, other), field.name
    assert (first.analytic, first.refused) == (second.analytic, second.refused)


# ---- one step


def test_a_batch_of_linears(h200):
    rewriter = Rewriter(linears().view(), PatternTable([BatchLinears()]))
    [site] = read(rewriter, h200)
    found = dict(zip(schema.SITE, site.example.site.tolist(), strict=True))
    assert (found["is_horizontal"], found["reassociates"]) == (1, 1)
    expected = {
        **{f"{when}_{kind}": 0 for when in ("removed", "inserted") for kind in schema.KINDS},
        "removed_product": log(6),
        # Two stacks, a product; the permuted weights, an unbind and its pieces.
        "inserted_movement": log(2),
        "inserted_product": log(1),
        "inserted_view": log(1 + 1 + 6),
        "removed_log_products": log(1),
        "inserted_log_products": log(6),
        "inserted_log_m": log(8),
        "inserted_log_n": log(32),
        "inserted_log_k": log(16),
        "log_removed_bytes": log(6 * 1024),
        # Inputs 512 bytes each, weights 2048 (stacked, and permuted), results three times over.
        "log_inserted_bytes": log(6 * (512 + 2 * 2048 + 3 * 1024)),
        "saved_kernels": log(3),
    }
    assert {name: found[name] for name in expected} == pytest.approx(expected)
    assert site.example.pattern == "batch_linears"
    assert site.refused == ""


def test_a_vertical_step(cpu):
    s = Sketch()
    nested_splits(s)
    rewriter = Rewriter(s.view(), PatternTable([MergeNestedSplits()]))
    [site] = read(rewriter, cpu)
    assert column(site, "is_horizontal") == 0
    # Two splits with a piece of the first, and the pieces of the second; one split and pieces of it.
    with rewriter.rehearsal():
        record = rewriter.apply(*rewriter.candidates())
    assert column(site, "removed_view") == pytest.approx(log(len(record.removed)))
    assert column(site, "inserted_view") == pytest.approx(log(len(record.inserted)))
    assert len(record.removed) > len(record.inserted) > 0
    assert column(site, "saved_kernels") == 0


def test_what_is_saved_is_the_difference_of_the_estimates(device):
    rewriter = Rewriter(linears(8).view(), PatternTable([BatchLinears()]))
    [candidate, *_] = sorted(rewriter.candidates(), key=lambda c: -len(c.match.nodes))
    [site] = read(rewriter, device, [candidate])
    before = GraphCost(rewriter.view, device, training=False).estimate()
    rewriter.apply(candidate)
    after = GraphCost(rewriter.view, device, training=False).estimate()
    saved = {
        name: 1e6
        * sum(getattr(p, name) * sign for e, sign in ((before, 1), (after, -1)) for p in e.parts.values())
        for name in ("launch", "arithmetic", "traffic")
    }  # fmt: skip
    for name, micros in saved.items():
        expected = math.copysign(log(abs(micros)), micros)
        assert column(site, f"saved_{name}") == pytest.approx(expected, abs=1e-4), name
        share = 1e-6 * micros / before.seconds
        assert column(site, f"share_{name}") == pytest.approx(share, abs=1e-4), name
    kernels = before.kernels - after.kernels
    assert column(site, "saved_kernels") == pytest.approx(math.copysign(log(abs(kernels)), kernels))
    # On a GPU two stacks and a product for eight; a CPU copies every input by itself.
    assert kernels == (5 if device.kind == "cuda" else -9)
    assert column(site, "saved_launch") > 0
    assert of_graph(site, "log_kernels") == pytest.approx(log(before.kernels))
    assert of_graph(site, "log_seconds") == pytest.approx(log(1e6 * before.seconds))


@pytest.mark.parametrize("training", [False, True])
def test_the_analytic_gain_is_that_of_the_analytic_model(built, device, training):
    module, _ = built("case:D3", training)
    rewriter = Rewriter(GraphView(clone_for_compile(module).graph), default_table())
    for candidate in rewriter.candidates():
        [site] = read(rewriter, device, [candidate], training=training)
        [found] = AnalyticGainModel(device, lookahead=0).predict(
            rewriter, [candidate], training=training
        )
        assert (site.analytic, site.refused) == (found.gain, found.refused)
        assert column(site, "estimated_gain") == pytest.approx(found.gain.mean)
        width = found.gain.mean - found.gain.lower
        assert column(site, "estimated_width") == pytest.approx(width, abs=1e-6)


def test_reading_leaves_the_graph_as_it_was(built, device):
    module, _ = built("case:D3", False)
    rewriter = Rewriter(GraphView(clone_for_compile(module).graph), default_table())

    def state():
        view = rewriter.view
        known = [(view.address(n), view.any_spec(n), view.read(n)) for n in view.nodes()]
        return snapshot(view.graph), known, [c.label for c in rewriter.candidates()]

    before = state()
    assert any(column(site, "saved_kernels") > 0 for site in read(rewriter, device))
    for was, now in zip(before, state(), strict=True):
        assert was == now


def test_two_reads_are_equal(built, device):
    module, _ = built("case:D3", False)
    first, second = (
        Rewriter(GraphView(clone_for_compile(module).graph), default_table()) for _ in range(2)
    )
    for one, again, other in zip(
        read(first, device), read(first, device), read(second, device), strict=True
    ):
        assert_same(one, again)
        assert_same(one, other)


def test_a_reader_knows_no_more_than_a_fresh_one(cpu):
    """The batch holds copies of its inputs, and with them the graph is more than a cache holds."""
    view = linears(8).view()
    held = 8 * (512 + 2048 + 1024 + 32)
    rewriter = Rewriter(view, PatternTable([BatchLinears()]))
    device = replace(cpu, cache_bytes=held, memory_bandwidth=cpu.cache_bandwidth / 10)
    reader = SiteReader(view, device, training=False)
    small = min(rewriter.candidates(), key=lambda c: len(c.match.nodes))
    reader.read(rewriter, [small])
    rewriter.apply(small)
    left = rewriter.candidates()
    assert left
    for kept, fresh in zip(reader.read(rewriter, left), read(rewriter, device, left), strict=True):
        assert_same(kept, fresh)


# ---- several


class Refuses(BatchUnaries):
    """Refuses where the anchor is one of `where`; everywhere, if there is none."""

    where: tuple[str, ...] = ()

    def rewrite(self, m: Match, edit: GraphEditor) -> None:
        if not self.where or m.anchor.node.name in self.where:
            raise IllegalRewrite("strides can be seen")
        super().rewrite(m, edit)


def test_a_refused_candidate_says_why(cpu):
    for site in read(loop([Refuses()], steps=3), cpu):
        assert site.refused == "strides can be seen"
        assert site.analytic == Interval(0.0, 0.0, 0.0)
        for name in ("removed_pointwise", "inserted_pointwise", "saved_kernels", "estimated_gain"):
            assert column(site, name) == 0
        # Of the match is known what there is.
        assert column(site, "log_members") == pytest.approx(log(2))


def test_a_refusal_is_not_that_of_all_that_are_alike(cpu):
    rewriter = loop()
    order = [candidate.match.anchor.node.name for candidate in rewriter.candidates()]
    pattern = Refuses()
    pattern.where = (order[5],)
    rewriter = loop([pattern])
    candidates = sorted(
        rewriter.candidates(), key=lambda c: order.index(c.match.anchor.node.name) != 5
    )
    refused = [site.refused for site in read(rewriter, cpu, candidates)]
    assert refused == ["strides can be seen", *[""] * 19]


def test_alike_candidates_are_rehearsed_once(cpu):
    rewriter = loop()
    candidates = rewriter.candidates()
    seen = counted(rewriter)
    together = read(rewriter, cpu, candidates)
    assert len(together) == len(candidates) == 20
    assert len(seen) < 5
    assert len(set(seen)) == len(seen)
    for site, candidate in zip(together, candidates, strict=True):
        [alone] = read(rewriter, cpu, [candidate])
        assert site.analytic.mean == pytest.approx(alone.analytic.mean, abs=0.02)
        assert np.array_equal(site.example.roles, alone.example.roles)
        assert site.example.words == alone.example.words


def test_alike_candidates_have_places_of_their_own(cpu):
    """What lies above and below of one is not what lies around the other."""
    s = Sketch()
    x, short = s.input(4, 8), s.input(4, 8)
    pairs = []
    for value in (x, short):
        pair = [s.call(torch.tanh, p) for p in (s.call(torch.add, value, n) for n in (1, 2))]
        pairs.append(s.call(torch.cat, pair, 1))
    long = pairs[0]
    for _ in range(3):
        long = s.call(torch.matmul, long, s.input(16, 16))
    s.output(long, pairs[1])
    # Those of one pair alone: all four would be a batch as well.
    rewriter = Rewriter(s.view(), PatternTable([BatchUnaries()]))
    [whole] = rewriter.candidates()
    anchors = [rewriter.view.read(n) for n in whole.match.nodes]
    graph = graph_tensors(rewriter.view)
    candidates = [
        replace(whole, match=replace(whole.match, anchor=anchors[i], nodes=whole.match.nodes[i:][:2],
                                     roles={"members": anchors[i:][:2]}))
        for i in (0, 2)
    ]  # fmt: skip
    seen = counted(rewriter)
    first, second = read(rewriter, cpu, candidates)
    assert len(seen) == 1
    assert first.analytic == second.analytic
    assert column(first, "anchor_criticality") == 1
    assert column(second, "anchor_criticality") < 1
    for site, candidate in zip((first, second), candidates, strict=True):
        flow = graph.column("flow")[graph.places[candidate.match.anchor.node]]
        assert column(site, "anchor_flow") == pytest.approx(float(flow))


def test_too_late_is_no_site(cpu):
    rewriter = loop(steps=3)
    candidates = rewriter.candidates()
    seen = counted(rewriter)
    assert read(rewriter, cpu, late=lambda: True) == [None] * len(candidates)
    assert not seen
    # What is like a candidate that was looked at in time needs no time.
    sites = read(rewriter, cpu, [candidates[1], candidates[1]], late=lambda: bool(seen))
    assert None not in sites
    assert len(seen) == 1


def test_no_candidates(cpu):
    assert read(loop(steps=1), cpu, []) == []


@pytest.mark.parametrize("seed", range(10))
def test_random_graphs(seed, device):
    drawn = random_graph(seed)
    rewriter = Rewriter(GraphView(drawn.module.graph), default_table())
    for training in (False, True):
        for site in read(rewriter, device, training=training):
            example = site.example
            for name in ("site", "graph", "device", "nodes", "roles", "edge_features"):
                array = getattr(example, name)
                assert array.dtype == np.float32
                assert np.isfinite(array).all(), name
            assert of_graph(site, "is_training") == training


# ---- the whole graph, and the device


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_graph_is_half_where_most_bytes_are(dtype, cpu):
    rewriter = Rewriter(linears(dtype=dtype).view(), PatternTable([BatchLinears()]))
    [site, *_] = read(rewriter, cpu)
    assert of_graph(site, "is_half") == (dtype is not torch.float32)


def test_the_graph_is_told_from_its_device(cpu, h200):
    rewriter = Rewriter(linears().view(), PatternTable([BatchLinears()]))
    [on_cpu], [on_gpu] = (read(rewriter, device) for device in (cpu, h200))
    assert (of_graph(on_cpu, "is_tf32"), of_graph(on_gpu, "is_tf32")) == (0, 1)
    assert of_graph(on_cpu, "log_nodes") == pytest.approx(log(25))
    for site, device in ((on_cpu, cpu), (on_gpu, h200)):
        assert np.array_equal(site.example.device, device_row(figures(device)))


def test_the_figures_of_a_device(device):
    found = figures(device)
    assert set(found) == set(schema.DEVICE)
    assert np.isfinite(device_row(found)).all()
    assert found["is_cuda"] == (device.kind == "cuda")
    for name in ("fp32", "tf32", "bf16"):
        assert found[f"flops_{name}"] == device.peak_flops.get(name, 0.0)
    assert found["cores"] == device.cores
    assert found["memory_bandwidth"] == device.memory_bandwidth
    assert found["fused_launch"] == device.fused_launch != found["extern_launch"]


def test_the_row_of_an_h200():
    row = device_row(figures(describe_gpu("NVIDIA H200")))
    found = dict(zip(schema.DEVICE, row.tolist(), strict=True))
    assert found["is_cuda"] == 1
    assert found["cores"] == pytest.approx(math.log10(132))
    # A few TB/s, tens of TFLOP/s without tensor cores, hundreds of TF32.
    assert 12 < found["memory_bandwidth"] < 13
    assert 13 < found["flops_fp32"] < 14 < found["flops_tf32"] < found["flops_bf16"] < 15
    assert found["item_seconds"] == found["exp_rate"] == 0

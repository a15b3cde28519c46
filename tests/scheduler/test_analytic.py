"""The analytic gain model: rehearsals, looking ahead, allowances, intervals."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
import torch
from torch import fx

from passwright.passes.editor import GraphEditor
from passwright.passes.errors import IllegalRewrite
from passwright.passes.graph import GraphView
from passwright.passes.matching import Rewriter
from passwright.passes.ops import Unary
from passwright.passes.pattern import Match
from passwright.passes.patterns import BatchUnaries
from passwright.passes.table import PatternTable, default_table
from passwright.passes.testing import capture, text
from passwright.scheduler.analytic import AnalyticGainModel
from passwright.scheduler.cost import GraphCost
from passwright.scheduler.estimate import Estimate, Seconds, gain_between
from passwright.scheduler.gain import OUT_OF_TIME
from passwright.scheduler.inductor import clone_for_compile


@pytest.fixture
def rewriter(built) -> Rewriter:
    """Thirty branches Linear, ReLU, Linear."""
    return rewriter_of(built("case:D3", False)[0])


def rewriter_of(module: fx.GraphModule, *patterns) -> Rewriter:
    table = PatternTable(patterns) if patterns else default_table()
    return Rewriter(GraphView(clone_for_compile(module).graph), table)


def state(rewriter: Rewriter) -> list[object]:
    """Everything about the graph that a rehearsal might leave changed."""
    view = rewriter.view
    return [
        text(view.graph),
        [(n.name, view.address(n), [u.name for u in n.users]) for n in view.graph.nodes],
        [(view.any_spec(n), dict(n.meta)) for n in view.graph.nodes],
        [c.label for c in rewriter.candidates()],
    ]


def test_predicting_leaves_the_graph_as_it_was(rewriter, device):
    before = state(rewriter)
    AnalyticGainModel(device).predict(rewriter, rewriter.candidates(), training=True)
    after = state(rewriter)
    for was, now in zip(before, after, strict=True):
        assert was == now


def test_predictions_are_equal_whenever_made(rewriter, device):
    candidates = rewriter.candidates()
    first, second = (
        AnalyticGainModel(device).predict(rewriter, candidates, training=False) for _ in range(2)
    )
    assert first == second


def test_predictions_come_in_the_order_of_the_candidates(rewriter, cpu):
    candidates = rewriter.candidates()
    forward = AnalyticGainModel(cpu).predict(rewriter, candidates, training=False)
    backward = AnalyticGainModel(cpu).predict(rewriter, candidates[::-1], training=False)
    assert forward == backward[::-1]
    assert len({prediction.gain for prediction in forward}) > 1


def test_bounds_surround_the_mean(rewriter, device):
    for found in AnalyticGainModel(device).predict(rewriter, rewriter.candidates(), training=False):
        for gain in (found.gain, found.to_go):
            assert gain.lower <= gain.mean <= gain.upper
        assert found.to_go.lower >= found.gain.lower


def test_gain_is_the_estimate_before_over_the_estimate_after(rewriter, device):
    [candidate, *_] = rewriter.candidates()
    [found] = AnalyticGainModel(device).predict(rewriter, [candidate], training=False)
    cost = GraphCost(rewriter.view, device, training=False)
    before = cost.estimate().seconds
    rewriter.apply(candidate)
    expected = math.log(before / cost.estimate().seconds)
    assert found.gain.mean == pytest.approx(expected, abs=0.05)


def test_the_way_that_is_foreseen_can_be_gone_and_leads_there(rewriter, h200):
    model = AnalyticGainModel(h200)
    candidates = rewriter.candidates()
    found = model.predict(rewriter, candidates, training=False)
    candidate, prediction = max(
        zip(candidates, found, strict=True), key=lambda pair: len(pair[1].path)
    )
    assert prediction.path
    cost = GraphCost(rewriter.view, h200, training=False)
    before = cost.estimate()
    rewriter.apply(candidate)
    for place in prediction.path:
        follow_up = rewriter.find(*place)
        assert follow_up is not None
        rewriter.apply(follow_up)
    assert gain_between(before, cost.estimate()) == prediction.to_go


def test_without_lookahead_the_gain_to_go_is_the_gain(rewriter, h200):
    for found in AnalyticGainModel(h200, lookahead=0).predict(
        rewriter, rewriter.candidates(), training=False
    ):
        assert found.path == ()
        assert found.to_go == found.gain


def counted(rewriter: Rewriter) -> list[str]:
    """Records the label of every candidate that is rehearsed from now on."""
    seen: list[str] = []
    apply = rewriter.apply

    def counting(candidate):
        seen.append(candidate.label)
        return apply(candidate)

    rewriter.apply = counting
    return seen


def test_the_allowance_goes_to_the_largest_and_the_rest_is_refused(rewriter, cpu):
    candidates = rewriter.candidates()
    assert len(candidates) >= 2
    seen = counted(rewriter)
    found = AnalyticGainModel(cpu, lookahead=0, max_rehearsals=1).predict(
        rewriter, candidates, training=False
    )
    largest = max(candidates, key=lambda c: len(c.match.nodes))
    assert len(seen) == 1
    assert len(largest.match.nodes) == max(len(c.match.nodes) for c in candidates)
    refused = [p.refused for p in found if p.refused]
    assert refused == ["not looked at: max_rehearsals reached"] * (len(candidates) - 1)


def test_a_large_graph_gets_fewer_rehearsals(cpu):
    def fn(*inputs):
        return [torch.tanh(torch.exp(torch.sin(x))) for x in inputs]

    # Pairs of 60 widths: none is like another.
    inputs = [torch.randn(width) for width in range(1, 61) for _ in range(2)]
    large = rewriter_of(capture(fn, inputs)[0], BatchUnaries())
    candidates = large.candidates()
    assert len(candidates) == 180
    seen = counted(large)
    found = AnalyticGainModel(cpu, lookahead=0, max_rehearsals=16).predict(
        large, candidates, training=False
    )
    assert 0 < len(seen) < 16
    assert sum(not prediction.refused for prediction in found) == len(seen)


def test_what_was_chosen_is_answered_without_an_allowance(rewriter, cpu):
    model = AnalyticGainModel(cpu, max_rehearsals=0)
    [candidate, *_] = rewriter.candidates()
    [refused] = model.predict(rewriter, [candidate], training=False)
    assert refused.refused
    [answered] = model.predict(rewriter, [candidate], training=False, ahead=False)
    assert not answered.refused
    assert answered.gain.mean


def test_a_model_that_was_told_to_stop_refuses(rewriter, cpu):
    model = AnalyticGainModel(cpu)
    model.stop_when(lambda: True)
    seen = counted(rewriter)
    found = model.predict(rewriter, rewriter.candidates(), training=False)
    assert {prediction.refused for prediction in found} == {OUT_OF_TIME}
    assert not seen
    [candidate, *_] = rewriter.candidates()
    assert not model.predict(rewriter, [candidate], training=False, ahead=False)[0].refused


def test_candidates_that_are_alike_are_rehearsed_once(cpu):
    def fn(x):
        for _ in range(20):
            a, b = x.chunk(2, dim=1)
            x = torch.cat([torch.tanh(a), torch.tanh(b)], 1) * 2
        return x

    many = rewriter_of(capture(fn, (torch.randn(4, 8),))[0], BatchUnaries())
    candidates = many.candidates()
    assert len(candidates) == 20
    seen = counted(many)
    found = AnalyticGainModel(cpu, lookahead=0).predict(many, candidates, training=False)
    assert len(seen) < 5
    alone = [
        AnalyticGainModel(cpu, lookahead=0).predict(many, [c], training=False)[0]
        for c in candidates
    ]
    for together, by_itself in zip(found, alone, strict=True):
        assert together.gain.mean == pytest.approx(by_itself.gain.mean, abs=0.02)


def test_an_illegal_candidate_is_refused_with_its_reason(built, cpu):
    class Never(BatchUnaries):
        def rewrite(self, m: Match, edit: GraphEditor) -> None:
            raise IllegalRewrite("strides can be seen")

    rewriter = rewriter_of(built("case:D5", False)[0], Never())
    found = AnalyticGainModel(cpu).predict(rewriter, rewriter.candidates(), training=False)
    assert {prediction.refused for prediction in found} == {"strides can be seen"}


def test_a_follow_up_that_is_illegal_ends_no_way(built, cpu):
    """The next best one is tried."""

    class Refuses(BatchUnaries):
        def matches(self, graph: GraphView, anchor: Unary) -> Iterator[Match]:
            return super().matches(graph, anchor)

        def rewrite(self, m: Match, edit: GraphEditor) -> None:
            raise IllegalRewrite("not this one")

    table = [p for p in default_table() if p.name() != "batch_unaries"]
    rewriter = rewriter_of(built("case:D3", False)[0], *table, Refuses())
    found = AnalyticGainModel(cpu).predict(rewriter, rewriter.candidates(), training=False)
    assert any(prediction.gain.mean for prediction in found)


def test_the_version_says_what_predictions_depend_on(cpu, h200):
    versions = {
        AnalyticGainModel(cpu).version,
        AnalyticGainModel(h200).version,
        AnalyticGainModel(cpu, lookahead=1).version,
    }
    assert len(versions) == 3
    assert AnalyticGainModel(cpu).version == AnalyticGainModel(cpu).version


@pytest.mark.parametrize(
    ("name", "on_cpu"), [("own:split_cat", True), ("own:split_cat_sigmoid", False)]
)
def test_straightening_pays_where_moving_takes_the_time(name, on_cpu, cpu, h200, built, planned):
    """Computing three sigmoids in a row takes a CPU as long as moving all pieces: see `work.py`."""
    assert bool(planned(built(name, False), cpu).plan.steps) == on_cpu
    assert planned(built(name, False), h200).plan.steps


def test_pieces_joined_in_another_shape_are_no_sure_gain_on_a_cpu(cpu, built, planned):
    """Two copies of a half cost a CPU no more than one permuted copy (AutoInt's heads)."""
    assert not planned(built("zoo:deepctr/AutoInt?fields=6", False), cpu).plan.steps


# ---- intervals


@pytest.fixture(scope="module")
def nodes() -> list[fx.Node]:
    graph = fx.Graph()
    return [graph.placeholder(f"x{number}") for number in range(3)]


def test_equal_estimates_are_no_gain_for_sure(nodes):
    same = Estimate({nodes[0]: Seconds(traffic=1e-3), nodes[1]: Seconds(traffic=2e-3)}, 2)
    found = gain_between(same, same)
    assert (found.mean, found.lower, found.upper) == (0, 0, 0)


def test_work_that_is_only_taken_away_gains_for_sure(nodes):
    before = Estimate({nodes[0]: Seconds(traffic=1e-3), nodes[1]: Seconds(traffic=1e-3)}, 2)
    found = gain_between(before, Estimate({nodes[0]: Seconds(traffic=1e-3)}, 1))
    assert 0 < found.lower < found.mean < found.upper
    assert found.mean == pytest.approx(math.log(2), abs=0.01)


def test_a_trade_of_much_for_much_is_uncertain(nodes):
    found = gain_between(
        Estimate({nodes[0]: Seconds(traffic=1.2e-3)}, 1),
        Estimate({nodes[1]: Seconds(traffic=1e-3)}, 1),
    )
    assert found.mean > 0
    assert found.lower < 0


def test_what_stays_makes_a_gain_smaller_and_surer(nodes):
    def around(rest: float):
        before = Estimate({nodes[0]: Seconds(traffic=1.2e-3), nodes[2]: Seconds(traffic=rest)}, 2)
        return gain_between(
            before, Estimate({nodes[1]: Seconds(traffic=1e-3), nodes[2]: Seconds(traffic=rest)}, 2)
        )

    alone, among = around(1e-9), around(1e-1)
    assert among.upper - among.lower < alone.upper - alone.lower
    assert 0 < among.mean < alone.mean


def test_an_empty_graph_is_no_division_by_zero():
    found = gain_between(Estimate({}, 0), Estimate({}, 0))
    assert found.mean == 0


def test_what_both_forms_have_is_the_same_in_both(nodes):
    """Twice the launches for the same arithmetic: whatever the arithmetic takes, it is not faster."""
    many = Estimate({nodes[0]: Seconds(2e-4, 1e-3)}, 2)
    assert gain_between(many, Estimate({nodes[0]: Seconds(1e-4, 1e-3)}, 1)).lower > 0


def test_errors_of_single_kernels_average_out():
    graph = fx.Graph()
    kernels = [graph.placeholder(f"k{number}") for number in range(65)]

    def width(count: int) -> float:
        old = Estimate({n: Seconds(traffic=1e-3 / count) for n in kernels[:count]}, count)
        found = gain_between(old, Estimate({kernels[-1]: Seconds(traffic=1e-3)}, 1))
        return found.upper - found.lower

    assert width(64) < 0.8 * width(1)

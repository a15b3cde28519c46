"""The cases that people met in public trackers, D1 to D13: right results and right decisions.

What each case is about, and where it comes from, stands in `training/workloads/cases.py`.
"""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch

from passwright.passes.graph import GraphView
from passwright.passes.matching import Rewriter
from passwright.passes.pattern import Candidate
from passwright.passes.patterns import BatchBinaries, BatchLinears
from passwright.passes.table import PatternTable, default_table
from passwright.passes.testing import capture, rewrite, rewrite_graph
from passwright.passes.verify import verify
from passwright.scheduler.analytic import AnalyticGainModel
from passwright.scheduler.cost import GraphCost
from passwright.scheduler.gain import Prediction
from passwright.scheduler.planner import Planner
from passwright.scheduler.settings import Settings
from passwright.training.workloads import names
from passwright.training.workloads.cases import D6_SHAPES, Experts, UnevenSplit, UnrolledGru

# The unrolled model and the one of 128 experts are as telling with fewer.
SMALLER = {"case:D12": "case:D12?fields=6", "case:D13": "case:D13?fields=12"}
CASES = [SMALLER.get(name, name) for name in names("case")]


def predictions(
    graph: Any, device: Any, pattern: str, *, training: bool = False, table: Any = None
) -> list[tuple[Candidate, Prediction]]:
    """Every candidate of the pattern with what the analytic model says, largest first."""
    rewriter = Rewriter(GraphView(graph.graph), table or default_table())
    found = [c for c in rewriter.candidates() if c.pattern.name() == pattern]
    found.sort(key=lambda c: -len(c.match.nodes))
    model = AnalyticGainModel(device)
    return list(zip(found, model.predict(rewriter, found, training=training), strict=True))


# ---- right results


@pytest.mark.parametrize("training", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("name", CASES)
def test_a_plan_keeps_the_results(name, training, device, built, planned):
    outcome = planned(built(name, training), device, training=training)
    outcome.check()


@pytest.mark.parametrize("training", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("name", CASES)
def test_all_candidates_together_keep_the_results(name, training, built):
    module, inputs = built(name, training)
    with torch.set_grad_enabled(training):
        done = rewrite_graph(_copy(module), list(inputs), *default_table())
        verdict = verify(done.original, done.module, inputs, training=training)
    assert verdict.ok, verdict.sentence


def _copy(module):
    from passwright.scheduler.inductor import clone_for_compile

    return clone_for_compile(module)


# ---- right decisions


def test_d1_few_products_are_left_alone_on_a_cpu(cpu, built, planned):
    assert planned(built("case:D1?fields=3", False), cpu).plan.steps == ()


def test_d1_gains_grow_with_the_number_of_products(device, built):
    gains = []
    for size in (3, 8, 32):
        module, _ = built(f"case:D1?fields={size}", False)
        [(_, prediction), *_] = predictions(module, device, "batch_linears")
        gains.append(prediction.gain.mean)
    assert gains == sorted(gains)
    assert gains[0] < gains[2] / 2


def test_d1_copies_of_the_stack_are_charged(cpu, built):
    """The same products cost less where their weights lie together already."""

    def apart(x, *weights):
        return torch.stack([torch.nn.functional.linear(x[i], w) for i, w in enumerate(weights)])

    def together(x, weights):
        products = [torch.nn.functional.linear(x[i], w) for i, w in enumerate(weights.unbind())]
        return torch.stack(products)

    x, weights = torch.randn(8, 64, 64), torch.randn(8, 64, 64)
    gains = []
    for fn, inputs in ((apart, (x, *weights)), (together, (x, weights))):
        module, _ = capture(fn, inputs)
        [(_, prediction), *_] = predictions(module, cpu, "batch_linears")
        gains.append(prediction.gain.mean)
    assert gains[0] + 0.05 < gains[1]


def test_d2_one_batched_product_and_views_are_left(h200, built, planned):
    outcome = planned(built("case:D2", False), h200)
    assert outcome.patterns == ["batch_linears"]
    assert set(outcome.calls) <= {"reshape", "permute", "unsqueeze", "baddbmm", "stack"}
    assert outcome.count("baddbmm") == 1
    # Parameters have to be put together; nothing else is.
    stacks = [n for n in outcome.module.graph.nodes if n.target is torch.stack]
    assert len(stacks) == 2
    assert all(source.op == "placeholder" for n in stacks for source in n.all_input_nodes)


def test_d2_batching_without_the_cleaning_up_after_it_is_seen_as_worse(device, built):
    module, _ = built("case:D2", False)
    cleaned = predictions(module, device, "batch_linears")
    plain = predictions(module, device, "batch_linears", table=PatternTable([BatchLinears()]))
    assert plain[0][1].gain.mean < cleaned[0][1].gain.mean


def test_d2_cleaning_up_alone_finds_nothing_to_do(device, built):
    module, _ = built("case:D2", False)
    rewriter = Rewriter(GraphView(_copy(module).graph), default_table())
    record = rewriter.apply(rewriter.sweep())
    assert not record.diff()


def test_d3_branches_of_equal_shapes_are_batched_in_one_step(h200, built, planned):
    outcome = planned(built("case:D3", False), h200)
    assert outcome.patterns == ["batch_branches"]
    assert outcome.count("baddbmm") == 2
    assert outcome.count("relu") == 1
    assert not {"linear", "unbind", "split", "cat", "getitem"} & set(outcome.calls)


def test_d3_unequal_shapes_share_no_batch_unless_that_gains(device, built, planned):
    outcome = planned(built("case:D3-unequal", False), device)
    assert all(step.to_go.lower > 0 for step in outcome.plan.steps)
    for step, diff in ((s, s.diff) for s in outcome.plan.steps if s.pattern == "batch_linears"):
        removed = [line for line in diff if line.startswith("-") and "linear" in line]
        assert len(removed) in (3, 9), step.label


@pytest.mark.parametrize(
    ("name", "widths"), [("D4", [320, 320, 960]), ("D4-gates", [8, 8, 128, 128, 128, 128])]
)
def test_d4_is_one_wide_product_and_a_split(name, widths, built):
    module, inputs = built(f"case:{name}", False)
    widen = [p for p in default_table() if p.name() == "widen_linears"]
    done = rewrite_graph(_copy(module), list(inputs), *widen)
    assert done.count("linear") == 1
    [split] = [n for n in done.module.graph.nodes if n.target is torch.split]
    assert sorted(split.args[1]) == widths
    done.check()


@pytest.mark.parametrize("name", ["D4", "D4-gates"])
def test_d4_is_chosen_on_a_gpu(name, h200, built, planned):
    outcome = planned(built(f"case:{name}", True), h200, training=True)
    assert "widen_linears" in outcome.patterns
    assert outcome.count("linear") == 1


def test_d5_products_and_pointwise_results_are_written_into_a_cat_in_place(cpu, built):
    module, _ = built("case:D5", False)
    cost = GraphCost(GraphView(module.graph), cpu, training=False).estimate()
    assert not any(n.target is torch.cat for n in cost.parts)


def test_d5_the_two_kinds_are_predicted_differently(device, built):
    module, _ = built("case:D5", False)
    [(_, products), *_] = predictions(module, device, "batch_linears")
    [(_, pointwise), *_] = predictions(module, device, "batch_unaries")
    assert abs(products.gain.mean - pointwise.gain.mean) > 0.01


@pytest.fixture(scope="module")
def d6_graphs():
    """The model at each of the sizes, without memory behind it."""
    graphs = {}
    for experts, rows, inputs, outputs in D6_SHAPES:
        with torch.device("meta"), torch.no_grad():
            model = Experts(experts, inputs, outputs)
            given = [torch.empty(rows, inputs) for _ in range(experts)]
            graphs[rows, inputs], _ = capture(model, given)
    return graphs


def test_d6_predictions_change_with_the_size(device, d6_graphs):
    gains = []
    for graph in d6_graphs.values():
        [(_, prediction), *_] = predictions(graph, device, "batch_linears")
        gains.append(prediction.gain)
    assert len({gain.mean for gain in gains}) == 3
    if device.kind == "cuda":
        large, middle, few = gains
        assert large.mean < middle.mean
        assert few.mean < middle.mean


def test_d6_the_chosen_form_changes_with_the_size(h200, d6_graphs, planned):
    chosen = [planned((graph, []), h200).count("baddbmm") for graph in d6_graphs.values()]
    large, middle, _ = chosen
    assert middle == 1
    assert large == 0


@pytest.mark.parametrize("training", [False, True], ids=["inference", "training"])
def test_d8_nothing_is_worth_doing_and_deciding_that_is_quick(training, cpu, built, planned):
    graph = built("case:D8", training)
    start = time.process_time()
    outcome = planned(graph, cpu, training=training)
    assert time.process_time() - start < 1.0
    assert outcome.plan.steps == ()
    assert outcome.plan.left, "what was left and why is told"


def test_d9_the_uneven_last_piece_is_understood():
    x = torch.randn(2, 10)
    done = rewrite(UnevenSplit(), (x,), *default_table())
    assert done.labels, "the pieces that nobody touches are taken together"
    done.check()


def _differences(one, other):
    """Five differences with these keyword arguments, and five with those."""

    def fn(*inputs):
        pairs = list(zip(inputs[::2], inputs[1::2], strict=True))
        results = [one(*pair) for pair in pairs] + [other(*pair) for pair in pairs]
        return torch.stack(results)

    return fn, tuple(torch.randn(4, 4) for _ in range(10))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (lambda a, b: torch.sub(a, b, alpha=2), lambda a, b: torch.sub(a, b)),
        (lambda a, b: torch.add(a, b, alpha=2), lambda a, b: torch.add(a, b, alpha=4)),
        (
            lambda a, b: torch.div(a, b, rounding_mode="floor"),
            lambda a, b: torch.div(a, b, rounding_mode="trunc"),
        ),
        (lambda a, b: a.sub(b, alpha=0.5), lambda a, b: a - b),
    ],
    ids=["alpha and none", "two alphas", "rounding modes", "method and operator"],
)
def test_d10_keyword_arguments_are_part_of_the_key(one, other):
    fn, inputs = _differences(one, other)
    done = rewrite(fn, inputs, BatchBinaries())
    assert done.labels
    assert all("{members=5}" in label for label in done.labels)
    done.check()


def test_d10_unary_arguments_are_part_of_the_key():
    def fn(*inputs):
        functional = torch.nn.functional
        kinds = [
            lambda x: functional.leaky_relu(x, 0.1),
            functional.leaky_relu,
            lambda x: functional.gelu(x, approximate="tanh"),
            functional.gelu,
            lambda x: torch.clamp(x, min=0.1),
            lambda x: torch.clamp(x, max=0.1),
        ]
        return torch.stack([kind(x) for kind in kinds for x in inputs])

    table = [p for p in default_table() if p.name() == "batch_unaries"]
    done = rewrite(fn, tuple(torch.randn(4, 4) for _ in range(3)), *table)
    assert len(done.labels) == 6
    assert all("{members=3}" in label for label in done.labels)
    done.check()


def test_d11_a_write_is_a_barrier(built, device, planned):
    graph = built("case:D11", False)
    assert planned(graph, device).plan.steps == ()
    assert not rewrite_graph(_copy(graph[0]), list(graph[1]), *default_table()).labels


def _gru(size: int):
    model = UnrolledGru(size, inputs=4, width=4)
    with torch.no_grad():
        return capture(model, [torch.randn(2, size, 4)])[0]


def _planner(module, device, **settings: Any) -> Planner:
    rewriter = Rewriter(GraphView(module.graph), default_table())
    clock = settings.pop("clock", time.monotonic)
    chosen = Settings(**settings)
    model = AnalyticGainModel(
        device, lookahead=chosen.lookahead, max_rehearsals=chosen.max_rehearsals
    )
    return Planner(rewriter, model, chosen, training=False, clock=clock)


@pytest.mark.parametrize(
    "sizes",
    [(20, 80), pytest.param((50, 200, 500), marks=[pytest.mark.slow, pytest.mark.timeout(900)])],
)
def test_d12_planning_time_is_near_linear_in_the_nodes(sizes, cpu):
    seconds = []
    for size in sizes:
        module = _gru(size)
        start = time.process_time()
        _planner(module, cpu, time_budget=1e9).plan()
        seconds.append(time.process_time() - start)
    for size, taken in zip(sizes[1:], seconds[1:], strict=True):
        assert taken < 2.5 * size / sizes[0] * seconds[0] + 0.5, seconds


def test_d12_the_time_budget_is_obeyed(cpu):
    """On a clock by which each rewrite or rehearsal takes a second, and nothing else any time."""

    def plan(budget: float):
        seconds = 0.0
        planner = _planner(_gru(8), cpu, time_budget=budget, clock=lambda: seconds)
        apply = planner.rewriter.apply

        def timed(candidate):
            nonlocal seconds
            seconds += 1
            return apply(candidate)

        planner.rewriter.apply = timed
        return planner.plan(), seconds

    complete, needed = plan(1e9)
    assert "time budget" not in complete.stopped
    part, taken = plan(4.0)
    assert part.stopped == "time budget reached: the plan so far"
    assert any("time budget" in left.reason for left in part.left)
    assert taken <= 4.0 + 3 < needed


def test_d13_the_opposite_is_decided_on_cpu_and_gpu(cpu, h200, built, planned):
    graph = built("case:D13", False)
    assert planned(graph, cpu).plan.steps == ()
    assert planned(graph, h200).patterns == ["batch_branches"]

"""The estimate of a graph's time: what is free, what shares a kernel, what is charged."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from passwright.passes.graph import GraphView
from passwright.passes.matching import Rewriter
from passwright.passes.patterns import BatchLinears
from passwright.passes.table import PatternTable
from passwright.passes.testing import capture, text
from passwright.scheduler.cost import Estimate, GraphCost
from passwright.scheduler.device import Source
from passwright.scheduler.estimate import gain_between


def view_of(fn, *inputs, dynamic=False) -> GraphView:
    return GraphView(capture(fn, inputs, dynamic=dynamic)[0].graph)


def estimate(fn, *inputs, device, training=False) -> Estimate:
    return GraphCost(view_of(fn, *inputs), device, training=training).estimate()


def part(found: Estimate, name: str) -> float:
    """Seconds of all kernels that begin with a node of this name."""
    return sum(s.total for node, s in found.parts.items() if node.name.startswith(name))


def randn(*shape):
    return torch.randn(shape)


def test_views_are_free(device):
    def fn(x):
        a, b = x.split(4, dim=1)
        rows = x.reshape(2, 4, 8).permute(1, 0, 2)
        return a, b.t(), rows, x.narrow(0, 1, 2), x.unbind(0)[3], x[:, 2], x.unsqueeze(0).squeeze(0)

    found = estimate(fn, randn(8, 8), device=device)
    assert (found.kernels, found.parts) == (0, {})


def test_a_fused_chain_is_one_kernel(device):
    def fn(x, y):
        z = torch.abs(x) * 2 + y
        return torch.relu(z.view(4, 16)) - 1

    found = estimate(fn, randn(8, 8), randn(8, 8), device=device)
    assert found.kernels == 1
    moved = 3 * 64 * 4
    expected = device.call_seconds + device.fused_launch + moved / device.bandwidth_for(moved)
    assert found.seconds == pytest.approx(expected)


def test_branches_that_meet_are_one_kernel_and_others_are_not(device):
    def meet(x):
        return torch.sin(torch.tanh(x)) + torch.cos(torch.exp(x))

    def part_ways(x, y):
        return torch.sin(torch.tanh(x)), torch.cos(torch.exp(y))

    assert estimate(meet, randn(8, 8), device=device).kernels == 1
    assert estimate(part_ways, randn(8, 8), randn(8, 8), device=device).kernels == 2


def test_another_number_of_elements_is_another_kernel(device):
    found = estimate(lambda x: torch.tanh(torch.tanh(x).sum(1)), randn(8, 8), device=device)
    assert found.kernels == 2, "the sum runs over what it reads and joins the tanh before it"


def test_a_product_is_a_kernel_of_its_own_and_grows_with_its_work(device):
    def fn(x, w):
        return torch.relu(F.linear(torch.tanh(x), w))

    small = estimate(fn, randn(64, 64), randn(64, 64), device=device)
    assert small.kernels == 3
    assert part(small, "linear") > device.extern_launch
    large = estimate(fn, randn(2048, 1024), randn(1024, 1024), device=device)
    work = 2 * 2048 * 1024 * 1024
    seconds = device.matmul_seconds(torch.float32, work, 2048 * 1024)
    assert part(large, "linear") >= device.extern_launch + seconds


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, w, b: F.linear(x, w.t(), b),
        lambda x, w, _: torch.mm(x, w),
        lambda x, w, _: x @ w,
        lambda x, w, _: x.matmul(w),
        lambda x, w, b: torch.addmm(b, x, w),
        lambda x, w, _: torch.einsum("ij,jk->ik", x, w),
    ],
    ids=["linear", "mm", "operator", "matmul", "addmm", "einsum"],
)
def test_a_product_in_any_spelling_costs_its_work(fn, cpu):
    found = estimate(fn, randn(512, 256), randn(256, 512), randn(512), device=cpu)
    work = 2 * 512 * 256 * 512
    seconds = cpu.matmul_seconds(torch.float32, work, 512 * 512)
    [product] = [s.total for s in found.parts.values() if s.arithmetic]
    assert product == pytest.approx(cpu.extern_launch + seconds, rel=0.3)


def test_a_cat_copies_what_was_given_and_a_batch_of_products(cpu):
    given = estimate(lambda a, b: torch.cat([a, b], 1), randn(64, 8), randn(64, 8), device=cpu)
    moved = 2 * 2 * 64 * 8 * 4
    copies = 2 * cpu.fused_launch + moved / cpu.bandwidth_for(moved)
    assert given.seconds == pytest.approx(cpu.call_seconds + copies)

    def batches(x, y):
        return torch.cat([torch.bmm(x, y), torch.bmm(y, x)], 1)

    made = estimate(batches, randn(64, 4, 4), randn(64, 4, 4), device=cpu)
    assert part(made, "cat") > 2 * cpu.fused_launch


def test_products_are_written_into_a_cat(device):
    """Inductor hands the call its part of the cat's buffer; seen in the code of torch 2.13, measured
    on an H200 (data/devices/h200.json: eight products take as long with a stack after them)."""

    def fn(x, v, w):
        return torch.cat([F.linear(x, v), F.linear(x, w)], 1)

    assert part(estimate(fn, randn(64, 8), randn(8, 8), randn(8, 8), device=device), "cat") == 0


def test_indices_are_computed_where_they_are_looked_up(device):
    def fn(x, table):
        index = x[:, 0].long()
        return F.embedding(index + 1, table)

    x, table = torch.zeros(64, 2), randn(8, 8)
    assert estimate(fn, x, table, device=device).kernels == 1

    def kept(x, table):
        index = x[:, 0].long()
        return F.embedding(index + 1, table), index

    assert estimate(kept, x, table, device=device).kernels == 2


def test_beyond_the_cache_everything_comes_from_memory(cpu):
    """Hundreds of small kernels that together touch more than the cache holds."""

    def fn(*inputs):
        return [torch.relu(x) for x in inputs]

    few = estimate(fn, *[randn(256, 256)] * 1, device=cpu)
    many = estimate(fn, *[randn(256, 256) for _ in range(64)], device=cpu)
    traffic = [next(iter(found.parts.values())).traffic for found in (few, many)]
    ratio = cpu.cache_bandwidth / cpu.memory_bandwidth
    assert traffic[1] == pytest.approx(ratio * traffic[0])


def test_a_cat_takes_pointwise_results_in_place_unless_others_read_them(cpu):
    def alone(a, b):
        return torch.cat([torch.tanh(a), torch.sin(b)], 1)

    def shared(a, b):
        first = torch.tanh(a)
        return torch.cat([first, torch.sin(b)], 1), first

    inputs = randn(64, 8), randn(64, 8)
    assert part(estimate(alone, *inputs, device=cpu), "cat") == 0
    assert part(estimate(shared, *inputs, device=cpu), "cat") > 0


def test_on_a_gpu_a_cat_of_few_is_one_kernel(h200):
    def fn(*inputs):
        return torch.cat(inputs, 1)

    few = estimate(fn, *[randn(64, 8) for _ in range(4)], device=h200)
    assert few.kernels == 1


def test_training_adds_the_backward(device):
    def fn(x, w):
        return torch.tanh(F.linear(x, w))

    inputs = randn(64, 64), randn(64, 64)
    forward = estimate(fn, *inputs, device=device)
    both = estimate(fn, *inputs, device=device, training=True)
    assert part(both, "linear") == pytest.approx(3 * part(forward, "linear"))
    assert both.kernels == 3 + 2
    assert both.seconds > 2 * forward.seconds


def test_the_gradient_of_a_split_is_gathered(device):
    def fn(x):
        a, b = torch.tanh(x).split(4, 1)
        return a + 1, b * 2

    found = estimate(fn, randn(8, 8), device=device, training=True)
    assert part(found, "split") > 0
    assert part(estimate(fn, randn(8, 8), device=device), "split") == 0


def test_an_op_that_nobody_knows_costs_a_call_and_its_memory(device):
    one = estimate(lambda x: torch.sort(x)[0], randn(64, 64), device=device)
    assert part(one, "sort") > device.extern_launch
    assert one.kernels == 1


@pytest.mark.parametrize("size", [2, 8])
def test_a_batch_is_charged_the_copies_of_its_stacks(size, cpu):
    def fn(*inputs):
        xs, ws = inputs[:size], inputs[size:]
        return torch.stack([F.linear(x, w) for x, w in zip(xs, ws, strict=True)])

    view = view_of(fn, *[randn(16, 32) for _ in range(2 * size)])
    rewriter = Rewriter(view, PatternTable([BatchLinears()]))
    cost = GraphCost(view, cpu, training=False)
    before = cost.estimate()
    candidate = max(rewriter.candidates(), key=lambda c: len(c.match.nodes))
    with rewriter.rehearsal():
        record = rewriter.apply(candidate)
        after = cost.estimate()
    stacks = [node for node in record.inserted if node.target is torch.stack]
    assert len(stacks) == 2
    copied = 2 * size * 16 * 32 * 4
    for node in stacks:
        assert after.parts[node].total == pytest.approx(
            size * cpu.fused_launch + copied / cpu.bandwidth_for(copied)
        )
    assert before == cost.estimate(), "what was rehearsed left no trace"


def test_estimates_are_equal_whenever_made(device, built):
    module, _ = built("case:D5", False)
    before = text(module.graph)
    first, second = (
        GraphCost(GraphView(module.graph), device, training=True).estimate() for _ in range(2)
    )
    assert list(first.parts.items()) == list(second.parts.items())
    assert text(module.graph) == before


def test_a_symbolic_size_counts_by_its_hint(device):
    def fn(x, w):
        a, b = torch.tanh(F.linear(x, w)).chunk(2, dim=1)
        return torch.cat([b, a], 1)

    def seconds(dynamic: bool) -> float:
        view = view_of(fn, randn(48, 16), randn(32, 16), dynamic=dynamic)
        return GraphCost(view, device, training=False).estimate().seconds

    assert seconds(dynamic=True) == pytest.approx(seconds(dynamic=False))


def test_fused_work_is_counted_once_however_the_graph_lists_it(cpu):
    """Two chains that a late op joins, listed one after the other or in turns."""

    def in_turns(x, y):
        a, b = torch.sin(x), torch.sin(y)
        a, b = torch.cos(a), torch.cos(b)
        return a + b

    def one_by_one(x, y):
        a = torch.cos(torch.sin(x))
        return a + torch.cos(torch.sin(y))

    inputs = randn(32, 32), randn(32, 32)
    found = [estimate(fn, *inputs, device=cpu) for fn in (in_turns, one_by_one)]
    assert found[0].kernels == found[1].kernels == 1
    assert found[0].seconds == found[1].seconds


def test_a_call_costs_something_and_more_in_training(device):
    empty = [
        estimate(lambda x: x.t(), randn(8, 8), device=device, training=t) for t in (False, True)
    ]
    assert 0 < empty[0].seconds == device.call_seconds < empty[1].seconds


# ---- what the device says is what counts

SMALL, LARGE = {"cache_bytes": 1 << 10}, {"cache_bytes": 1 << 40}


@pytest.mark.parametrize(
    ("name", "cache"),
    [
        ("memory_bandwidth", SMALL),
        ("cache_bandwidth", LARGE),
        ("fused_launch", {}),
        ("extern_launch", {}),
        ("call_seconds", {}),
    ],
)
def test_each_figure_of_the_device_counts(device, name, cache):
    """A probe changes estimates: none of these is a constant of one device."""

    def fn(x, w, y):
        return torch.relu(x @ w), torch.abs(y)

    graph = view_of(fn, randn(256, 256), randn(256, 256), randn(4096, 1024))
    device = replace(device, **cache)
    other = replace(device, **{name: getattr(device, name) * 3})
    before, after = (
        GraphCost(graph, d, training=False).estimate().seconds for d in (device, other)
    )
    assert before != pytest.approx(after, rel=1e-3)


def test_a_larger_cache_is_faster(device):
    graph = view_of(torch.abs, randn(4096, 1024))
    small, large = (
        GraphCost(graph, replace(device, **cache), training=False).estimate().seconds
        for cache in (SMALL, LARGE)
    )
    assert large < small


def test_each_precision_has_a_rate_of_its_own(device):
    def fn(x, w):
        return x @ w

    for dtype, name in (
        (torch.float32, "tf32" if device.tf32 else "fp32"),
        (torch.float64, "fp64"),
        (torch.bfloat16, "bf16"),
        (torch.float16, "fp16"),
    ):
        graph = view_of(fn, *(randn(1024, 1024).to(dtype) for _ in range(2)))
        other = replace(device, peak_flops={**device.peak_flops, name: device.peak_flops[name] / 9})
        before, after = (GraphCost(graph, d, training=False).estimate() for d in (device, other))
        assert after.seconds > 1.5 * before.seconds


def test_gains_on_a_device_that_nobody_measured_are_less_sure(h200):
    """Of fewer launches against more traffic: how these compare is the device's affair."""

    def many(x):
        return [x[:, i * 64 : i * 64 + 64] + i for i in range(8)]

    def one(x):
        return torch.relu(x) + 1

    derived = replace(h200, source=Source.DERIVED)
    x = randn(4096, 512)
    gains = [
        gain_between(*(estimate(fn, x, device=d) for fn in (many, one))) for d in (h200, derived)
    ]
    assert gains[0].mean == gains[1].mean > 0
    assert gains[1].lower < gains[0].lower

"""What the estimate charges for grouped kernels."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from passwright.passes.kernels import version
from passwright.passes.kernels.grouped_gather import GROUPED_GATHER
from passwright.passes.kernels.grouped_layer_norm import GROUPED_LAYER_NORM
from passwright.passes.kernels.grouped_linear import GROUPED_LINEAR
from passwright.passes.sketch import Sketch
from passwright.scheduler.cost import GraphCost
from passwright.scheduler.device import describe_gpu
from passwright.scheduler.estimate import Estimate
from passwright.scheduler.group_cost import PRODUCT_SHARE, is_grouped
from passwright.training.kernel_cases import Case, cases

DATA = Path(__file__).parents[2] / "data"

H200 = describe_gpu("NVIDIA H200")
WIDTHS = (64, 128, 16)
#: Microseconds of the grouped form of each case of Linears.
MEASURED = {
    row[0]: row[2]
    for row in json.loads((DATA / "devices" / "kernels-h200.json").read_text())["rows"]
    if row[1] == "grouped" and row[0].startswith("linear ")
}


def estimate(s: Sketch, *results: Any, training: bool = False) -> Estimate:
    s.output(*results)
    return GraphCost(s.view(), H200, training=training).estimate()


def linears(s: Sketch, grouped: bool, rows: int = 2048) -> list[Any]:
    xs, ws = [s.input(rows, k) for k in WIDTHS], [s.input(64, k) for k in WIDTHS]
    if grouped:
        return [s.call(GROUPED_LINEAR, xs, ws, [], "relu", version())]
    return [s.call(torch.relu, s.call(F.linear, x, w)) for x, w in zip(xs, ws, strict=True)]


def norms(s: Sketch, grouped: bool) -> list[Any]:
    xs = [s.input(2048, k) for k in WIDTHS]
    if grouped:
        return [s.call(GROUPED_LAYER_NORM, xs, [], [], 1e-5, version())]
    return [s.call(F.layer_norm, x, [k]) for x, k in zip(xs, WIDTHS, strict=True)]


def lookups(s: Sketch, grouped: bool) -> list[Any]:
    tables = [s.input(1000, k) for k in WIDTHS]
    indices = [s.input(2048, dtype=torch.int64) for _ in WIDTHS]
    if grouped:
        return [s.call(GROUPED_GATHER, indices, tables, [-1] * 3, version())]
    return [s.call(F.embedding, i, t) for i, t in zip(indices, tables, strict=True)]


@pytest.mark.parametrize("make", [linears, norms, lookups])
def test_one_launch_forward(make: Any) -> None:
    found = [estimate(s, *make(s, grouped)) for s, grouped in ((Sketch(), True), (Sketch(), False))]
    assert [e.kernels for e in found] == [1, 6 if make is linears else 3]
    if make is not linears:  # whose products are slower than a library's: see PRODUCT_SHARE
        assert found[0].seconds < found[1].seconds


@pytest.mark.parametrize(("make", "kernels"), [(linears, 5), (norms, 4), (lookups, 2)])
def test_launches_of_a_training_step(make: Any, kernels: int) -> None:
    """They do not depend on the number of members."""
    s, t = Sketch(), Sketch()
    found = estimate(s, *make(s, True), training=True)
    assert found.kernels == kernels
    assert found.seconds < estimate(t, *make(t, False), training=True).seconds


def test_arithmetic_and_traffic_of_linears() -> None:
    s = Sketch()
    (part,) = estimate(s, *linears(s, True)).parts.values()
    work, outputs = 2 * 2048 * 64 * sum(WIDTHS), 2048 * 64 * 3
    seconds = (
        H200.matmul_seconds(torch.float32, work, outputs)
        / PRODUCT_SHARE["other" if H200.tf32 else "fp32"][0]
    )
    assert part.arithmetic == pytest.approx(seconds)
    moved = 4 * (2048 * sum(WIDTHS) + 64 * sum(WIDTHS) + outputs)
    assert part.traffic == pytest.approx(moved / H200.bandwidth_for(moved))


def test_another_op_of_that_name_is_not_ours() -> None:
    def grouped_linear(x: Any) -> Any:
        return x.clone()

    s = Sketch()
    assert not is_grouped(s.call(grouped_linear, s.input(3)))


@pytest.mark.parametrize("case", [c for c in cases() if c.name in MEASURED], ids=lambda c: c.name)
def test_linears_take_about_what_was_measured(case: Case) -> None:
    """Within a factor of two of the whole module on an H200, which scales its input as well."""
    device = describe_gpu("NVIDIA H200", tf32=case.precision != "fp32")
    dtype = torch.bfloat16 if case.precision == "bf16" else torch.float32
    s = Sketch()
    xs = [s.input(case.batch, k, dtype=dtype) for k, _ in case.sizes]
    ws = [s.input(n, k, dtype=dtype) for k, n in case.sizes]
    s.output(s.call(GROUPED_LINEAR, xs, ws, [], "relu", version()))
    found = GraphCost(s.view(), device, training=case.training).estimate()
    assert 0.5 < found.seconds * 1e6 / MEASURED[case.name] < 2

"""Batch norms side by side."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from batch_norm_graphs import NORMS, applied, norm, statistics, used
from torch import fx

from passwright.passes.dialect import Dialect

# ---- before and after


def test_training(sketch: Any) -> None:
    s = sketch()
    used(s, *(norm(s, s.input(5, width)) for width in (4, 6)))
    result = applied(s)
    assert [label.split(" @ ")[0] for label in result.labels] == [
        "batch_norms_by_channel{members=2}"
    ]
    assert result.after == [
        "pw0_cat = cat([x0, x5], dim=1)",
        "pw1_cat = cat([x3, x8], dim=0)",
        "pw2_cat = cat([x4, x9], dim=0)",
        "pw3_cat = cat([x1, x6], dim=0)",
        "pw4_cat = cat([x2, x7], dim=0)",
        "pw5_batch_norm = batch_norm(pw0_cat, pw3_cat, pw4_cat, pw1_cat, pw2_cat, True, 0.1, 1e-05)",
        "pw6_split = split(pw3_cat, [4, 6], dim=0)",
        "pw7_split = split(pw4_cat, [4, 6], dim=0)",
        "pw8_split = split(pw5_batch_norm, [4, 6], dim=1)",
        "pw9_getitem = getitem(pw8_split, 0)",
        "pw10_getitem = getitem(pw8_split, 1)",
        "pw11_getitem = getitem(pw7_split, 0)",
        "pw12_getitem = getitem(pw7_split, 1)",
        "pw13_getitem = getitem(pw6_split, 0)",
        "pw14_getitem = getitem(pw6_split, 1)",
        (
            "pw15__foreach_copy_ = _foreach_copy_("
            "[x1, x6, x2, x7], [pw13_getitem, pw14_getitem, pw11_getitem, pw12_getitem])"
        ),
        "tanh = tanh(pw9_getitem)",
        "sum_1 = sum(tanh, [0])",
        "tanh_1 = tanh(pw10_getitem)",
        "sum_2 = sum(tanh_1, [0])",
        "return (sum_1, sum_2)",
    ]


def test_evaluation_writes_nothing(sketch: Any) -> None:
    s = sketch()
    shared = statistics(s, 4)
    a, b = (norm(s, s.input(5, 4), stats=shared, training=False) for _ in range(2))
    used(s, a, b, norm(s, s.input(5, 6), training=False, momentum=0.3))
    result = applied(s)
    assert result.count("batch_norm") == 1
    assert result.count("_foreach_copy_") == 0


@pytest.mark.parametrize("affine", ["wb", "w", "b", ""])
@pytest.mark.parametrize("shape", [(), (3,), (3, 2), (2, 3, 2)])
@pytest.mark.parametrize("stats", [True, False])
def test_kinds(sketch: Any, affine: str, shape: tuple[int, ...], stats: bool) -> None:
    s = sketch()
    x = [s.input(4, width, *shape, requires_grad=True) for width in (2, 3, 2)]
    used(s, *(norm(s, value, affine=affine, stats=stats) for value in x))
    result = applied(s)
    assert result.count("batch_norm") == 1
    assert result.count("_foreach_copy_") == stats


def test_spellings(sketch: Any) -> None:
    s = sketch()
    stats = [statistics(s, 3) for _ in range(4)]
    w, b = s.input(3), s.input(3)
    x = [s.input(5, 3) for _ in range(4)]
    used(
        s,
        s.call(F.batch_norm, x[0], *stats[0], w, b, True, 0.1, 1e-5),
        s.call(
            F.batch_norm, x[1], running_var=stats[1][1], running_mean=stats[1][0], training=True,
            weight=w, bias=b,
        ),
        s.call(torch.batch_norm, x[2], w, b, *stats[2], True, 0.1, 1e-5, True),
        s.call(torch.batch_norm, x[3], w, b, *stats[3], True, 0.1, 1e-5, False),
    )  # fmt: skip
    assert applied(s).labels[0].startswith("batch_norms_by_channel{members=4}")


def test_channels_last_inputs(sketch: Any) -> None:
    s = sketch()
    x = [s.input(2, 4, 3, 3, stride=(36, 1, 12, 4)) for _ in range(2)]
    used(s, norm(s, x[0]), norm(s, x[1]), norm(s, s.input(2, 5, 3, 3)))
    assert applied(s).count("batch_norm") == 1


def test_outputs_keep_their_strides(sketch: Any) -> None:
    s = sketch()
    s.output(*(norm(s, s.input(5, 4, requires_grad=True)) for _ in range(2)))
    assert applied(s).count("clone") == 2


def test_an_unused_result_still_updates(sketch: Any) -> None:
    s = sketch()
    first, _ = norm(s, s.input(5, 4)), norm(s, s.input(5, 4))
    used(s, first)
    assert applied(s).count("_foreach_copy_") == 1


def test_levels(sketch: Any) -> None:
    """A batch norm of a batch norm, with early users: the members of one level are one batch."""
    s = sketch()
    values = [s.input(5, 4, requires_grad=True) for _ in range(2)]
    for _ in range(2):
        values = [s.call(torch.sin, norm(s, value)) for value in values]
    used(s, *values)
    result = applied(s)
    assert len(result.labels) == 2
    assert result.count("_foreach_copy_") == 2


# ---- what forbids it


@pytest.mark.parametrize(
    "other",
    [
        pytest.param({"training": False}, id="training"),
        pytest.param({"momentum": 0.2}, id="momentum"),
        pytest.param({"eps": 1e-4}, id="eps"),
        pytest.param({"affine": "w"}, id="no bias"),
        pytest.param({"affine": "b"}, id="no weight"),
        pytest.param({"stats": False}, id="no statistics"),
        pytest.param({"shape": (4, 3)}, id="rows"),
        pytest.param({"shape": (5, 3, 2)}, id="rank"),
        pytest.param({"input": torch.float64, "dtype": torch.float64}, id="type"),
        pytest.param({"input": torch.bfloat16}, id="type of the input"),
    ],
)
def test_near_misses(sketch: Any, groups: Any, other: dict[str, Any]) -> None:
    s = sketch()
    values = []
    for case in {}, other:
        case = dict(case)
        x = s.input(*case.pop("shape", (5, 3)), dtype=case.pop("input", torch.float32))
        values.append(norm(s, x, **case))
    s.output(*values)
    assert groups(s, NORMS) == []


def shared_by_both(s: Any, stats: Any) -> list[fx.Node]:
    return [norm(s, s.input(5, 4), stats=stats)]


def returned(s: Any, stats: Any) -> list[fx.Node]:
    return [stats[1]]


def read(s: Any, stats: Any) -> list[fx.Node]:
    return [s.call(torch.sin, stats[0])]


def viewed(s: Any, stats: Any) -> list[fx.Node]:
    return [s.call("view", stats[0], 2, 2)]


def written(s: Any, stats: Any) -> list[fx.Node]:
    s.call("mul_", stats[1], 0.5)
    return []


def evaluated(s: Any, stats: Any) -> list[fx.Node]:
    return [norm(s, s.input(5, 4), stats=stats, training=False)]


@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("touch", [shared_by_both, returned, read, viewed, written, evaluated])
def test_statistics_that_others_touch(
    sketch: Any, groups: Any, touch: Callable[..., list[fx.Node]], early: bool
) -> None:
    s = sketch()
    stats = statistics(s, 4)
    results = touch(s, stats) if early else []
    norms = [norm(s, s.input(5, 4), stats=stats), *(norm(s, s.input(5, 4)) for _ in range(2))]
    results += touch(s, stats) if not early else []
    s.output(*norms, *results)
    # The one whose statistics are seen is left out.
    assert groups(s, NORMS) == [2]
    # Autograd itself forbids a later write to what a batch norm has read.
    assert applied(s, gradients=touch is not written).count("batch_norm") >= 2


def one_for_both(s: Any) -> tuple[fx.Node, fx.Node]:
    stats = s.input(4)
    return stats, stats


def overlapping(s: Any) -> tuple[fx.Node, fx.Node]:
    """Two inputs of the graph that lie in one memory."""
    mean, var = s.input(4), s.input(4)
    with s.mode:
        whole = torch.empty(8)
        mean.meta[s.key], var.meta[s.key] = whole[:4], whole[4:]
    return mean, var


@pytest.mark.parametrize("make", [one_for_both, overlapping])
def test_statistics_in_one_memory(sketch: Any, groups: Any, make: Callable[..., Any]) -> None:
    s = sketch()
    s.output(norm(s, s.input(5, 4), stats=make(s)), norm(s, s.input(5, 4)))
    assert groups(s, NORMS) == []


def test_statistics_are_a_view(sketch: Any, groups: Any) -> None:
    """Rows of one table of statistics: the write would have to go through a view."""
    s = sketch()
    table = s.input(2, 4)
    values = []
    for _ in range(2):
        mean, var = (s.call(torch.select, table, 0, index) for index in range(2))
        values.append(norm(s, s.input(5, 4), stats=(mean, var)))
    s.output(*values)
    assert groups(s, NORMS) == []


def test_statistics_are_a_parameter_too(sketch: Any, groups: Any) -> None:
    s = sketch()
    values = []
    for _ in range(2):
        mean, var = statistics(s, 4)
        arguments = (s.input(5, 4), mean, var, mean, s.input(4))
        values.append(s.call(F.batch_norm, *arguments, training=True))
    s.output(*values)
    assert groups(s, NORMS) == []


def test_write_between_members(sketch: Any, groups: Any) -> None:
    s = sketch()
    x, y = s.input(5, 4), s.input(5, 4)
    w = s.input(4)
    results = [norm(s, x)]
    s.call("add_", x, 1)
    results += [norm(s, x), norm(s, y)]
    stats = [statistics(s, 4) for _ in range(2)]
    results.append(s.call(F.batch_norm, y, *stats[0], w, s.input(4), training=True))
    s.call("mul_", w, 2)
    results.append(s.call(F.batch_norm, y, *stats[1], w, s.input(4), training=True))
    used(s, *results)
    assert groups(s, NORMS) == [2]
    applied(s, gradients=False)  # autograd forbids such writes


def test_regions(sketch: Any, groups: Any) -> None:
    s = sketch()
    x = [s.input(5, 4) for _ in range(4)]
    trained = [norm(s, value) for value in x[:2]]
    s.call(torch._C._set_grad_enabled, False)
    silent = [norm(s, value) for value in x[2:]]
    s.call(torch._C._set_grad_enabled, True)
    used(s, *trained, *silent)
    assert groups(s, NORMS) == [2, 2]
    applied(s)


def test_unknown_op_near_the_statistics(sketch: Any, groups: Any) -> None:
    """A custom op might do anything with what it gets."""
    s = sketch()
    mean, var = statistics(s, 4)
    first = norm(s, s.input(5, 4), stats=(mean, var))
    s.call("set_", mean, mean)
    s.output(first, norm(s, s.input(5, 4)))
    assert groups(s, NORMS) == []


def test_torch_ir_only() -> None:
    assert frozenset({Dialect.TORCH}) == NORMS.levels


# ---- types


@pytest.mark.parametrize(
    ("input_type", "parameter_type"),
    [
        (torch.float64, torch.float64),
        (torch.bfloat16, torch.bfloat16),
        (torch.float16, torch.float16),
        (torch.bfloat16, torch.float32),
    ],
)
@pytest.mark.parametrize("training", [True, False])
def test_types(
    sketch: Any, input_type: torch.dtype, parameter_type: torch.dtype, training: bool
) -> None:
    s = sketch()
    values = [s.input(6, width, dtype=input_type) for width in (3, 9)]
    s.output(*(norm(s, x, dtype=parameter_type, training=training) for x in values))
    result = applied(s, gradients=input_type is torch.float64)
    assert result.count("batch_norm") == 1

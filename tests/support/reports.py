"""Hand-made reports: of a model with steps, of one without, of a data set."""

from __future__ import annotations

from typing import Any

import numpy as np
from record_rows import record

from passwright.scheduler.gain import Interval
from passwright.training.data_stats import summarise
from passwright.training.gain_metrics import Plans
from passwright.training.report.content import About, Found
from passwright.training.report.data_content import DataReport
from passwright.training.report.model_content import (
    INSERTED,
    REMOVED,
    Drawing,
    DrawnNode,
    GraphPart,
    KernelRow,
    LeftPart,
    ModelReport,
    Part,
    Profile,
    StepPart,
    Variant,
)

NOTHING = Interval(0.0, 0.0, 0.0)
PLAN = "# passwright plan 1\n# graph abc torch inference cpu\nclean_up @ graph:all  # 1.11x [1.05, 1.16]\n"


def about(**changes: Any) -> About:
    usual: dict[str, Any] = {
        "subject": "own:split_cat",
        "device": "some CPU",
        "kind": "cpu",
        "date": "2026-11-30 12:00 UTC",
        "command": "passwright report own:split_cat",
        "versions": {"torch": "2.13.0+cpu", "passwright": "0.1.0"},
        "gain_model": "analytic",
    }
    return About(**usual | changes)


def drawing(count: int, mark: str, step: int) -> Drawing:
    """An input, a split, and so many pieces through a sigmoid into a cat."""
    nodes = [DrawnNode("x", "input", "[8, 64]", is_input=True), DrawnNode("split", "split", "")]
    edges = [(0, 1)]
    for number in range(count):
        nodes.append(DrawnNode(f"piece_{number}", "getitem", "[8, 8]", mark, step))
        nodes.append(DrawnNode(f"sigmoid_{number}", "sigmoid", "[8, 8]", mark, step))
        edges += [(1, len(nodes) - 2), (len(nodes) - 2, len(nodes) - 1)]
    nodes.append(DrawnNode("cat", "cat", "[8, 64]"))
    edges += [(at, len(nodes) - 1) for at in range(3, len(nodes) - 1, 2)]
    return Drawing(tuple(nodes), tuple(edges))


def profile(*names: str) -> Profile:
    rows = tuple(
        KernelRow(name, "pointwise", 1.0, (len(names) - at) * 1e-5) for at, name in enumerate(names)
    )
    return Profile(rows, 1e-4, "by hand")


def model_report(**changes: Any) -> ModelReport:
    """Three steps: the first as predicted, the second far slower, the third not to be told."""
    gains = [Interval(0.1, 0.05, 0.15), Interval(0.3, 0.2, 0.4), Interval(0.05, 0.0, 0.1)]
    found = [
        Found(0.12, 0.1, 0.14, 0.01),
        Found(0.05, 0.03, 0.07, 0.01),
        Found(0.13, 0.09, 0.17, 0.01),
    ]
    steps = tuple(
        StepPart(
            number,
            1,
            "torch",
            f"pattern_{number}",
            f"pattern_{number} @ ab{number}:cd{number}",
            "surely gains by itself",
            gain,
            gain,
            diff=(
                "- %a : [num_users=1] = call_function[target=torch.sin](args = (%x,), kwargs = {})",
            ),
        )
        for number, gain in enumerate(gains, 1)
    )
    total = Interval(0.45, 0.35, 0.55)
    usual: dict[str, Any] = {
        "about": about(),
        "train": False,
        "batch": 8,
        "graphs": (
            GraphPart(
                1,
                "torch",
                "abc",
                18,
                6,
                total,
                "predicted",
                False,
                "no candidate expected to gain",
                0.2,
                1e-4,
                5e-5,
                before=drawing(8, REMOVED, 1),
                after=drawing(1, INSERTED, 2),
                text=PLAN,
            ),
        ),
        "steps": steps,
        "left": (
            LeftPart(
                1, "torch", "tall @ x:y", "gain not certain enough", Interval(0.02, -0.1, 0.1)
            ),
            LeftPart(1, "torch", "wide @ x:z", "predicted slower", Interval(-0.2, -0.3, -0.1)),
        ),
        "predicted": total,
        "found": Found(0.3, 0.28, 0.32, 0.01),
        "floor": 0.01,
        "parts": tuple(
            Part(n, n, f"step {n}", gain, gain, one, one, 1e-4 / n, 10 - n)
            for n, (gain, one) in enumerate(zip(gains, found, strict=True), 1)
        ),
        "before": Variant(
            "default", 2.5, 10, (1.0e-4, 1.1e-4, 1.05e-4), "wall", agreement="agrees"
        ),
        "after": Variant(
            "passwright", 1.5, 4, (0.7e-4, 0.8e-4, 0.75e-4), "wall", agreement="agrees"
        ),
        "kernels_before": profile("cpp_fused_sin_0", "aten::mm", "cpp_fused_cat_1"),
        "kernels_after": profile("cpp_fused_cat_sin_0"),
    }
    return ModelReport(**usual | changes)


def empty_report(**changes: Any) -> ModelReport:
    """Nothing was worth a step."""
    same = Found(0.0, 0.0, 0.0, 0.0, same_code=True)
    graph = GraphPart(
        1, "torch", "abc", 18, 18, NOTHING, "predicted", False, "no candidate expected to gain", 0.2,
        before=drawing(3, "", 0), after=drawing(3, "", 0), text=PLAN,
    )  # fmt: skip
    plain: dict[str, Any] = {
        "graphs": (graph,),
        "steps": (),
        "predicted": NOTHING,
        "found": same,
        "floor": None,
        "parts": (),
        "kernels_after": profile("cpp_fused_sin_0", "aten::mm", "cpp_fused_cat_1"),
    }
    return model_report(**plain | changes)


def plans(workload: str = "zoo:a/B@batch=8", family: str = "b", shift: float = 0.0) -> Plans:
    """Doing nothing and four plans; the last was found by search."""
    gains = np.array([0.0, 0.3, 0.1, -0.2, 0.5])
    predicted = np.array([0.0, 0.28, 0.2, -0.1, 0.2]) + shift
    return Plans(
        workload,
        family,
        gains,
        np.array([0.0, 0.01, 0.01, 0.01, 0.01]),
        predicted,
        predicted - 0.08,
        predicted + 0.08,
        by=("nothing", "predicted", "stock", "walk", "search"),
        patterns=(
            frozenset(),
            frozenset({"good"}),
            frozenset({"good", "odd"}),
            frozenset({"odd"}),
            frozenset({"good", "rare"}),
        ),
    )


def data_report(**changes: Any) -> DataReport:
    """Two workloads of two families, of which one was learned from."""
    from passwright.training.report.data_scores import group_of, pattern_rows, search_rows
    from passwright.training.report.of_data import SEEN, UNSEEN, family_rows, misses_of, points_of

    new, old = plans(), plans("zoo:a/C@batch=8", "c", shift=0.02)
    learned = frozenset({"c"})
    points = tuple(point for one in (new, old) for point in points_of(one, learned))
    records = [record(gain=0.0), record("good", gain=0.3), record("odd", gain=-0.2)]
    usual: dict[str, Any] = {
        "about": about(subject="records.parquet", kind="data"),
        "stats": summarise(records).to_json(),
        "points": points,
        "floor": 0.01,
        "groups": (group_of(UNSEEN, [new]), group_of(SEEN, [old])),
        "families": family_rows([new, old], learned),
        "patterns": tuple(pattern_rows([new, old])),
        "searches": tuple(search_rows([new, old])),
        "misses": tuple(misses_of(points, records)),
    }
    return DataReport(**usual | changes)

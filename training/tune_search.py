"""`passwright tune --budget`: a search over a user's own model, whose best plans are then measured again.

The model is built anew in worker processes by its name. What the search finds are proposals: `tune` itself
compares the best of them with default compile, and keeps the winner.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path

import torch

from passwright.passes.errors import WorkloadError
from passwright.scheduler.device import describe
from passwright.scheduler.plan import Plan
from passwright.training.farm import Farm
from passwright.training.processes import cores
from passwright.training.records import Record
from passwright.training.search.models import ModelProblem
from passwright.training.search.space import Labels
from passwright.training.search.study import search
from passwright.training.store import Store
from passwright.training.workloads.capture import captured
from passwright.training.workloads.exact import build_exact
from passwright.training.workloads.spec import Spec

#: Of the budget, what the search may use; the rest is for measuring the winner again.
_SHARE = 0.75
#: Plans that are compared with default compile at the end.
_FINALISTS = 3
_MOST_JOBS = 16
#: Seconds that one plan may take at least.
_PATIENCE = 60.0


def best_plans(
    model: str,
    *,
    batch: int | None,
    seed: int,
    device: torch.device,
    train: bool,
    budget: float,
    records: Path | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> list[tuple[Plan, ...]]:
    """Plans of the model's graphs that measured fastest, best first; empty where none beat default.

    `budget` in seconds; `records`: a directory to which every measured plan is added. Ctrl-C ends the
    search, and what was best until then comes back. Raises WorkloadError if the model cannot be had, and
    what its default compile raises.
    """
    start = time.monotonic()
    precision = "fp32" if torch.get_float32_matmul_precision() == "highest" else "tf32"
    name = str(Spec(model, batch or 0, precision, train, seed))
    module, inputs = build_exact(name, device)
    if isinstance(inputs, Mapping):
        raise WorkloadError(
            f"{model} takes inputs by name, which a search cannot compare yet; return them as a tuple, or"
            " leave --budget out"
        )
    graphs = captured(module, inputs, train=train)
    jobs = min(_MOST_JOBS, cores())
    run = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
    found: list[Record] = []
    with (
        Store(records) if records else nullcontext() as store,
        Farm(
            name,
            [str(device)],
            jobs,
            threads=torch.get_num_threads() if device.type == "cpu" else 1,
            patience=max(_PATIENCE, budget / 2),
            run=run,
        ) as farm,
    ):

        def told(fresh: Sequence[Record]) -> None:
            found.extend(fresh)
            if store is not None:
                store.append(fresh)
            best = math.exp(max((r.gain for r in found if r.gain is not None), default=0.0))
            left = budget - (time.monotonic() - start)
            say(f"{len(found)} plans measured, best {best:.2f}x; {max(0.0, left):.0f} s left")

        problem = ModelProblem(graphs, describe(device), farm, training=train, told=told)
        outcome = search(
            problem,
            trials=1_000_000,
            seed=seed,
            time_limit=_SHARE * budget - (time.monotonic() - start),
            batch=jobs,
            confirm=0,
        )
        ranking: list[tuple[Labels, float]] = [
            item for item in outcome.ranking if item[0] and item[1] > 0.0
        ]
        plans = {
            plan.key: plan.plans
            for sequence, _ in ranking
            if (plan := problem.plan_of(sequence)).steps
        }
    return list(plans.values())[:_FINALISTS]

"""`passwright tune --budget`: a search over a user's own model, whose best plans are then measured again.

The model is built anew in worker processes by its name. What the search finds are proposals: `tune` itself
compares the best of them with default compile, and keeps the winner.

Runs that draw random numbers cannot be compared, so the search looks at the model with every rate of
dropout at 0. That is another graph, since rates are written in it. What is carried over are sequences of
macros, which are done anew on the graphs of the model as it is, each step under its own conditions.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path

import torch
from torch import fx

from passwright.passes.address import target_name
from passwright.passes.effects import is_random
from passwright.passes.errors import WorkloadError
from passwright.scheduler.commands.models import load_model
from passwright.scheduler.device import describe
from passwright.scheduler.plan import Plan
from passwright.training.agreement import has_dropout, without_dropout
from passwright.training.farm import Farm
from passwright.training.model_plan import ModelPlan
from passwright.training.processes import cores
from passwright.training.proposals import Graphs
from passwright.training.records import Record
from passwright.training.search.models import ModelProblem, Sequences
from passwright.training.search.study import search
from passwright.training.store import Store
from passwright.training.workloads.capture import captured
from passwright.training.workloads.registry import build
from passwright.training.workloads.spec import Spec

log = logging.getLogger(__name__)

#: Of the budget, what is kept for measuring the winner again: so much, or time for so many of the slowest
#: compiles that were seen, up to half of it.
_REST, _COMPILES, _MOST_REST = 0.25, 3, 0.5
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

    `budget` in seconds, from this call on. A quarter of it, or more where compiles are slow, is left for
    the caller to compare the plans in; what is not measured by then is dropped, and no plan is begun that
    would not be, to judge by the slowest compile so far. `records`: a directory to which every measured
    plan is added. Ctrl-C ends the search, and what was best until then comes back.

    Raises WorkloadError if the model cannot be had, or draws random numbers in another way than by dropout,
    and what its default compile raises.
    """
    start = time.monotonic()

    found: list[Record] = []

    def remaining() -> float:
        return budget - (time.monotonic() - start)

    def left() -> float:
        rest = _COMPILES * _slowest_compile(found)
        return remaining() - min(max(rest, _REST * budget), _MOST_REST * budget)

    def room() -> float:
        """Seconds in which a plan can still be begun."""
        return left() - _slowest_plan(found)

    precision = "fp32" if torch.get_float32_matmul_precision() == "highest" else "tf32"
    name = str(Spec(model, batch or 0, precision, train, seed))
    subject = load_model(model, build, batch=batch, seed=seed, device=device, train=train)
    graphs = own = captured(subject.module, subject.inputs, train=train)
    if has_dropout(subject.module):
        graphs = captured(without_dropout(subject.module), subject.inputs, train=train)
    _refuse_random(model, subject.phase, graphs)
    jobs = min(_MOST_JOBS, cores())
    run = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
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
            say(f"{len(found)} plans measured, best {best:.2f}x; {max(0.0, left()):.0f} s left")

        problem = ModelProblem(graphs, describe(device), farm, training=train, told=told, left=left)
        outcome = search(
            problem,
            trials=1_000_000,
            seed=seed,
            time_limit=room,
            batch=jobs,
            confirm=0,
        )
        if left() > 0 >= room():
            say(
                f"searching ends with {left():.0f} s left: plans took up to {_slowest_plan(found):.0f} s to"
                " compile"
            )
    if not found:
        log.warning(
            "no plan was measured in %.0f s of searching, so only predicted ones are compared; give a"
            " longer --budget",
            time.monotonic() - start,
        )
    best = [sequence for sequence, gain in outcome.ranking if sequence and gain > 0.0]
    as_it_is = problem.plan_of
    if graphs is not own:
        as_it_is = Sequences(Graphs(own, describe(device), train)).plan_of
    # Default compile and a plan have to be compiled yet; further plans may not take their time.
    return _finalists(map(as_it_is, best), lambda: remaining() > 2 * _slowest_compile(found))


def _slowest_plan(records: Sequence[Record]) -> float:
    """Seconds."""
    return max((r.compile_seconds or 0.0 for r in records), default=0.0)


def _slowest_compile(records: Sequence[Record]) -> float:
    """Of plans and of default compile, seconds."""
    defaults = max((r.default_compile_seconds or 0.0 for r in records), default=0.0)
    return max(_slowest_plan(records), defaults)


def _finalists(
    plans: Iterable[ModelPlan], has_time: Callable[[], bool] = lambda: True
) -> list[tuple[Plan, ...]]:
    """The first that make different graphs; no more are looked at once there is one and no time."""
    found: dict[str, tuple[Plan, ...]] = {}
    for plan in plans:
        if plan.steps:
            found.setdefault(plan.key, plan.plans)
        if len(found) == _FINALISTS or (found and not has_time()):
            break
    return list(found.values())


def _refuse_random(model: str, phase: str, graphs: Sequence[fx.GraphModule]) -> None:
    """Raises WorkloadError where a graph draws random numbers still: no two runs could be compared."""
    parts = (part for graph in graphs for part in graph.modules())
    inner = (part.graph for part in parts if isinstance(part, fx.GraphModule))
    drawing = sorted({target_name(n) for graph in inner for n in graph.nodes if is_random(n)})
    if drawing:
        raise WorkloadError(
            f"{model} draws random numbers in {phase} ({', '.join(drawing)}), so that a search cannot tell"
            " right plans from wrong ones; draw them outside of the model and pass them in, hold a rate of"
            " dropout in nn.Dropout or in an attribute with `dropout` in its name, or leave --budget out"
        )

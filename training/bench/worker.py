"""A worker of the benchmark: compiles every rival of one case, looks whether each is right, and then
measures all of them in interleaved blocks, alone on the device.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from passwright.training.bench.rivals import Rival
from passwright.training.bench.rows import Case
from passwright.training.collect_worker import doing
from passwright.training.headroom.final import DEFAULT
from passwright.training.headroom.worker import Answers, Model, Task
from passwright.training.worker import Seat, serve

if TYPE_CHECKING:
    from passwright.scheduler.comparison import Comparison, Timing
    from passwright.training.variants import Facts, Maker, Variants

_BLOCKS = 15
#: A rival that is slower by more than this is not measured to the end.
_HOPELESS = 100.0
#: What cannot be captured in another CUDA graph, or is not to be.
UNCAPTURED = "cannot be captured in a CUDA graph, so it has no time on the device"
SKIPPED = "Inductor made no CUDA graph of"


@dataclass(frozen=True)
class Limits:
    """Seconds: of measuring a rival on a case, and of one compile."""

    measure: float = 1.0
    compile: float = 600.0


def task_of(case: Case, *, device: str, seed: int = 0, home: str = "") -> Task:
    """What a worker is asked about."""
    return Task(
        case.model,
        case.train,
        case.batch,
        device,
        seed,
        precision="high" if case.precision == "tf32" else "highest",
        bfloat16=case.precision == "bf16",
        home=home,
    )


def work(seat: Seat, connection: Connection) -> None:
    """The life of a worker of the benchmark."""
    serve(seat, connection, Bench)


class Bench(Answers):
    """What a worker can be asked."""

    def __init__(self, seat: Seat) -> None:
        super().__init__(seat)
        self._now = doing(seat)

    def rivals(self, task: Task, rivals: Sequence[Rival], limits: Limits) -> dict[str, Any]:
        """Facts and times of each rival that exists on this device."""
        from passwright.scheduler.inductor import forget_modules

        with TemporaryDirectory(dir=self.directory, ignore_cleanup_errors=True) as place:
            try:
                return met(self.model(task), rivals, limits, Path(place), note=self._note)
            finally:
                forget_modules(Path(place))

    def _note(self, name: str) -> None:
        """Which rival is being compiled or checked: who dies leaves it behind."""
        self._now.write_text(name, encoding="utf-8")

    def tidy_up(self) -> None:
        """Leaves nothing of the case behind: another one follows, of another model."""
        from passwright.scheduler.inductor import forget_cuda_graphs, forget_workspaces

        self.let_go()
        if self.device.type == "cuda":
            forget_cuda_graphs()
            forget_workspaces()
        super().tidy_up()


def met(
    model: Model,
    rivals: Sequence[Rival],
    limits: Limits,
    directory: Path,
    note: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """What is known of each rival by name: `why` it failed, or its facts and its blocks of time.

    A rival that fails costs its own row alone. `note` is told who is being compiled or checked, and "" when
    all are measured.
    """
    from passwright.training.variants import of_model

    here = [rival for rival in rivals if model.device.type == "cuda" or not rival.cuda_graphs]
    known: dict[str, Facts] = {}
    makers = {rival.name: _maker(model, rival, limits, directory, note) for rival in here}
    # The first compile of a model pays for what no other does, so it is made once for nothing.
    first = DEFAULT if DEFAULT in makers else next(iter(makers), None)
    if first is not None:
        why = _failure(makers[first])
        if why:
            known[first] = {"why": why}
            del makers[first]
    made = of_model(model, makers, baseline="", tuned_late=False)
    note("")
    known |= made.described
    baseline = _baseline(here, made)
    if baseline is not None:
        made.baseline = baseline
        with model.lock.alone():
            _measure(model, here, made, limits)
    return {"rivals": {rival.name: _said(known[rival.name]) for rival in here}}


def _maker(
    model: Model, rival: Rival, limits: Limits, directory: Path, note: Callable[[str], None]
) -> Maker:
    from passwright.scheduler.inductor import cold_cache, skipped_cuda_graphs
    from passwright.scheduler.time_limit import time_limit
    from passwright.training.variants import compiled

    def make() -> tuple[Any, Facts]:
        note(rival.name)
        before = skipped_cuda_graphs()
        with cold_cache(directory), time_limit(limits.compile):
            # A CUDA graph is recorded in the second step.
            run, facts = compiled(
                model, rival.options, calls=2 if rival.cuda_graphs else 1, quiet=True
            )
        if rival.tunes:  # what it tried is counted too
            facts["kernels"] = None
        skipped = skipped_cuda_graphs() - before
        if rival.cuda_graphs and skipped:
            facts["note"] = f"{SKIPPED} {skipped} of its graphs"
        return run, facts

    return make


def _failure(make: Maker) -> str:
    from passwright.passes.errors import cause
    from passwright.scheduler.inductor import many_compiles

    try:
        with many_compiles():
            make()
    except Exception as error:
        return cause(error)[:500]
    return ""


def _baseline(rivals: Sequence[Rival], made: Variants) -> str | None:
    """Default compile; where that fails, the first that does not. Gains are worked out later, from the
    blocks."""
    able = [rival.name for rival in rivals if rival.name in made.steps and not rival.cuda_graphs]
    return DEFAULT if DEFAULT in able else next(iter(able), None)


def _measure(model: Model, rivals: Sequence[Rival], made: Variants, limits: Limits) -> None:
    """Adds blocks, peak memory and launches to what is described. The device is the caller's alone."""
    from passwright.training.headroom.bound import profile

    own_graphs = [rival.name for rival in rivals if rival.cuda_graphs and rival.name in made.steps]
    uncaptured = [] if model.device.type == "cpu" else _uncaptured(model, made, own_graphs)
    for name in uncaptured:
        made.described[name]["note"] = UNCAPTURED
    comparison = made.compared(
        blocks=_BLOCKS,
        time_limit=limits.measure * max(2, len(made.steps)),
        seed=model.task.seed,
        timeout_factor=_HOPELESS,
        wall=True,
        wall_only=(*own_graphs, *uncaptured),
    )
    for name, facts in made.described.items():
        if name in own_graphs:
            # The pool of a CUDA graph is kept from step to step, and so no part of what a step allocates.
            facts["peak_bytes"] = None
        if name in made.steps:
            _add_times(facts, name, comparison)
            found = profile(made.steps[name], model.device)
            facts["launches"] = found and sum(kind["launches"] for kind in found.values())


def _uncaptured(model: Model, made: Variants, own_graphs: Sequence[str]) -> list[str]:
    """Who cannot be captured, and would have all others timed by eager launches. Of the baseline there is
    no way around that."""
    import torch

    from passwright.scheduler.cuda_timing import replayed

    found = []
    with torch.cuda.device(model.device):
        for name, step in made.steps.items():
            if name in own_graphs:
                continue
            try:
                replayed(step, torch.cuda.Stream())(1)  # type: ignore[no-untyped-call]
            except Exception:
                torch.cuda.synchronize()
                found.append(name)
    return [] if made.baseline in found else found


def _add_times(facts: Facts, name: str, comparison: Comparison) -> None:
    if comparison.notes and "note" not in facts:
        facts["note"] = "; ".join(comparison.notes)
    facts["device"] = _blocks(name, comparison)
    wall = comparison.wall
    facts["wall"] = _blocks(name, wall) if wall is not None else None
    both = [found.censored for found in (comparison, wall) if found is not None]
    why = next((censored[name] for censored in both if name in censored), "")
    if why:
        facts["why"] = why


def _blocks(name: str, comparison: Comparison) -> dict[str, Any] | None:
    timing: Timing | None = comparison.timings.get(name)
    if timing is None or not timing.blocks or name in comparison.censored:
        return None
    again = comparison.again if name == comparison.baseline else None
    return {
        "method": timing.method,
        "seconds": timing.blocks,
        "again": again.blocks if again is not None else (),
    }


def _said(facts: Mapping[str, Any]) -> dict[str, Any]:
    """What is kept: of plans, how many steps and how long it took to find them."""
    plans = facts.get("plans", ())
    ours: dict[str, Any] = {}
    if plans:
        ours["steps"] = sum(len(plan["steps"]) for plan in plans)
        ours["planning_seconds"] = round(sum(plan["seconds"] for plan in plans), 2)
    return {name: value for name, value in facts.items() if name != "plans"} | ours

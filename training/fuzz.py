"""Random rewrites of random graphs, for as long as you like: `python -m passwright.training.fuzz`.

    python -m passwright.training.fuzz --count 5000 --jobs 4
    python -m passwright.training.fuzz --seed 4711 --count 1     (one graph again)
    python -m passwright.training.fuzz --compile --count 300     (a training step behind Inductor)

Every graph has its own seed, counted up from the run's. A failure is a wrong value, gradient, stride
or alias, a crash, or a graph that does not lint; it is shrunk to few steps and a small graph, and
printed with the command that shows it again. The exit code is 1 if there was any. What torch does wrong
with the untouched graph as well, when it compiles that, is counted apart.
"""

from __future__ import annotations

import functools
import multiprocessing
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from passwright.scheduler.commands.console import FAILED, console, progress, say

if TYPE_CHECKING:
    from passwright.passes.random_walks import Trial, Walk

_COMMAND = "python -m passwright.training.fuzz"


def walks(seeds: range, jobs: int, *, compile_them: bool = False) -> Iterator[Walk]:
    """The walk of each seed, as they are done."""
    take = functools.partial(_walk, compile_it=compile_them)
    if jobs == 1:
        yield from map(take, seeds)
        return
    # Torch's threads do not survive a fork.
    with multiprocessing.get_context("spawn").Pool(jobs, initializer=_one_thread) as pool:
        yield from pool.imap_unordered(take, seeds, chunksize=1 if compile_them else 8)


def _one_thread() -> None:
    import torch

    torch.set_num_threads(1)


def _trial(compile_it: bool) -> Trial:
    if compile_it:
        from passwright.training.fuzz_compiled import COMPILED

        return COMPILED
    from passwright.passes.random_walks import EAGER

    return EAGER


def _walk(seed: int, compile_it: bool) -> Walk:
    from passwright.passes.random_walks import Walk, walk

    try:
        return walk(seed, trial=_trial(compile_it))
    except Exception as error:  # the generator itself
        return Walk(seed, failure=f"crash outside the rewriter: {error!r}")


def fuzz(
    count: Annotated[int, typer.Option(min=1, help="How many graphs.")] = 1000,
    seed: Annotated[
        int | None, typer.Option(help="Seed of the first graph; drawn if not given.")
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Processes.")] = 1,
    compiled: Annotated[
        bool,
        typer.Option(
            "--compile",
            help="Compile each rewritten graph with Inductor, and compare what is left after the"
            " backward. Takes seconds a graph.",
        ),
    ] = False,
) -> None:
    """Apply random rewrites to random graphs, and compare each with a float64 run."""
    command = f"{_COMMAND} --compile" if compiled else _COMMAND
    first = random.SystemRandom().randrange(10**6) if seed is None else seed
    say(f"seed {first}: {command} --seed {first} --count {count}")
    seen: Counter[str] = Counter()
    applied: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    failed: list[Walk] = []
    excused = 0
    with _steady_progress(count) as advance:
        for found in walks(range(first, first + count), jobs, compile_them=compiled):
            advance()
            seen += found.seen
            applied += found.applied
            refused += found.refused
            if found.failure:
                failed.append(found)
                say(f"\ngraph {found.seed}: {found.failure}")
                say(f"  {command} --seed {found.seed} --count 1")
            if found.excused:
                excused += 1
                say(f"\ngraph {found.seed}, untouched: {found.excused}")
    _show(seen, applied, refused)
    for walk in failed[:5]:
        for line in _explained(walk, _trial(compiled)):
            typer.echo(line)
    torchs = f", {excused} fail without steps as well" if compiled else ""
    typer.echo(f"{count} graphs, {applied.total()} steps, {len(failed)} failures{torchs}")
    raise typer.Exit(FAILED if failed else 0)


@contextmanager
def _steady_progress(count: int) -> Iterator[Callable[[], None]]:
    """Progress that is not one line a graph."""
    with progress(count) as report:
        done = iter(range(1, count + 1))

        def advance() -> None:
            number = next(done)
            if number % 100 == 0 or number == count:
                report.done = number - 1
                report.finished("graphs")

        yield advance


def _show(seen: Counter[str], applied: Counter[str], refused: Counter[str]) -> None:
    from rich import box
    from rich.table import Table

    from passwright.passes.table import default_table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("pattern")
    for column in ("rounds with candidates", "steps", "refused"):
        table.add_column(column, justify="right")
    for name in (pattern.name() for pattern in default_table()):
        table.add_row(name, *(str(counter[name]) for counter in (seen, applied, refused)))
    console().print(table)


def _explained(failed: Walk, trial: Trial) -> Iterable[str]:
    """The failure, made small."""
    from passwright.passes.random_walks import shrink
    from passwright.passes.testing import text

    yield f"\ngraph {failed.seed}: {failed.failure}"
    try:
        graph, steps, failure = shrink(failed, trial=trial)
    except Exception as error:  # what fails may fail in another way when made small
        yield f"  could not be made smaller: {error!r}"
        return
    yield f"  made smaller: {failure}"
    yield f"  {graph.traits}"
    yield from (f"    {line}" for line in text(graph.module.graph))
    yield from (f"  step {step.label}" for step in steps)


if __name__ == "__main__":
    typer.run(fuzz)

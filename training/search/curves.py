"""How fast samplers find what there is to gain on real models: curves of the best gain over trials.

    python -m passwright.training.search.curves MODELS --records runs/search --json FILE

Every sampler starts from the same sequences. What one had measured, the others need not have measured
again: gains come from `--records`, where every measured plan is kept, and the same command goes on with
what is there.
"""

from __future__ import annotations

import json
import math
import os
import queue
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from passwright.passes.address import digest
from passwright.scheduler.commands.console import progress, say
from passwright.scheduler.commands.models import devices_of, pick_device
from passwright.training.collect_run import exact_names
from passwright.training.processes import cores, spawning
from passwright.training.search.curve_runs import Job, rows_of

#: The one that is ours, and those that it is measured against.
_OURS, _OTHERS = "local", ("tpe", "random")
_TICK = 0.5
_lines: Any = None


def _begin(lines: Any) -> None:
    """In a process for one model: what it does is said in the first one."""
    global _lines
    _lines = lines


def _run(job: Job, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return rows_of(job, rows, _lines.put if _lines is not None else lambda _: None)


def run(
    models: Annotated[list[str], typer.Argument(help="Workloads: zoo:rechub/MMOE?fields=8, ...")],
    json_file: Annotated[Path, typer.Option("--json", help="Where curves are kept.")],
    records: Annotated[Path, typer.Option(help="Where measured plans are kept.")],
    trials: Annotated[int, typer.Option(min=1, help="Of each sampler.")] = 60,
    long: Annotated[
        int, typer.Option(min=1, help="Of ours, to see what more trials would find.")
    ] = 300,
    batch: Annotated[int, typer.Option(min=1, help="Rows of the inputs.")] = 2048,
    precision: Annotated[str, typer.Option(help="fp32, tf32 or bf16.")] = "tf32",
    mode: Annotated[str, typer.Option(help="infer, train or both.")] = "infer",
    time_limit: Annotated[
        float | None, typer.Option(min=1, help="Seconds for everything; no limit if not given.")
    ] = None,
    together: Annotated[int, typer.Option(min=1, help="Trials that are proposed at a time.")] = 4,
    at_once: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Models side by side, each with worker processes for its trials.",
            show_default="as many as keep the cores busy",
        ),
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="cpu, cuda:N, or cuda for all there are.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the samplers.")] = 0,
) -> None:
    """Compare samplers on models, and write how fast each finds what."""
    devices = [str(one) for one in devices_of(pick_device(device))]
    names = exact_names(models, batches=[batch], precisions=[precision], mode=mode, seed=0)
    until = math.inf if time_limit is None else time.time() + time_limit
    # Ours take longest, so they begin first.
    apart = [{_OURS: max(trials, long)}, dict.fromkeys(_OTHERS, trials)]
    jobs = [
        Job(
            name,
            devices[number % len(devices)],
            together,
            *_places(records / digest(name), asked),
            asked,
            (trials,),
            seed,
            together,
            until,
        )
        for asked in apart
        for number, name in enumerate(names)
    ]
    side_by_side = at_once or max(1, min(len(jobs), round(cores() / together)))
    rows = _read(json_file)
    with _pool(side_by_side) as (pool, lines), progress(len(jobs)) as reporter:
        open_ones: dict[Future[list[dict[str, Any]]], Job] = {
            pool.submit(_run, job, rows): job for job in jobs
        }
        while open_ones:
            done, _ = wait(open_ones, timeout=_TICK)
            _say_last(lines, reporter.working_on)
            for future in done:
                job = open_ones.pop(future)
                try:
                    found = future.result()
                except Exception as error:
                    reporter.finished(f"{job.workload}: {type(error).__name__}: {error}")
                    continue
                rows = [row for row in rows if not _is_of(row, job)] + found
                _write(json_file, rows)
                reporter.finished("\n  ".join(map(_line, found)) or f"{job.workload}: nothing yet")
    say(f"written: {json_file}")


def _places(home: Path, asked: Mapping[str, int]) -> tuple[Path, tuple[Path, ...]]:
    """Where these samplers keep plans of a workload, and where the others do: a store has one writer."""
    others = home.with_name(f"{home.name}-others")
    return (home, (others,)) if _OURS in asked else (others, (home,))


def _is_of(row: Mapping[str, Any], job: Job) -> bool:
    return row["workload"] == job.workload and row["sampler"] in job.trials


@contextmanager
def _pool(side_by_side: int) -> Iterator[tuple[ProcessPoolExecutor, Any]]:
    # As many processes as cores: threads of their own would only be in each other's way.
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    context = spawning()
    lines = context.Queue()
    pool = ProcessPoolExecutor(side_by_side, context, _begin, (lines,))
    try:
        yield pool, lines
    finally:
        pool.shutdown(cancel_futures=True)


def _say_last(lines: Any, say_it: Any) -> None:
    last = ""
    while True:
        try:
            last = lines.get_nowait()
        except queue.Empty:
            break
    if last:
        say_it(last)


def _line(row: Mapping[str, Any]) -> str:
    """`zoo:rechub/MMOE@..., local: 300 trials, 1.84x; measured again 60: 1.80x, 300: 1.82x`."""
    best = math.exp(row["gains"][-1]) if row["gains"] else 1.0
    again = (
        f"{mark}: {math.exp(found['gain']):.2f}x"
        for mark, found in row["confirmed"].items()
        if found["gain"] is not None
    )
    name = f"{row['workload']}, {row['sampler']}"
    return f"{name}: {len(row['gains'])} trials, {best:.2f}x; measured again {', '.join(again)}"


def _read(file: Path) -> list[dict[str, Any]]:
    if not file.exists():
        return []
    rows: list[dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))["rows"]
    return rows


def _write(file: Path, rows: Sequence[dict[str, Any]]) -> None:
    ordered = sorted(rows, key=lambda row: (row["workload"], row["sampler"]))
    file.write_text(json.dumps({"rows": ordered}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    typer.run(run)

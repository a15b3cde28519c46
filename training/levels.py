"""What each IR level adds: stock Inductor, combo kernels, and Passwright with two and with three levels.

    python -m passwright.training.levels --json data/reports/levels-h200.json
    python -m passwright.training.levels --what choices --gains FILE    each setting of Inductor by itself
    python -m passwright.training.levels 'zoo:*' --what check           right or wrong, nothing measured
    python -m passwright.training.levels --from data/reports/levels-h200.json --markdown

Models compile in several processes; each is measured alone on the device, all its variants in
interleaved blocks. Rows are kept in the file as they come, and a second run goes on where one stopped.
"""

from __future__ import annotations

import fnmatch
import json
import math
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from passwright.scheduler.choices import all_choices
from passwright.scheduler.commands.console import FAILED, progress, say
from passwright.scheduler.commands.models import pick_device
from passwright.scheduler.device import describe
from passwright.scheduler.inductor import torch_versions
from passwright.scheduler.toolchain import own_version
from passwright.training.headroom.final import DEFAULT
from passwright.training.headroom.run import MODELS, launcher
from passwright.training.headroom.worker import Task
from passwright.training.levels_table import markdown
from passwright.training.pool import Pool
from passwright.training.worker import Question, Seat
from passwright.training.workloads import find, names

COMBO, TWO, TWO_COMBO, THREE = (
    "combo kernels",
    "two levels",
    "two levels + combo kernels",
    "three levels",
)
_OURS: dict[str, Any] = {"backend": "passwright"}
_COMBO = {"combo_kernels": True}
#: Settings that one worker compiles and measures against the plan without them.
_PART = 6

Variants = dict[str, dict[str, Any]]


class What(StrEnum):
    """Which variants are compared."""

    LEVELS = "levels"
    CHOICES = "choices"
    CHECK = "check"


@dataclass(frozen=True)
class Job:
    """What one worker does at a time: a model in one mode, compiled in several ways."""

    task: Task
    variants: Variants
    baseline: str
    #: Each variant compiles in empty caches.
    cold: bool = False

    @property
    def row(self) -> dict[str, Any]:
        """What names it among the rows of a report."""
        task = self.task
        return {
            "model": task.model,
            "mode": task.phase,
            "batch": task.batch,
            "cold": self.cold,
        }

    def is_done(self, rows: Sequence[Mapping[str, Any]]) -> bool:
        return any(
            self.row.items() <= row.items() and self.variants.keys() <= row["variants"].keys()
            for row in rows
            if "why" not in row
        )


def jobs_of(
    what: What, task: Task, *, without: Sequence[str] = (), cold: bool = False
) -> Iterator[Job]:
    """Settings are shared out among several workers, each with the plan without them."""
    variants, baseline = variants_of(what, device=task.device, train=task.train)
    if what is not What.CHOICES:
        yield Job(task, variants, baseline, cold)
        return
    choices = [
        name
        for name in variants
        if name != baseline and not any(fnmatch.fnmatch(name, pattern) for pattern in without)
    ]
    for start in range(0, len(choices), _PART):
        part = (baseline, *choices[start : start + _PART])
        yield Job(task, {name: variants[name] for name in part}, baseline, cold)


def variants_of(what: What, *, device: str, train: bool) -> tuple[Variants, str]:
    """Options of each variant by name, and the baseline."""
    device = torch.device(device).type
    two = {**_OURS, "levels": "torch+aten"}
    three = {**_OURS, "levels": "torch+aten+inductor"}
    if what is What.CHECK:
        return {DEFAULT: {}, THREE: three}, DEFAULT
    if what is What.LEVELS:
        ours = {TWO: two, TWO_COMBO: two | _COMBO, THREE: three}
        return {DEFAULT: {}, COMBO: dict(_COMBO), **ours}, DEFAULT
    # Groups of ours and Inductor's own cannot be told apart where both are on.
    plain = {**three, "without": "combine_kernels,fuse_siblings"}
    choices = {
        choice.name: (plain if "combo_kernels" in choice.patch else three) | dict(choice.patch)
        for choice in all_choices()
        if choice.exists()
        and device in choice.devices
        and not choice.allow
        and not (train and choice.inference_only)
    }
    return {THREE: three, **choices}, THREE


def models_of(patterns: Sequence[str], fields: int | None) -> list[str]:
    """Names of workloads, where `zoo:*` stands for many; with so many fields where they can be chosen."""
    found: dict[str, None] = {}
    for pattern in patterns:
        if "*" in pattern:
            some = fnmatch.filter(names(), pattern)
            if not some:
                raise typer.BadParameter(
                    f"nothing is named like {pattern}; all are: {', '.join(names())}"
                )
        else:
            some = [pattern]
        for name in some:
            sized = fields is not None and "?" not in name and find(name).size is not None
            found[f"{name}?fields={fields}" if sized else name] = None
    return list(found)


def run(
    models: Annotated[
        list[str] | None,
        typer.Argument(help="Models by name, 'zoo:*' for all public ones; twelve if none."),
    ] = None,
    what: Annotated[What, typer.Option(help="What is compared.")] = What.LEVELS,
    batch: Annotated[int, typer.Option(min=1, help="Rows of the inputs.")] = 2048,
    fields: Annotated[
        int | None, typer.Option(min=1, help="Fields of the models, where they can be chosen.")
    ] = None,
    mode: Annotated[str, typer.Option(help="infer, train or both.")] = "both",
    precision: Annotated[str, typer.Option(help="torch's float32 matmul precision.")] = "high",
    device: Annotated[str | None, typer.Option(help="cpu, cuda or cuda:N.")] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Worker processes.")] = 1,
    time_limit: Annotated[float, typer.Option(min=1, help="Seconds for everything.")] = 3600.0,
    seconds: Annotated[float, typer.Option(min=0.1, help="Of measuring a row.")] = 6.0,
    json_file: Annotated[Path | None, typer.Option("--json", help="Where rows are kept.")] = None,
    source: Annotated[Path | None, typer.Option("--from", help="Print this file.")] = None,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="Print the table.")] = False,
    without: Annotated[
        str, typer.Option(help="With --what choices: not these settings, as 'autotune*,wide_cats'.")
    ] = "",
    cold: Annotated[
        bool,
        typer.Option(
            "--cold", help="Each variant compiles in empty caches: compile times can be compared."
        ),
    ] = False,
    gains: Annotated[
        Path | None, typer.Option(help="With --what choices: write what the planner reads.")
    ] = None,
) -> None:
    """Compare Inductor, combo kernels and Passwright's levels on public models."""
    if source is not None:
        typer.echo(markdown(json.loads(source.read_text(encoding="utf-8"))), nl=False)
        return
    where = pick_device(device)
    modes = {"infer": (False,), "train": (True,), "both": (False, True)}.get(mode)
    if modes is None:
        raise typer.BadParameter("infer, train or both", param_hint="--mode")
    tasks = (
        Task(
            name,
            train,
            batch=batch,
            device=str(where),
            precision=precision,
            final_seconds=seconds,
        )
        for name in models_of(models or MODELS, fields)
        for train in modes
    )
    report = _report(what, where, json_file)
    left_out = [name.strip() for name in without.split(",")]
    wanted = [job for task in tasks for job in jobs_of(what, task, without=left_out, cold=cold)]
    wanted.sort(key=lambda job: not job.task.train)  # what takes longest first
    left = [job for job in wanted if not job.is_done(report["rows"])]
    late = _collect(report, left, what, where, jobs, time_limit, json_file)
    if as_markdown or json_file is None:
        typer.echo(markdown(report), nl=False)
    if gains is not None and what is What.CHOICES:
        _write_gains(report, gains)
    if late:
        say(
            f"{late} rows were not measured in time; with --json, the same command goes on with them"
        )
    if any(wrong(row) for row in report["rows"]):
        raise typer.Exit(FAILED)


def wrong(row: Mapping[str, Any]) -> bool:
    """A variant that did not run, or whose values are off where default compile's are not."""
    if "why" in row or any("why" in variant for variant in row["variants"].values()):
        return True
    default = row["variants"].get(DEFAULT)
    if default is not None and not default["agreement"]["ok"]:
        return False
    return not all(variant["agreement"]["ok"] for variant in row["variants"].values())


def _report(what: What, device: torch.device, path: Path | None) -> dict[str, Any]:
    """What the file holds already, if it was measured here; else an empty report."""
    now = {
        "what": what.value,
        "device": asdict(describe(device)),
        "versions": {**torch_versions(), "passwright": own_version()},
    }
    if path is not None and path.exists():
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if {key: found.get(key) for key in now} == json.loads(json.dumps(now)):
            found["rows"] = [row for row in found["rows"] if "why" not in row]
            return found
        raise typer.BadParameter(f"{path} was measured elsewhere; write to another file")
    return {**now, "date": datetime.now(UTC).strftime("%Y-%m-%d"), "seconds": 0.0, "rows": []}


def _collect(
    report: dict[str, Any],
    todo: Sequence[Job],
    what: What,
    device: torch.device,
    jobs: int,
    time_limit: float,
    path: Path | None,
) -> int:
    """Adds rows to the report as they come; how many were not measured when the time was up."""
    start = time.monotonic()
    before = report["seconds"]
    with (
        tempfile.TemporaryDirectory(prefix="passwright-", ignore_cleanup_errors=True) as place,
        progress(len(todo)) as reporter,
    ):
        threads = torch.get_num_threads() if device.type == "cpu" else 1
        seats = [Seat(place, n, str(device), threads) for n in range(min(jobs, len(todo)))]
        pool = Pool(seats, launcher())
        waiting = list(todo)
        deadline = start + time_limit
        open_ones = 0
        try:
            while (waiting or open_ones) and time.monotonic() < deadline:
                for hand in pool.idle:
                    if waiting:
                        job = waiting.pop(0)
                        asked = (job.variants, job.baseline, what is What.CHECK, job.cold)
                        pool.ask(hand, Question("variants", job.task, asked), job, time_limit)
                        open_ones += 1
                for job, message in pool.answers(1.0):
                    open_ones -= 1
                    row = job.row | message.get("answer", {"why": message.get("failed", "died")})
                    report["rows"].append(row)
                    report["seconds"] = round(before + time.monotonic() - start, 1)
                    reporter.finished(f"{job.task.title}: {summary(row)}")
                    _save(report, path)
        except KeyboardInterrupt:
            say("stopped: what was measured is kept")
        finally:
            pool.close(at_once=True)
    _save(report, path)
    return len(waiting) + open_ones


def _save(report: Mapping[str, Any], path: Path | None) -> None:
    if path is not None:
        part = path.with_name(path.name + ".part")
        part.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
        part.replace(path)


def summary(row: Mapping[str, Any]) -> str:
    """One line about a row."""
    if "why" in row:
        return str(row["why"])
    bad = [n for n, v in row["variants"].items() if "why" in v or not v["agreement"]["ok"]]
    said = [f"not right: {', '.join(bad)}"] if bad else []
    for name, gain in row.get("measured", {}).get("gains", {}).items():
        said.append(f"{name} {math.exp(gain['median']):.2f}x")
    return ", ".join(said) or "right"


def _write_gains(report: Mapping[str, Any], path: Path) -> None:
    """What the planner reads: the gain and the compile cost of each setting on each model."""
    data = {
        "device": report["device"]["name"],
        "torch": report["versions"]["torch"],
        "rows": choice_rows(report),
    }
    path.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    say(f"written: {path}")


def choice_rows(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Gain over the plan without it, and compile cost if it was measured, of each setting on each
    model."""
    found = []
    for row in report["rows"]:
        seconds = {n: v.get("compile_seconds", 0.0) for n, v in row.get("variants", {}).items()}
        for name, gain in row.get("measured", {}).get("gains", {}).items():
            cost = round(seconds[name] / seconds[THREE], 3) if row.get("cold") else None
            found.append(
                {
                    "choice": name,
                    "mode": row["mode"],
                    "model": row["model"],
                    "gain": round(gain["median"], 5),
                    "compile_cost": cost,
                }
            )
    return found


if __name__ == "__main__":
    typer.run(run)

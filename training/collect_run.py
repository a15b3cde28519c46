"""`passwright collect`: from what is asked on the command line to a collection and a line about it."""

from __future__ import annotations

import fnmatch
import itertools
import random
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import torch

from passwright.passes.address import digest
from passwright.passes.errors import WorkloadError
from passwright.scheduler.commands.console import INTERRUPTED, progress, say
from passwright.scheduler.commands.models import devices_of
from passwright.training import workloads
from passwright.training.collect import Collector, Request, summary
from passwright.training.collect_worker import work
from passwright.training.processes import ProcessWorker, cores, spawning
from passwright.training.store import Store
from passwright.training.workloads.spec import PRECISIONS, Spec

_MODES = {"infer": (False,), "train": (True,), "both": (False, True)}


def exact_names(
    patterns: Sequence[str],
    *,
    batches: Sequence[int],
    precisions: Sequence[str],
    mode: str,
    seed: int,
    draw: int | None = None,
) -> list[str]:
    """Every model by every batch, precision and mode, or by `draw` of their combinations; what is exact
    already stays as it is. Models take turns, so that whoever stops early has some of each.

    `zoo:*` stands for many models. The same seed draws the same for a model, whatever others there are.
    Raises WorkloadError for a name, precision or mode that is not known.
    """
    if mode not in _MODES:
        raise WorkloadError(f"mode {mode!r} is not known; use infer, train or both")
    for precision in precisions:
        if precision not in PRECISIONS:
            raise WorkloadError(
                f"precision {precision!r} is not known; use {', '.join(PRECISIONS)}"
            )
    queues: list[list[str]] = []
    for pattern in patterns:
        if "@" in pattern:
            queues.append([str(Spec.parse(pattern))])
            continue
        for model in _models(pattern):
            ways = list(itertools.product(batches, precisions, _MODES[mode]))
            if draw is not None and draw < len(ways):
                ways = random.Random(digest("ways", seed, model)).sample(ways, draw)
            queues.append([str(Spec(model, *way, seed)) for way in ways])
    turns = itertools.chain.from_iterable(itertools.zip_longest(*queues))
    return list(dict.fromkeys(name for name in turns if name))


def _models(pattern: str) -> Iterable[str]:
    if pattern.startswith("random:"):
        return [pattern]
    if "*" not in pattern:
        name, _, sizes = pattern.partition("?")
        full = workloads.find(pattern).name.partition("?")[0] if name else pattern
        return [f"{full}?{sizes}" if sizes else full]
    plain, _, sizes = pattern.partition("?")
    some = fnmatch.filter(workloads.names(), plain)
    if not some:
        raise WorkloadError(f"no workload is named like {pattern!r}")
    wanted = (f"{name}?{sizes}" if sizes else name for name in some)
    return [name for name in wanted if _has(name)]


def _has(name: str) -> bool:
    """The model's sizes can be chosen so."""
    try:
        workloads.find(name)
    except WorkloadError:
        return False
    return True


def default_jobs() -> int:
    """A few more than there are cores, since some wait for the device."""
    return max(1, cores() + cores() // 4)


def collect(
    directory: Path,
    names: Sequence[str],
    *,
    device: torch.device,
    jobs: int,
    plans: int,
    cuts: int,
    whole: bool,
    time_limit: float | None,
    seconds: float,
    seed: int,
) -> int:
    """Collects into the directory; the exit code is 130 after Ctrl-C."""
    interrupted = done = False
    devices = [str(one) for one in devices_of(device)]
    request = Request(
        names,
        devices[0],
        jobs,
        plans=plans,
        cuts=cuts,
        whole=whole,
        seed=seed,
        run=datetime.now(UTC).strftime("%Y%m%dT%H%M%S"),
        time_limit=time_limit or float("inf"),
        seconds=seconds,
    )
    context = spawning()
    with Store(directory) as store, progress(len(names) * (whole + cuts)) as reporter:
        collector = Collector(
            request, store, partial(ProcessWorker, context, work), reporter, devices=devices
        )
        try:
            done = collector.run()
        except KeyboardInterrupt:
            interrupted = True
    say(summary(collector.tally))
    for name, why in collector.tally.failed.items():
        say(f"  {name}: {why}")
    if interrupted or not done:
        again = "stopped" if interrupted else "the time is up"
        say(
            f"{again}: what was measured is in {directory}, and the same command goes on from there"
        )
    sys.stdout.write(f"{directory}\n")
    return INTERRUPTED if interrupted else 0

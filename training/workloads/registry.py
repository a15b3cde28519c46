"""All workloads by name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from passwright.passes.errors import WorkloadError
from passwright.training.workloads import (
    archetypes_coffee,
    archetypes_dhen,
    archetypes_dlrm,
    archetypes_hstu,
    archetypes_interformer,
    blocks,
    branching,
    cases,
    classic,
    deepctr,
    illustrative,
    rechub,
    rtdl,
    torchfm,
)
from passwright.training.workloads.workload import SMALLEST, Workload, short_name


def _table(workloads: Iterable[Workload]) -> dict[str, Workload]:
    table: dict[str, Workload] = {}
    for workload in workloads:
        key = short_name(workload.name)
        if key in table:
            raise ValueError(f"two workloads are named {workload.name}")
        table[key] = workload
    return table


_BY_NAME = _table(
    (
        *rechub.WORKLOADS,
        *deepctr.WORKLOADS,
        *torchfm.WORKLOADS,
        *rtdl.WORKLOADS,
        *branching.WORKLOADS,
        *archetypes_dlrm.WORKLOADS,
        *archetypes_dhen.WORKLOADS,
        *archetypes_interformer.WORKLOADS,
        *archetypes_coffee.WORKLOADS,
        *archetypes_hstu.WORKLOADS,
        *classic.WORKLOADS,
        *illustrative.WORKLOADS,
        *blocks.WORKLOADS,
        *cases.WORKLOADS,
    )
)


def sources() -> list[str]:
    """Where workloads come from: `rechub`, `deepctr`, `torchfm`, `rtdl`, `own` and `case`."""
    return list(dict.fromkeys(workload.source for workload in _BY_NAME.values()))


def workloads(source: str | None = None) -> list[Workload]:
    """All workloads in a fixed order, or those of one source.

    Raises:
        WorkloadError: there is no such source.
    """
    if source is not None and source not in sources():
        raise WorkloadError(f"unknown source {source!r}; known are {', '.join(sources())}")
    return [w for w in _BY_NAME.values() if source is None or w.source == source]


def names(source: str | None = None) -> list[str]:
    """The names of `workloads(source)`, each of which `build` takes."""
    return [workload.name for workload in workloads(source)]


def find(name: str) -> Workload:
    """The workload of that name, `zoo:rechub/MMOE` or shorter `rechub:MMOE`.

    `zoo:rechub/MMOE?fields=9,experts=4` is the same model with 9 fields and 4 experts; the fields
    of our own models are pieces or branches. Many of these take a width and a number of layers too,
    `own:dhen?fields=16,width=64,layers=2`.

    Raises:
        WorkloadError: there is none; the message holds the closest names.
    """
    name, _, query = name.partition("?")
    workload = _BY_NAME.get(short_name(name))
    if workload is None:
        raise WorkloadError(f"unknown workload {name!r}; {_suggestion(short_name(name))}")
    if not query:
        return workload
    sizes = dict(item.partition("=")[::2] for item in query.split(","))
    if not sizes.keys() <= SMALLEST.keys() or not all(map(str.isdecimal, sizes.values())):
        raise WorkloadError(
            f"?{query} is not understood; fields=NUMBER, experts=NUMBER, width=NUMBER and"
            " layers=NUMBER may follow a name, joined by commas"
        )
    return workload.sized(**{key: int(value) for key, value in sizes.items()})


def refuse_bfloat16(name: str) -> None:
    """Says of a model that is known not to run in bfloat16 why; of any other name, also of none here,
    nothing.

    Raises:
        WorkloadError: it does not run; the message says what to do.
    """
    workload = _BY_NAME.get(short_name(name.partition("?")[0]))
    if workload is not None and workload.float32_only:
        raise WorkloadError(
            f"{workload.name} does not run in bfloat16: {workload.float32_only}; use fp32 or tf32"
        )


def cpu_only(name: str) -> str:
    """Why a model does not run on a GPU, if that is known; nothing of any other name."""
    workload = _BY_NAME.get(short_name(name.partition("?")[0]))
    return workload.cpu_only if workload is not None else ""


def build(
    name: str,
    *,
    batch: int | None = None,
    seed: int = 0,
    device: str | torch.device = "cpu",
    train: bool = False,
) -> tuple[nn.Module, tuple[Any, ...]]:
    """Make the module of that name and the arguments of one call; see `Workload.build`.

    Raises:
        WorkloadError: the name is unknown, or the package that holds the model is not installed.
    """
    return find(name).build(batch=batch, seed=seed, device=device, train=train)


def _suggestion(wanted: str) -> str:
    by_lower = {key.lower(): workload.name for key, workload in _BY_NAME.items()}
    # A bare model name, as in "MMOE", is close to none of the full names.
    bare = [name for key, name in by_lower.items() if key.partition(":")[2] == wanted.lower()]
    close = difflib.get_close_matches(wanted.lower(), by_lower, n=3, cutoff=0.5)
    suggestions = bare or [by_lower[key] for key in close]
    if suggestions:
        return f"did you mean {' or '.join(suggestions)}?"
    return f"known are {', '.join(w.name for w in _BY_NAME.values())}"

"""Are records still true? Workloads are built from their names, and plans replayed on their graphs.

What takes no device is done again: capturing the graphs, finding and performing the steps. Compiling and
timing are not. Records of a GPU can be checked without one, but for the few whose steps torch cannot follow
there (`as_gpu`); these are counted.
"""

from __future__ import annotations

import math
import random
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import fx, nn

from passwright.passes.errors import PlanFormatError, cause
from passwright.passes.table import PatternTable, default_table
from passwright.training.as_gpu import as_on_gpu
from passwright.training.model_plan import ModelPlan, applied, fingerprints
from passwright.training.plan_text import graphs_key, plan_key, plans_of
from passwright.training.records import Record
from passwright.training.workloads.capture import captured
from passwright.training.workloads.exact import build_exact

#: What torch says where it would have to ask a GPU.
_NEEDS_GPU = re.compile(
    r"not linked with support for cuda|not compiled with CUDA|'CUDA' backend|NVIDIA driver"
)

#: From an exact name and a device to the module and the inputs of one call.
Build = Callable[[str, torch.device], tuple[nn.Module, Any]]


@dataclass(frozen=True)
class Mismatch:
    """In what a record cannot be reproduced."""

    workload: str
    plan_key: str
    #: workload, graph, plan, step, steps, plan key or result.
    what: str
    recorded: str
    found: str
    #: With which it was recorded: another one may make another graph, and other patterns another result.
    torch: str
    patterns: str

    def to_json(self) -> dict[str, str]:
        """For `--json`."""
        return asdict(self)


@dataclass(frozen=True)
class Checked:
    """The outcome for the records that were drawn."""

    records: int = 0
    workloads: int = 0
    #: Steps of their plans that were performed again.
    steps: int = 0
    #: Steps at ATen-IR and Inductor-IR, whose graphs only a compile makes, and settings of Inductor.
    not_replayed: int = 0
    #: Records whose steps could only be performed where there is a GPU.
    need_gpu: int = 0
    mismatches: tuple[Mismatch, ...] = ()
    #: Version of the patterns that replayed them.
    patterns: str = ""

    def to_json(self) -> dict[str, Any]:
        """For `--json`."""
        return asdict(self)


def draw(records: Sequence[Record], share: float, seed: int) -> list[Record]:
    """A share of the records, at least one if there are any, drawn at random.

    The same records in any order give the same draw; those of one workload are neighbours in it.
    """
    ordered = sorted(records, key=lambda r: (r.workload, r.device, r.plan_key, r.date, r.run))
    count = min(len(ordered), max(1, math.ceil(share * len(ordered))))
    picked = sorted(random.Random(seed).sample(range(len(ordered)), count))
    return [ordered[number] for number in picked]


def check(
    records: Sequence[Record],
    device: torch.device,
    *,
    build: Build = build_exact,
    table: PatternTable | None = None,
    done: Callable[[str], None] = lambda _: None,
) -> Checked:
    """Replays the records; whatever is not as recorded, errors included, becomes a mismatch.

    `device`: where workloads that were measured on a GPU are built; the others are built on the CPU.
    `done` gets a line about each workload.
    """
    table = table or default_table()
    found: list[Mismatch] = []
    counts: Counter[str] = Counter()
    for (name, gpu), group in _by_workload(records).items():
        before = len(found)
        try:
            place = device if gpu else torch.device("cpu")
            graphs = _graphs(build, name, place, train=group[0].train, gpu=gpu)
        except Exception as error:  # building and tracing may raise anything
            found += [_mismatch(r, "workload", "was captured", cause(error)) for r in group]
        else:
            for record in group:
                wrong = _replayed(record, graphs, table, counts)
                if gpu and place.type != "cuda" and any(_NEEDS_GPU.search(w.found) for w in wrong):
                    counts["need a GPU"] += 1
                else:
                    found += wrong
        number = len(found) - before
        done(f"{name}: {len(group)} records{f', {number} mismatches' if number else ''}")
    names = {record.workload for record in records}
    steps, others, need = counts["performed"], counts["others"], counts["need a GPU"]
    return Checked(len(records), len(names), steps, others, need, tuple(found), table.version)


def on_gpu(record: Record) -> bool:
    """Whether its graphs lay on a GPU, which is part of their fingerprint."""
    return bool(record.driver) or record.method.startswith("cuda")


def _by_workload(records: Sequence[Record]) -> dict[tuple[str, bool], list[Record]]:
    found: dict[tuple[str, bool], list[Record]] = {}
    for record in records:
        found.setdefault((record.workload, on_gpu(record)), []).append(record)
    return found


def _graphs(
    build: Build, name: str, device: torch.device, *, train: bool, gpu: bool
) -> list[fx.GraphModule]:
    """The graphs that Dynamo makes of the workload, said to lie on a GPU where they do not."""
    module, inputs = build(name, device)
    graphs = captured(module, inputs, train=train)
    if gpu and device.type != "cuda":
        for graph in graphs:
            as_on_gpu(graph.graph)
    return graphs


def _replayed(
    record: Record, graphs: Sequence[fx.GraphModule], table: PatternTable, counts: Counter[str]
) -> list[Mismatch]:
    """What is not as recorded; counts steps."""
    try:
        plans = plans_of(record.plan)
    except PlanFormatError as error:
        return [_mismatch(record, "plan", "can be read", str(error))]
    upper = ModelPlan(tuple(plan for plan in plans if plan.level == "torch"))
    # As when the graph is compiled: patterns may ask whether gradients are wanted.
    with torch.set_grad_enabled(record.train):
        known = fingerprints(graphs)
        # What took its process down was never captured there.
        if record.graph and graphs_key(known) != record.graph:
            return [_mismatch(record, "graph", record.graph, graphs_key(known))]
        after, wrong = [], []
        for graph, fingerprint in zip(graphs, known, strict=True):
            plan = upper.of(fingerprint)
            try:
                there, done = applied(graph, plan, table)
            except Exception as error:  # a pattern may be anybody's code
                return [_mismatch(record, "plan", f"of graph {fingerprint}", cause(error))]
            after.append(there)
            if done is not None:
                counts["performed"] += len(done.rewrites)
                wrong += [_mismatch(record, "step", *_parts(line)) for line in done.skipped]
        result = graphs_key(fingerprints(after))
    for plan in upper.plans:
        if plan.fingerprint not in known:
            there_is_none = "there is no such graph"
            wrong.append(_mismatch(record, "plan", f"of graph {plan.fingerprint}", there_is_none))
    counts["others"] += sum(len(p.settings if p.level == "torch" else p.steps) for p in plans)
    # With a step skipped, the result is another one as a matter of course.
    pairs = {"steps": (str(record.steps), str(sum(len(plan.steps) for plan in plans)))}
    pairs["plan key"] = (record.plan_key, plan_key(plans))
    pairs |= {} if wrong else {"result": (record.result, result)}
    wrong += [_mismatch(record, what, *pair) for what, pair in pairs.items() if pair[0] != pair[1]]
    return wrong


def _parts(skipped: str) -> tuple[str, str]:
    """The step and why it was skipped; a label holds `: ` in its braces at most."""
    found = re.match(r"(.+? @ \S+): (.*)", skipped, re.DOTALL)
    return (found[1], found[2]) if found else (skipped, "skipped")


def _mismatch(record: Record, what: str, recorded: str, found: str) -> Mismatch:
    name, key = record.workload, record.plan_key
    return Mismatch(name, key, what, recorded, found, record.torch, record.patterns)

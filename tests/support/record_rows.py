"""Hand-made records, and a process that writes such for ever."""

from __future__ import annotations

from multiprocessing.connection import Connection
from typing import Any

from passwright.passes.address import digest
from passwright.scheduler.plan import Plan, Step
from passwright.training.plan_text import graphs_key, plan_key, text_of
from passwright.training.records import Record, Status
from passwright.training.store import Store

GRAPH = "a1b2c3d4e5f6a1b2c3d4e5f6"


def plan_of(*patterns: str, graph: str = GRAPH) -> Plan:
    """A plan of one graph with a step of each pattern, each at a place of its own."""
    return Plan(
        graph, steps=tuple(Step(name, digest(name), digest("key", name)) for name in patterns)
    )


def record(*patterns: str, gain: float | None = 0.1, **changes: Any) -> Record:
    """A record of a plan with a step of each pattern, with an interval of +-0.02 and a floor of 0.01."""
    plan = plan_of(*patterns)
    measured: dict[str, Any] = {"status": Status.CENSORED, "why": "time limit"}
    if gain is not None:
        measured = {
            "status": Status.MEASURED,
            "gain": gain,
            "lower": gain - 0.02,
            "upper": gain + 0.02,
            "floor": 0.01,
            "method": "wall",
            "blocks": (1.0e-3, 1.1e-3),
            "default_blocks": (2.0e-3, 2.1e-3),
            "again_blocks": (2.0e-3, 2.2e-3),
        }
    usual: dict[str, Any] = {
        "workload": "own:split_cat@batch=8,precision=fp32,mode=infer,seed=0",
        "family": "split_cat",
        "kind": "model",
        "graph": graphs_key([plan.fingerprint]),
        "plan": text_of([plan]),
        "plan_key": plan_key([plan]),
        "steps": len(plan.steps),
        "result": digest(*patterns),
        "proposed_by": "walk",
        "levels": "torch",
        "batch": 8,
        "precision": "fp32",
        "train": False,
        "seed": 0,
        "device": "some CPU",
        "torch": "2.13.0",
        "passwright": "0.1.0",
        "patterns": "abc",
        "date": "2026-11-30",
        "run": "first",
    }
    return Record(**usual | measured | changes)


def numbered(number: int, **changes: Any) -> Record:
    """A record with a key of its own."""
    return record(plan_key=f"{number:06d}", **changes)


def write_for_ever(directory: str, start: int, segment_rows: int, told: Connection) -> None:
    """Appends records in batches of one to three, and tells the number of each that is finished."""
    number = start
    with Store(directory, segment_rows=segment_rows) as store:
        while True:
            batch = range(number, number + 1 + number % 3)
            number = batch.stop
            store.append([numbered(n) for n in batch])
            for finished in batch:
                told.send_bytes(str(finished).encode())

"""Rows and reports of the benchmark against rivals, and workers that only pretend."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from headroom_runs import FakeWorker, agreement

from passwright.training.bench import run as bench
from passwright.training.bench.rivals import (
    COMBO,
    EAGER,
    OPTIMUS,
    PREDICT,
    TUNE,
    Rival,
    all_rivals,
    graphs,
)
from passwright.training.bench.rows import Blocks, Case, Report, Row, State
from passwright.training.collect_worker import doing
from passwright.training.headroom.final import DEFAULT
from passwright.training.worker import Question, Seat

CPU = torch.device("cpu")
#: Seconds of a call on the device.
SECONDS = {EAGER: 9e-3, DEFAULT: 8e-3, OPTIMUS: 8e-3, COMBO: 6e-3, PREDICT: 4e-3, TUNE: 3e-3}
TABLE = {rival.name: rival for rival in all_rivals()}
PLAIN = tuple(SECONDS)


def rivals(*names: str) -> tuple[Rival, ...]:
    return tuple(TABLE[name] for name in names or PLAIN)


def case(model: str = "own:a", train: bool = False, **changes: Any) -> Case:
    known = {"suite": "public", "batch": 64, "precision": "tf32"} | changes
    return Case(model=model, train=train, **known)


def times(seconds: float, method: str = "cuda-graph", *, again: bool = False) -> Blocks:
    values = tuple(round(seconds * (1 + 0.001 * number), 6) for number in range(8))
    return Blocks(method, values, values if again else ())


def row(of: Case, name: str, seconds: float | None = None, **changes: Any) -> Row:
    seconds = seconds or SECONDS[name.removesuffix(" + CUDA graphs")]
    launched = name.endswith("CUDA graphs")
    known: dict[str, Any] = {
        "device": None if launched else times(seconds, again=name == DEFAULT),
        "wall": times(seconds if launched else 2 * seconds, "wall", again=name == DEFAULT),
        "kernels": round(seconds * 10_000),
        "peak_bytes": 1000,
        "compile_seconds": 20.0 if name == DEFAULT else 15.0,
        "agreement": agreement(),
    }
    return Row(of, name, changes.pop("state", State.OK), **known | changes)


def rows(of: Case, **seconds: float) -> list[Row]:
    return [row(of, name, seconds.get(name)) for name in (*PLAIN, graphs(DEFAULT), graphs(PREDICT))]


def report(*found: Row, **changes: Any) -> Report:
    known: dict[str, Any] = {
        "date": "2026-01-01",
        "device": {"name": "toy", "kind": "cuda", "key": "toy"},
        "versions": {"torch": "2.13", "passwright": "1"},
        "context": "same",
        "seed": 0,
        "seconds": 10.0,
        "rivals": {rival.name: rival.note for rival in all_rivals()},
        "options": {"jobs": 2, "cores": 4},
    }
    return Report(rows=found, **known | changes)


def facts(name: str, **changes: Any) -> dict[str, Any]:
    """What a worker says of a rival."""
    blocks = {"method": "wall", "seconds": [SECONDS[name]] * 8, "again": []}
    known = {"device": blocks, "wall": None, "kernels": 20, "compile_seconds": 12.0}
    return known | {"agreement": agreement(), "peak_bytes": None} | changes


def answer(question: Question, **changes: Mapping[str, Any]) -> dict[str, Any]:
    """The usual answer; `changes` are facts of a rival, by its name."""
    wanted = [rival.name for rival in question.arguments[0] if not rival.cuda_graphs]
    found = {name: facts(name) | dict(changes.get(name, {})) for name in wanted}
    return {"answer": {"rivals": found}}


class FakeBench:
    """Workers that answer from a world of models; `special` are those that do so in their own way, told
    the question and how to say which rival they are busy with."""

    def __init__(self, **special: Callable[[Question, Callable[[str], None]], Any]) -> None:
        self.workers: list[FakeWorker] = []
        self._special = special

    def launch(self, seat: Seat) -> FakeWorker:
        def note(name: str) -> None:
            doing(seat).write_text(name, encoding="utf-8")

        def reply(question: Question) -> Any:
            special = self._special.get(question.task.model.removeprefix("own:"))
            message = special(question, note) if special else ...
            return answer(question) if message is ... else message

        self.workers.append(FakeWorker(reply))
        return self.workers[-1]

    @property
    def asked(self) -> list[Question]:
        return [question for worker in self.workers for question in worker.asked]


def request(*names: str, **changes: Any) -> bench.Request:
    cases = tuple(case(f"own:{name}") for name in names)
    return replace(bench.Request(cases, rivals(), (CPU,), jobs=2), **changes)


def report_of(models: FakeBench, wanted: bench.Request, **known: Any) -> Report:
    found, interrupted = bench.run(wanted, models.launch, **known)
    assert not interrupted
    return found

"""Recorded trials and comparisons of the benchmark, and workers that only pretend."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

from passwright.training.headroom.final import DEFAULT, DEFAULT_COMBO, OURS, OURS_COMBO
from passwright.training.headroom.greedy import Proposal, Trial
from passwright.training.headroom.worker import Task
from passwright.training.macros import NOTHING, Macro, State
from passwright.training.worker import Question, Seat

BATCHED = State((Macro("batch_linears"),))
WIDENED = State((Macro("widen_linears"),))
#: Seconds of the four variants.
SECONDS = {DEFAULT: 8e-3, DEFAULT_COMBO: 6e-3, OURS: 4e-3, OURS_COMBO: 3e-3}


def task(model: str = "own:a", **changes: Any) -> Task:
    return Task(model, **{"train": False, "batch": 64} | changes)


def proposal(state: State = NOTHING, predicted: float = 1e-3) -> Proposal:
    return Proposal(state, f"hash of {state.label}", predicted)


def trial(state: State = NOTHING, seconds: float | None = 8e-3, **changes: Any) -> Trial:
    plain = {"combo": False, "blocks": (8e-3, 8e-3), "method": "wall", "kernels": 20}
    known = plain | {"compile_seconds": 12.5, "steps": len(state.macros)} | changes
    return Trial(
        state=state.label, digest=f"hash of {state.label}", predicted=1e-3, seconds=seconds, **known
    )


def agreement(ok: bool = True) -> dict[str, Any]:
    sentence = "agrees" if ok else "output 0 is off by 1.0e+00, 1.0e-06 is allowed"
    error = 1e-7 if ok else 1.0
    return {
        "ok": ok,
        "sentence": sentence,
        "output_error": error,
        "gradient_error": 0.0,
        "oracle": True,
    }


def final(
    seconds: dict[str, float] | None = None, *, wrong: str = "", profile: Any = None
) -> dict[str, Any]:
    """What a worker sends at the end."""
    seconds = SECONDS if seconds is None else seconds
    states = {OURS: BATCHED, OURS_COMBO: BATCHED}

    def timing(name: str) -> dict[str, Any]:
        blocks = [seconds[name] * (1 + 0.001 * number) for number in range(8)]
        return {"name": name, "method": "wall", "blocks": blocks, "calls": 5}

    return {
        "variants": {
            name: {
                "state": states.get(name, NOTHING).label,
                "steps": ["batch_linears{members=4} @ ab:cd"] * (name in states),
                "kernels": 20 if name not in states else 10,
                "cached_compile_seconds": 1.0,
                "agreement": agreement(name != wrong),
                "peak_bytes": 1 << 20,
            }
            for name in seconds
        },
        "measured": {
            "baseline": DEFAULT,
            "timings": {name: timing(name) for name in seconds},
            "gains": {
                n: {"median": 0.1, "lower": 0.0, "upper": 0.2} for n in seconds if n != DEFAULT
            },
            "floor": 0.01,
            "stopped": "all blocks measured",
            "censored": {},
            "again": timing(DEFAULT),
            "notes": [],
            "wall": None,
        },
        "profiled": OURS,
        "profile": profile,
        "estimates": {
            name: {"launch": 1e-3, "arithmetic": 2e-3, "traffic": 1e-3} for name in (DEFAULT, OURS)
        },
    }


class FakeWorker:
    """Answers by a function: a message, None for never, an exception for death."""

    def __init__(self, answer: Callable[[Question], Any]) -> None:
        self.connection, self.theirs = multiprocessing.Pipe()
        self.stopped = False
        self.asked: list[Question] = []
        self._answer = answer
        self._thread = threading.Thread(target=self._serve, args=(self.theirs,), daemon=True)
        self._thread.start()

    def _serve(self, theirs: Connection) -> None:
        while True:
            try:
                question = theirs.recv()
            except (EOFError, OSError):
                return
            if not isinstance(question, Question):
                return
            self.asked.append(question)
            message = self._answer(question)
            if isinstance(message, Exception):
                theirs.close()
                return
            if message is not None:
                with suppress(OSError):  # nobody waits for it any more
                    theirs.send(message)

    def stop(self, *, at_once: bool = False) -> None:
        self.stopped = True
        self.connection.close()

    def last_words(self) -> str:
        return "the worker was killed by signal 9"


class FakeModels:
    """A world of models for `headroom.run`: `launch` starts workers that answer from it."""

    def __init__(self, **special: Callable[[Question], Any]) -> None:
        self.workers: list[FakeWorker] = []
        self._special = special

    def launch(self, _: Seat) -> FakeWorker:
        self.workers.append(FakeWorker(self.answer))
        return self.workers[-1]

    def answer(self, question: Question) -> Any:
        special = self._special.get(question.task.model.removeprefix("own:"))
        message = special(question) if special else ...
        return self.usual(question) if message is ... else message

    @staticmethod
    def usual(question: Question) -> dict[str, Any]:
        if question.kind == "start":
            starts = [proposal(NOTHING), proposal(BATCHED, 0.5e-3)]
            return {"answer": {"plans": [], "proposals": starts}}
        if question.kind == "neighbours":
            return {"answer": {"proposals": [proposal(WIDENED)], "cut": False}}
        if question.kind == "trial":
            _, wanted, combo = question.arguments
            seconds = {NOTHING: 8e-3, BATCHED: 4e-3}.get(wanted.state, 9e-3)
            return {"answer": trial(wanted.state, seconds * (0.75 if combo else 1), combo=combo)}
        return {"answer": final()}

    def asked(self, kind: str) -> list[Question]:
        return [q for worker in self.workers for q in worker.asked if q.kind == kind]

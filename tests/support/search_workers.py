"""Workers of one search as processes of their own."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Sequence
from pathlib import Path

from passwright.training.search.space import Labels
from passwright.training.search.study import search
from passwright.training.search.synthetic import Synthetic

PASSES = 5


class Slow(Synthetic):
    """Measuring takes a moment, so that searches overlap, and writes down who measured what."""

    file: Path

    def measure(self, sequences: Sequence[Labels]) -> list[float | None]:
        with self.file.open("a") as file:
            file.writelines(f"{os.getpid()} {' '.join(sequence)}\n" for sequence in sequences)
        time.sleep(0.02)
        return super().measure(sequences)


def work(storage: str, trials: int, file: Path, sampler: str = "local") -> None:
    """One worker; all of them have the same seed, and would do the same if they were alone."""
    problem = Slow.generate(0, PASSES)
    assert isinstance(problem, Slow)
    problem.file = file
    search(problem, trials=trials, storage=storage, slots=PASSES, sampler=sampler, confirm=0)


def run_workers(
    storage: str, trials: int, file: Path, *, count: int = 2, sampler: str = "local"
) -> list[tuple[int, Labels]]:
    """Runs the workers to their end, at most a minute: who measured what, in order."""
    context = multiprocessing.get_context("spawn")
    given = (storage, trials, file, sampler)
    workers = [context.Process(target=work, args=given, daemon=True) for _ in range(count)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(timeout=60)
        if worker.is_alive():
            worker.kill()
    assert [worker.exitcode for worker in workers] == [0] * count
    lines = [line.split(" ") for line in file.read_text().splitlines()]
    return [(int(pid), tuple(label for label in labels if label)) for pid, *labels in lines]

"""What `passwright train` and `passwright evaluate` ask for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from passwright.scheduler.commands.train import Learning
from passwright.training import evaluate_run
from passwright.training.gain_data import samples_at
from passwright.training.gain_fit import Fit
from passwright.training.processes import cores
from passwright.training.samples import WorkloadSamples
from passwright.training.train_run import Request
from passwright.training.train_run import train as train_model

MODELS: tuple[str, ...] = evaluate_run.MODELS


def train(learning: Learning, output: Path, *, seed: int) -> Mapping[str, Any]:
    """`train_run.train`. Raises WorkloadError."""
    how = Fit(epochs=learning.epochs)
    request = Request(output, learning.members, seed, learning.folds, how)
    trained = train_model(_samples(learning), request)
    return {"scores": trained.scores.to_json(), "coverage": trained.coverage}


def evaluate(learning: Learning, *, models: Sequence[str], seeds: int) -> Mapping[str, Any]:
    """`evaluate_run.evaluate`. Raises WorkloadError."""
    return evaluate_run.evaluate(
        _samples(learning),
        models,
        seeds=seeds,
        folds=learning.folds,
        members=learning.members,
        how=Fit(epochs=learning.epochs),
    )


def _samples(learning: Learning) -> list[WorkloadSamples]:
    jobs = learning.jobs or cores()
    return samples_at(learning.records, learning.samples, device=learning.device, jobs=jobs)

"""What `passwright train` and `passwright evaluate` ask for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from passwright.training import evaluate_run
from passwright.training.gain_data import samples_at
from passwright.training.gain_fit import Fit
from passwright.training.processes import cores
from passwright.training.train_run import Request
from passwright.training.train_run import train as train_model

MODELS: tuple[str, ...] = evaluate_run.MODELS


def train(
    records: Path | None,
    file: Path | None,
    output: Path,
    *,
    device: str | None,
    members: int,
    epochs: int,
    folds: int,
    seed: int,
    jobs: int | None,
) -> Mapping[str, Any]:
    """`train_run.train`. Raises WorkloadError."""
    samples = samples_at(records, file, device=device, jobs=jobs or cores())
    request = Request(output, members=members, seed=seed, folds=folds, fit=Fit(epochs=epochs))
    trained = train_model(samples, request)
    return {"scores": trained.scores.to_json(), "coverage": trained.coverage}


def evaluate(
    records: Path | None,
    file: Path | None,
    *,
    models: Sequence[str],
    device: str | None,
    members: int,
    epochs: int,
    folds: int,
    seeds: int,
    jobs: int | None,
) -> Mapping[str, Any]:
    """`evaluate_run.evaluate`. Raises WorkloadError."""
    samples = samples_at(records, file, device=device, jobs=jobs or cores())
    return evaluate_run.evaluate(
        samples, models, seeds=seeds, folds=folds, members=members, how=Fit(epochs=epochs)
    )

"""What `passwright train` and `passwright evaluate` ask for."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from passwright.passes.errors import SettingsError, WorkloadError
from passwright.scheduler import model_store
from passwright.scheduler.commands.train import Learning
from passwright.scheduler.ensemble import load
from passwright.scheduler.gain_network import NetworkConfig
from passwright.training import evaluate_run, promotion, train_logs, train_settings
from passwright.training.devices import fabric_for
from passwright.training.gain_data import samples_at
from passwright.training.gain_fit import Fit
from passwright.training.kept import Kept
from passwright.training.learning_curve import learning_curve
from passwright.training.processes import cores
from passwright.training.samples import WorkloadSamples
from passwright.training.splits import is_sealed, open_ones
from passwright.training.train_run import Request
from passwright.training.train_run import train as train_model

MODELS: tuple[str, ...] = evaluate_run.MODELS


def train(
    learning: Learning,
    output: Path,
    *,
    seed: int,
    device: str,
    devices: int,
    logs: Path,
    curve: Path | None,
) -> Mapping[str, Any]:
    """`train_run.train`. Raises WorkloadError, and SettingsError before anything is built."""
    how, config = _settings(learning)
    known = _curve(curve)
    train_logs.require()
    fabric_for(device, devices)
    request = Request(
        output, learning.members, seed, learning.folds, how, config, device, devices, logs, known
    )
    found = _samples(learning)
    if known is not None and known["device"] != found[0].device:
        raise WorkloadError(f"{curve} is of {known['device']}, and not of {found[0].device}")
    sealed = [one for one in found if is_sealed(one.family) and one.steps]
    trained = train_model(_unsealed(found), request, sealed)
    return {"scores": trained.scores.to_json(), "coverage": trained.coverage}


def study(
    learning: Learning, output: Path, *, seed: int, device: str, trials: int
) -> Mapping[str, Any]:
    """`hyper_study.study`, from the settings given. Raises WorkloadError and SettingsError."""
    from passwright.training.hyper_study import study as search

    first = _settings(learning)
    fabric_for(device)
    return search(
        _unsealed(_samples(learning)),
        output,
        first,
        trials=trials,
        members=learning.members,
        parts=learning.folds,
        seed=seed,
        device=device,
    )


def evaluate(
    learning: Learning, output: Path, *, models: Sequence[str], seeds: int, split: str, curve: bool
) -> Mapping[str, Any]:
    """`evaluate_run.evaluate`, or `learning_curve`. Raises WorkloadError and SettingsError."""
    how, config = _settings(learning)
    found = _unsealed(_samples(learning))
    doing = learning_curve if curve else evaluate_run.evaluate
    return doing(
        found,
        models,
        seeds=seeds,
        folds=learning.folds,
        members=learning.members,
        how=how,
        config=config,
        split=split,
        kept=Kept(output, found, asdict(how), config.to_json()),
    )


def _curve(file: Path | None) -> Mapping[str, Any] | None:
    if file is None:
        return None
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SettingsError(f"the learning curve cannot be read: {error}") from error
    if not isinstance(found, dict) or not {"device", "members", "points"} <= found.keys():
        raise SettingsError(
            f"{file} holds no learning curve; `passwright evaluate --curve --json FILE` writes one"
        )
    return found


def _settings(learning: Learning) -> tuple[Fit, NetworkConfig]:
    how, config = train_settings.read(learning.settings)
    if learning.epochs is not None:
        how = replace(how, epochs=learning.epochs)
    if learning.patience is not None:
        how = replace(how, patience=learning.patience)
    return how, config


def _samples(learning: Learning) -> list[WorkloadSamples]:
    jobs = learning.jobs or cores()
    return samples_at(learning.records, learning.samples, device=learning.device, jobs=jobs)


def _unsealed(found: Sequence[WorkloadSamples]) -> list[WorkloadSamples]:
    """Of families that are not sealed. Raises WorkloadError if there are no others."""
    kept = open_ones(found)
    if not kept:
        raise WorkloadError("all of these families are sealed (training/splits.py): measure others")
    return kept


def judge(
    model: Path, records: Path | None, samples: Path | None, over: Path | None
) -> Mapping[str, Any]:
    """`promotion.judged`, against the model in use on the device of this one. Raises WorkloadError."""
    try:
        new = load(model)
        old = promotion.in_use(new.device, over)
    except ValueError as error:
        raise WorkloadError(str(error)) from error
    known = samples_at(records, samples, device=new.device, jobs=cores(), only=is_sealed)
    return promotion.judged(new, old, known).to_json()


def put(model: Path, to: Path | None) -> Path:
    """Where compiles on its device look first, or `to`."""
    place = to or model_store.promoted(load(model).device)
    promotion.put(model, place)
    return place

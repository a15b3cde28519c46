"""Which gain model predicts: the one that the settings name, or that there is for the device; else the
analytic one."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from passwright.passes.dialect import Dialect
from passwright.scheduler import model_store
from passwright.scheduler.analytic import AnalyticGainModel
from passwright.scheduler.device import DeviceDescriptor, Source, assumed
from passwright.scheduler.gain import GainModel
from passwright.scheduler.once import warn_once
from passwright.scheduler.settings import Settings

if TYPE_CHECKING:
    from passwright.scheduler.ensemble import Ensemble

#: The setting for the model that was trained on nothing.
ANALYTIC = "analytic"
#: ATen-IR gets one part in so many of the rehearsals: there are two graphs of it, both larger.
_ATEN_SHARE = 4
#: So does a graph on a CPU, where less is to gain and users wait for the same two cores.
_CPU_SHARE = 3


def gain_model(settings: Settings, device: DeviceDescriptor, dialect: Dialect) -> GainModel:
    """The model for graphs of this kind on this device. A model that cannot be used costs one warning.

    The analytic one looks less far on ATen-IR, where less is left to gain, and of which nothing was
    measured for others to learn from.
    """
    found = _trained(settings.gain_model, device) if dialect is Dialect.TORCH else None
    if found is not None:
        from passwright.scheduler.learned import LearnedGainModel

        return LearnedGainModel(found, _as_learned_from(device), folds=settings.fold_parameters)
    share = _ATEN_SHARE if dialect is Dialect.ATEN else 1
    share *= _CPU_SHARE if device.kind == "cpu" else 1
    return AnalyticGainModel(
        device,
        lookahead=settings.lookahead,
        max_rehearsals=settings.max_rehearsals // share,
        folds=settings.fold_parameters,
    )


def _trained(wanted: str, device: DeviceDescriptor) -> Ensemble | None:
    """The model that is wanted, by its folder; if none is named, the one there is for the device."""
    if wanted == ANALYTIC:
        return None
    place = Path(wanted) if wanted else model_store.find(device.name)
    if place is None:
        return None
    try:
        found = _loaded(str(place), _written(place))
    except (ValueError, ImportError) as error:
        hint = "; pip install 'passwright[train]'" if isinstance(error, ImportError) else ""
        warn_once(f"gain model {place}: {error}{hint}; the analytic one is used")
        return None
    if model_store.slug(found.device) != model_store.slug(device.name):
        warn_once(
            f"gain model {place} is for {found.device!r} and not for {device.name!r}: the analytic one is"
            " used; measure plans here with `passwright collect`, and train one with `passwright train`"
        )
        return None
    return found


def _as_learned_from(device: DeviceDescriptor) -> DeviceDescriptor:
    """With the figures of the tables, by which features of what was learned from were made."""
    return assumed(torch.device(device.kind)) if device.source is Source.PROBE else device


def _written(folder: Path) -> int:
    """When the model was written, so that one which is trained anew is read anew; 0 if there is none."""
    try:
        return (folder / model_store.CONFIG).stat().st_mtime_ns
    except OSError:
        return 0


@functools.lru_cache(maxsize=4)
def _loaded(folder: str, _: int) -> Ensemble:
    from passwright.scheduler.ensemble import load

    return load(Path(folder))

"""Which gain model predicts: the one that the settings name, on the device it was trained for; else the
analytic one."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING

from passwright.passes.dialect import Dialect
from passwright.scheduler.analytic import AnalyticGainModel
from passwright.scheduler.device import DeviceDescriptor
from passwright.scheduler.gain import GainModel
from passwright.scheduler.once import warn_once
from passwright.scheduler.settings import Settings

if TYPE_CHECKING:
    from passwright.scheduler.ensemble import Ensemble

#: ATen-IR gets one part in so many of the rehearsals: there are two graphs of it, both larger.
_ATEN_SHARE = 4
#: So does a graph on a CPU, where less is to gain and users wait for the same two cores.
_CPU_SHARE = 3


def gain_model(settings: Settings, device: DeviceDescriptor, dialect: Dialect) -> GainModel:
    """The model for graphs of this kind on this device. A model that cannot be used costs one warning.

    The analytic one looks less far on ATen-IR, where less is left to gain, and of which nothing was
    measured for others to learn from.
    """
    if settings.gain_model and dialect is Dialect.TORCH:
        found = _trained(settings.gain_model, device)
        if found is not None:
            from passwright.scheduler.learned import LearnedGainModel

            return LearnedGainModel(found, device, folds=settings.fold_parameters)
    share = _ATEN_SHARE if dialect is Dialect.ATEN else 1
    share *= _CPU_SHARE if device.kind == "cpu" else 1
    return AnalyticGainModel(
        device,
        lookahead=settings.lookahead,
        max_rehearsals=settings.max_rehearsals // share,
        folds=settings.fold_parameters,
    )


def _trained(folder: str, device: DeviceDescriptor) -> Ensemble | None:
    try:
        found = _loaded(folder, _written(folder))
    except (ValueError, ImportError) as error:
        hint = "; pip install 'passwright[train]'" if isinstance(error, ImportError) else ""
        warn_once(f"gain model {folder}: {error}{hint}; the analytic one is used")
        return None
    trained_for = found.device.partition(",")[0]
    if trained_for != device.name:
        warn_once(
            f"gain model {folder} is for {trained_for!r} and not for {device.name!r}: the analytic one is"
            " used; measure plans here with `passwright collect`, and train one with `passwright train`"
        )
        return None
    return found


def _written(folder: str) -> int:
    """When the model was written, so that one which is trained anew is read anew; 0 if there is none."""
    try:
        return (Path(folder) / "config.json").stat().st_mtime_ns
    except OSError:
        return 0


@functools.lru_cache(maxsize=4)
def _loaded(folder: str, _: int) -> Ensemble:
    from passwright.scheduler.ensemble import load

    return load(Path(folder))

"""An ensemble of gain networks as a folder: `config.json` and `model.safetensors`, which hold no code."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from passwright.features import schema
from passwright.features.example import Example
from passwright.scheduler.estimate import NINETY
from passwright.scheduler.familiar import Familiar
from passwright.scheduler.gain_network import Collator, GainNetwork, NetworkConfig
from passwright.scheduler.model_store import CONFIG
from passwright.scheduler.predictor import Forecast, Predictor

WEIGHTS = "model.safetensors"
_FORMAT = 1
_CALIBRATED = ("scale", "to_go_scale", "caution", "strange_scale", "lowest", "highest")


@dataclass(frozen=True)
class Calibration:
    """What the widths are multiplied by, so that 90 % of plans of families that were never seen lie within
    their intervals; how cautious a planner has to be, so that hardly any graph of them becomes slower; what
    widths are multiplied by besides of a step that is unlike all that was learned from, which is refused if
    that is None; and the bounds of each column of `schema.SITE` in what was learned from."""

    scale: float = 1.0
    to_go_scale: float = 1.0
    caution: float = 1.0
    strange_scale: float | None = None
    lowest: tuple[float, ...] = ()
    highest: tuple[float, ...] = ()


@dataclass(frozen=True)
class Ensemble(Predictor):
    """Networks of one configuration, whose means are averaged."""

    members: Sequence[GainNetwork]
    calibration: Calibration = field(default_factory=Calibration)
    #: Of weights and configuration.
    fingerprint: str = ""
    #: What plans were measured on.
    device: str = ""

    @cached_property
    def familiar(self) -> Familiar:
        """What was learned from."""
        known = self.calibration
        return Familiar(frozenset(self.config.patterns), known.lowest, known.highest)

    @property
    def config(self) -> NetworkConfig:
        return self.members[0].config

    @property
    def version(self) -> str:
        return f"gnn-{schema.VERSION}-{self.fingerprint}"

    @property
    def caution(self) -> float:  # type: ignore[override]
        return self.calibration.caution

    def forecast(self, examples: Sequence[Example]) -> Forecast:
        """What members differ by widens the intervals."""
        if not examples:
            return Forecast(np.zeros((0, 3)), np.zeros((0, 3)))
        batch = Collator(self.config)(examples)
        with torch.inference_mode():
            found = torch.stack([member(batch) for member in self.members]).double().numpy()
        means, widths = found[..., 0], found[..., 1:]
        apart = means.std(axis=0)[..., None] * NINETY
        total = np.sqrt(np.square(widths.mean(axis=0)) + np.square(apart))
        scales = np.array([self.calibration.scale, self.calibration.to_go_scale])[:, None]
        strange = self.familiar.strange(examples)
        wider = self.calibration.strange_scale
        factor = np.array([wider or 1.0 if one.why else 1.0 for one in strange])
        total *= scales * factor[:, None, None]
        joined = np.concatenate([means.mean(axis=0)[..., None], total], axis=-1)
        return Forecast(
            joined[:, 0],
            joined[:, 1],
            strange=tuple(one.why for one in strange),
            refused=tuple(one.why if one.far or wider is None else "" for one in strange),
        )


def save(ensemble: Ensemble, folder: Path, about: Mapping[str, Any]) -> None:
    """Writes the folder, which is made. `about` goes into the configuration: data, seeds, figures."""
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    tensors = {
        f"{number}.{name}": value.contiguous()
        for number, member in enumerate(ensemble.members)
        for name, value in member.state_dict().items()
    }
    save_file(tensors, folder / WEIGHTS)
    config = {
        "format": _FORMAT,
        "network": ensemble.config.to_json(),
        "members": len(ensemble.members),
        "calibration": {name: getattr(ensemble.calibration, name) for name in _CALIBRATED},
        "about": dict(about),
    }
    text = json.dumps(config, indent=1, sort_keys=True)
    (folder / CONFIG).write_text(text + "\n", encoding="utf-8")


def load(folder: Path) -> Ensemble:
    """Reads what `save` wrote. Raises ValueError for anything else, with what to do about it."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        found = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
        if not isinstance(found, dict) or found.get("format") != _FORMAT:
            raise ValueError(f"{folder / CONFIG} is no model of format {_FORMAT}")
        config = NetworkConfig.from_json(found["network"])
        tensors = load_file(folder / WEIGHTS)
        members = [_member(config, tensors, number) for number in range(found["members"])]
        known: dict[str, Any] = found["calibration"]
        bounds = {name: tuple(known[name]) for name in ("lowest", "highest")}
        calibration = Calibration(**{**known, **bounds})
        device = str(found["about"].get("device", ""))
    except (
        AttributeError,
        OSError,
        KeyError,
        TypeError,
        RuntimeError,
        json.JSONDecodeError,
        SafetensorError,
    ) as error:
        raise ValueError(
            f"{folder} holds no gain model that can be read ({type(error).__name__}: {error}); train one"
            " with `passwright train`"
        ) from error
    read = b"".join((folder / name).read_bytes() for name in (WEIGHTS, CONFIG))
    digest = hashlib.sha256(read).hexdigest()[:12]
    return Ensemble(members, calibration, digest, device)


def _member(config: NetworkConfig, tensors: Mapping[str, Tensor], number: int) -> GainNetwork:
    network = GainNetwork(config, learns=False)
    prefix = f"{number}."
    own = {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}
    network.load_state_dict(own)
    return network.eval()

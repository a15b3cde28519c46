"""Settings of training as a JSON file: how networks are fitted, and what they look like.

    {"fit": {"epochs": 40, "learning_rate": 0.003}, "network": {"width": 96, "blocks": 1}}

What is left out is as it is by default.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from passwright.passes.errors import SettingsError
from passwright.scheduler.gain_network import NetworkConfig
from passwright.training.gain_fit import Fit

#: What samples decide, and no one else.
_OF_SAMPLES = ("patterns", "words", "schema")


def to_json(fit: Fit, network: NetworkConfig) -> dict[str, Any]:
    """All of both that can be set."""
    sizes = {k: v for k, v in asdict(network).items() if k not in _OF_SAMPLES}
    return {"fit": asdict(fit), "network": sizes}


def from_json(found: Any, where: str) -> tuple[Fit, NetworkConfig]:
    """Reads what `to_json` gave, or part of it. Raises SettingsError about `where` for anything else."""
    known = to_json(Fit(), NetworkConfig((), ()))
    _check(found, known, where)
    for part in found:
        _check(found[part], known[part], f"{where}, {part}")
        for name, value in found[part].items():
            wanted = type(known[part][name])
            if isinstance(value, bool) or not isinstance(value, (wanted, int)):
                raise SettingsError(f"{where}: {name} is {value!r}, and no {wanted.__name__}")
    network = NetworkConfig((), (), **found.get("network", {}))
    return Fit(**found.get("fit", {})), network


def read(file: Path | None) -> tuple[Fit, NetworkConfig]:
    """Of the file; the defaults without one. Raises SettingsError."""
    if file is None:
        return Fit(), NetworkConfig((), ())
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SettingsError(f"settings cannot be read: {error}") from error
    return from_json(found, str(file))


def _check(found: Any, known: Mapping[str, Any], where: str) -> None:
    if not isinstance(found, dict):
        raise SettingsError(f"{where}: a JSON object with any of {', '.join(known)} is expected")
    unknown = sorted(set(found) - set(known))
    if unknown:
        raise SettingsError(f"{where}: {unknown[0]!r} is none of {', '.join(known)}")

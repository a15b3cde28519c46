"""Where, when and with which versions a report is made."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

import torch

from passwright.scheduler import model_store
from passwright.scheduler.device import describe
from passwright.scheduler.inductor import torch_versions
from passwright.scheduler.settings import Settings
from passwright.scheduler.toolchain import own_version
from passwright.training.report.content import About

#: Settings that only say where files lie, and the seed, which stands by itself.
_ELSEWHERE = frozenset({"plan", "plan_directory", "seed"})


def about_model(subject: str, settings: Settings, device: torch.device, command: str) -> About:
    """Of a report about a model on this machine."""
    described = describe(device)
    place = settings.gain_model or model_store.find(described.name) or "analytic"
    return About(
        subject,
        described.name,
        device.type,
        now(),
        command,
        settings.seed,
        torch.get_num_threads(),
        versions(),
        changed(settings),
        place if isinstance(place, str) else place.name,
    )


def now() -> str:
    """The time of the day, for readers."""
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")


def versions() -> dict[str, str]:
    """Of what decides what a compile yields."""
    return {name: found for name, found in torch_versions().items() if found} | {
        "passwright": own_version()
    }


def changed(settings: Settings) -> Mapping[str, str]:
    """The settings that are not at their defaults, as they are given."""
    plain, found = Settings(), {}
    for name in Settings.names():
        value = getattr(settings, name)
        if name not in _ELSEWHERE and value != getattr(plain, name):
            found[name] = ",".join(value) if isinstance(value, tuple) else str(value)
    return found

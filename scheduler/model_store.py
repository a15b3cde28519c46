"""Where trained gain models lie: those that `passwright promote` took into use, and those that come with
the package. Each stands in a folder named after its device."""

from __future__ import annotations

import importlib.resources
import re
from contextlib import suppress
from pathlib import Path

from passwright.scheduler.device_store import cache_home

#: Of a model's folder; a folder without it holds none.
CONFIG = "config.json"


def find(device: str) -> Path | None:
    """The folder of the model for the device of this name: the user's own first."""
    for where in (promoted, shipped):
        with suppress(RuntimeError):  # no home directory
            if (where(device) / CONFIG).is_file():
                return where(device)
    return None


def promoted(device: str) -> Path:
    """Where the user's own model for the device lies, if there is one."""
    return cache_home() / "models" / slug(device)


def shipped(device: str) -> Path:
    """Where the one that comes with the package lies, if there is one."""
    return Path(str(importlib.resources.files("passwright.data"))) / "models" / slug(device)


def slug(device: str) -> str:
    """`NVIDIA H200` as a folder's name: `nvidia-h200`. How many threads a CPU used is no part of it."""
    name = device.partition(",")[0]
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "unknown"

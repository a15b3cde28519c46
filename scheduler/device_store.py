"""What probes of devices found, kept for later processes: one JSON file a device, in the user's cache.

The files lie apart from Inductor's cache, which is emptied, moved and made anew for single runs: what a
device can do stays the same. Reading never fails a compile: a file that cannot be used costs one warning.
"""

from __future__ import annotations

import functools
import json
import math
import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from passwright.scheduler.once import warn_once

_FORMAT = 1
#: The figures of a descriptor that a probe may measure, beside the rates of matrix products.
FIGURES = (
    "memory_bandwidth", "cache_bandwidth", "fused_launch", "extern_launch", "item_seconds", "exp_rate",
    "call_seconds", "fresh_bandwidth",
)  # fmt: skip
PRECISIONS = ("fp64", "fp32", "tf32", "bf16", "fp16")
_CURE = "run `passwright doctor --probe` again"


@dataclass(frozen=True)
class Probed:
    """What one probe measured of one device: figures by the names of `DeviceDescriptor`, in its units.

    `spread`: how much longer a usual try took than the shortest, as a part of it: in the worst trial on a
    GPU, in a usual one on a CPU. `torch`, `driver` and
    `date` (ISO, UTC) say what it was measured with.
    """

    kind: str
    name: str
    cores: int
    figures: Mapping[str, float] = field(hash=False)
    peak_flops: Mapping[str, float] = field(hash=False)
    spread: float = 0.0
    torch: str = ""
    driver: str = ""
    date: str = ""

    def to_json(self) -> str:
        """One JSON object, keys sorted."""
        return json.dumps({"format": _FORMAT, **asdict(self)}, sort_keys=True, indent=1)

    @classmethod
    def from_json(cls, text: str) -> Probed:
        """Reads what `to_json` wrote; ValueError when it is something else, or a figure cannot be."""
        data: Any = json.loads(text)
        if not isinstance(data, dict) or data.pop("format", None) != _FORMAT:
            raise ValueError(f"no probe of format {_FORMAT}")
        try:
            found = cls(**data)
            _check(found.figures, FIGURES)
            _check(found.peak_flops, PRECISIONS)
        except (TypeError, AttributeError) as error:
            raise ValueError(f"no probe: {error}") from error
        return found


def _check(figures: Mapping[str, float], names: tuple[str, ...]) -> None:
    for name, value in figures.items():
        if name not in names:
            raise ValueError(f"no figure is called {name!r}")
        if not (math.isfinite(value) and value > 0):
            raise ValueError(f"{name} is {value}")


def cache_home() -> Path:
    """Where what is kept for this user lies: `passwright` in `XDG_CACHE_HOME`, or else in `~/.cache`."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    cache = Path(given) if Path(given).is_absolute() else Path("~/.cache").expanduser()
    return cache / "passwright"


def directory() -> Path:
    """Where probes are kept."""
    return cache_home() / "devices"


def path_of(kind: str, name: str, cores: int) -> Path:
    """Where the probe of such a device lies, or would lie. Slices of a GPU, and a CPU of which torch uses
    fewer threads, are devices of their own."""
    short = re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-").lower()
    return directory() / f"{kind}-{short}-{cores}.json"


def find(kind: str, name: str, cores: int) -> Probed | None:
    """The probe of this device; None if there is none, or none that can be used, which costs a warning.

    Each file is read once in a process, so that all graphs in it are planned with the same figures.
    """
    try:
        path = path_of(kind, name, cores)
    except RuntimeError:  # no home directory
        return None
    found = _read(path)
    if found is not None and (found.kind, found.name, found.cores) != (kind, name, cores):
        warn_once(f"probe {path} is of {found.name!r}, and not of {name!r}; {_CURE}")
        return None
    return found


@functools.cache
def _read(path: Path) -> Probed | None:
    try:
        return Probed.from_json(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        warn_once(f"probe {path} is not used ({error}); {_CURE}, or delete the file")
        return None


def keep(probed: Probed) -> Path:
    """Writes the probe for this user alone, in one piece or not at all; an earlier one is replaced.

    Raises OSError where the directory cannot be written, RuntimeError where there is no home for it.
    """
    target = path_of(probed.kind, probed.name, probed.cores)
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle, part = tempfile.mkstemp(dir=target.parent, prefix=".probe-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(probed.to_json() + "\n")
        Path(part).replace(target)
    except BaseException:
        Path(part).unlink(missing_ok=True)
        raise
    forget()
    return target


def forget() -> None:
    """Reads every file anew when it is asked for next."""
    _read.cache_clear()

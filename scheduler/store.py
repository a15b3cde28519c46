"""Where plans are kept: one JSON file a graph, under Inductor's cache directory.

Written atomically, so that several processes may share the directory. A directory that cannot be
written costs one warning and no more.
"""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from passwright.passes.errors import PlanFormatError
from passwright.scheduler.plan import Plan, load

log = logging.getLogger(__name__)

_warned: set[Path] = set()


class PlanStore:
    """Plans by key."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.directory = Path(directory)

    def path(self, key: str) -> Path:
        """Where the plan with this key lies, or would lie."""
        return self.directory / f"{key}.json"

    def load(self, key: str) -> Plan | None:
        """The stored plan, or None; a damaged or foreign file counts as none, with a warning."""
        try:
            return load(self.path(key).read_text(encoding="utf-8"))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, UnicodeError, PlanFormatError) as error:
            self._warn(f"stored plan {self.path(key)} is not used ({error}); a new one is made")
            return None

    def save(self, key: str, plan: Plan) -> Path | None:
        """Writes the plan; None where the directory cannot be written."""
        target = self.path(key)
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=self.directory, prefix=".plan-")
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(plan.to_json())
            Path(name).replace(target)
        except OSError as error:
            self._warn(
                f"plans cannot be kept in {self.directory} ({error.strerror}); set"
                " PASSWRIGHT_PLAN_DIRECTORY to a directory that can be written"
            )
            return None
        return target

    def __iter__(self) -> Iterator[tuple[str, Plan]]:
        """(key, plan) of every readable plan, oldest first."""
        files = sorted(self.directory.glob("*.json"), key=lambda p: p.stat().st_mtime)
        for file in files:
            plan = self.load(file.stem)
            if plan is not None:
                yield file.stem, plan

    def _warn(self, message: str) -> None:
        if self.directory not in _warned:
            _warned.add(self.directory)
            log.warning(message)

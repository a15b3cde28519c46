"""The table of patterns: those shipped here and those that other packages bring.

A package offers patterns under the entry-point group `passwright.patterns`; the entry names a module
or a Pattern subclass. A broken plug-in is reported once and left out.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Iterable, Iterator
from functools import cache
from importlib import import_module, metadata
from types import ModuleType

from passwright.passes.address import digest
from passwright.passes.pattern import Pattern

log = logging.getLogger(__name__)

GROUP = "passwright.patterns"
_BUILTIN = "passwright.passes.patterns"


_DECLARED = ("direction", "exactness", "anchors")


class PatternTable:
    """Patterns by name, in alphabetical order."""

    def __init__(self, patterns: Iterable[Pattern]) -> None:
        self._by_name = {p.name(): p for p in sorted(patterns, key=lambda p: p.name())}

    def __iter__(self) -> Iterator[Pattern]:
        return iter(self._by_name.values())

    def __len__(self) -> int:
        return len(self._by_name)

    def __getitem__(self, name: str) -> Pattern:
        return self._by_name[name]

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def only(self, names: Iterable[str]) -> PatternTable:
        """The patterns with these names."""
        wanted = set(names)
        return PatternTable(p for p in self if p.name() in wanted)

    def without(self, names: Iterable[str]) -> PatternTable:
        """All patterns but these."""
        unwanted = set(names)
        return PatternTable(p for p in self if p.name() not in unwanted)

    @property
    def version(self) -> str:
        """Changes with the source of any pattern."""
        return digest(*(f"{p.name()}:{_source_hash(type(p))}" for p in self))


@cache
def default_table() -> PatternTable:
    """The shipped patterns and those of installed packages."""
    found: dict[str, Pattern] = {}
    for pattern in patterns_of(import_module(_BUILTIN)):
        found[pattern.name()] = pattern
    for entry in metadata.entry_points(group=GROUP):
        if entry.value == _BUILTIN:
            continue
        try:
            for pattern in patterns_of(entry.load()):
                if found.setdefault(pattern.name(), pattern) is not pattern:
                    log.warning(
                        "a pattern of %r left out: %s is taken; rename it",
                        entry.value,
                        pattern.name(),
                    )
        except Exception as error:  # a plug-in is somebody else's code
            log.warning("patterns of %r left out: %s; update or uninstall it", entry.value, error)
    return PatternTable(found.values())


def patterns_of(source: ModuleType | type) -> list[Pattern]:
    """One instance of every concrete pattern that a module names (or of the class itself).

    Raises TypeError where there is none, or one that does not declare what it must.
    """
    classes = [source] if isinstance(source, type) else list(vars(source).values())
    found = [
        item()
        for item in dict.fromkeys(filter(inspect.isclass, classes))
        if issubclass(item, Pattern) and not inspect.isabstract(item)
    ]
    if not found:
        raise TypeError(f"{source.__name__} names no pattern")
    for pattern in found:
        missing = [name for name in _DECLARED if not hasattr(pattern, name)]
        if missing:
            raise TypeError(f"pattern {pattern.name()} does not declare {', '.join(missing)}")
    return found


@cache
def _source_hash(kind: type) -> str:
    try:
        return digest(inspect.getsource(inspect.getmodule(kind) or kind))
    except (OSError, TypeError):
        return digest(kind.__module__, kind.__qualname__)

"""The table of patterns: shipped ones, plug-ins, broken plug-ins, selection, version."""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from passwright.passes import table as module_under_test
from passwright.passes.pattern import Direction, Exactness, Pattern
from passwright.passes.table import GROUP, PatternTable, default_table, patterns_of

PLUGIN = '''
from passwright.passes.ops import Split
from passwright.passes.pattern import Direction, Exactness, Pattern

class {name}(Pattern):
    """Does nothing."""
    direction = Direction.VERTICAL
    exactness = Exactness.BITWISE
    anchors = frozenset({{Split}})
    def matches(self, graph, anchor):
        return iter(())
    def rewrite(self, m, edit):
        raise NotImplementedError({text!r})
'''


def load(path: Path, name: str, source: str) -> ModuleType:
    """A module from source that inspect can find again."""
    file = path / f"{name}.py"
    file.write_text(source)
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    import sys

    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


class Entry:
    """An entry point that loads the given object, or raises it."""

    def __init__(self, value: str, loaded: Any) -> None:
        self.value = value
        self.loaded = loaded

    def load(self) -> Any:
        if isinstance(self.loaded, Exception):
            raise self.loaded
        return self.loaded


@pytest.fixture
def plugged(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Entry]]:
    """Entry points of the pattern group, beside the shipped one."""
    entries = [Entry("passwright.passes.patterns", RuntimeError("loaded twice"))]

    def entry_points(*, group: str) -> list[Entry]:
        assert group == GROUP
        return entries

    monkeypatch.setattr(metadata, "entry_points", entry_points)
    default_table.cache_clear()
    yield entries
    default_table.cache_clear()


def test_the_shipped_patterns_declare_themselves() -> None:
    table = default_table()
    assert len(table) >= 16
    names = [pattern.name() for pattern in table]
    assert names == sorted(set(names))
    for pattern in table:
        assert isinstance(pattern.direction, Direction)
        assert isinstance(pattern.exactness, Exactness)
        assert pattern.anchors
        assert pattern.levels
        assert (pattern.__doc__ or "").strip().splitlines()[0].endswith(".")
        assert table[pattern.name()] is pattern
        assert pattern.name() in table
    assert "no such" not in table


def test_the_package_names_its_patterns_by_entry_point() -> None:
    values = [entry.value for entry in metadata.entry_points(group=GROUP)]
    assert "passwright.passes.patterns" in values


def test_only_and_without() -> None:
    table = default_table()
    names = [pattern.name() for pattern in table]
    chosen, rest = names[:3], names[3:]
    assert [p.name() for p in table.only(chosen)] == chosen
    assert [p.name() for p in table.without(chosen)] == rest
    assert len(table.only([])) == 0
    assert [p.name() for p in table.without([])] == names
    assert [p.name() for p in PatternTable(reversed(list(table)))] == names


def test_a_plug_in_is_found(plugged: list[Entry], tmp_path: Path) -> None:
    one = load(tmp_path, "plugin_one", PLUGIN.format(name="FirstOfMine", text="a"))
    two = load(tmp_path, "plugin_two", PLUGIN.format(name="SecondOfMine", text="a"))
    plugged += [Entry("plugin_one", one), Entry("plugin_two:SecondOfMine", two.SecondOfMine)]
    table = default_table()
    assert "first_of_mine" in table
    assert "second_of_mine" in table
    assert "merge_nested_splits" in table


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (ImportError("no module named nothing"), "no module named nothing"),
        (ModuleType("empty"), "no pattern"),
        (Exactness, "no pattern"),
        (7, "left out"),
        ("undeclared", "does not declare direction, exactness, anchors"),
        ("needs an argument", "argument"),
    ],
    ids=["import", "empty", "class", "object", "undeclared", "constructor"],
)
def test_a_broken_plug_in_is_reported_once_and_left_out(
    plugged: list[Entry],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    broken: Any,
    words: str,
) -> None:
    class Undeclared(Pattern):
        def matches(self, graph: Any, anchor: Any) -> Any:
            return iter(())

        def rewrite(self, m: Any, edit: Any) -> None:
            raise NotImplementedError

    class Demanding(Undeclared):
        def __init__(self, number: int) -> None:
            self.number = number

    broken = {"undeclared": Undeclared, "needs an argument": Demanding}.get(str(broken), broken)
    fine = load(tmp_path, "plugin_fine", PLUGIN.format(name="FineOne", text="a"))
    plugged += [Entry("bad.plugin", broken), Entry("plugin_fine", fine)]
    with caplog.at_level(logging.WARNING):
        table = default_table()
        default_table()
    assert "fine_one" in table
    assert "merge_nested_splits" in table
    (record,) = caplog.records
    assert "bad.plugin" in record.getMessage()
    assert words in record.getMessage()


def test_a_taken_name_is_reported(
    plugged: list[Entry], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    mine = load(tmp_path, "plugin_taken", PLUGIN.format(name="MergeNestedSplits", text="a"))
    plugged.append(Entry("plugin_taken", mine))
    with caplog.at_level(logging.WARNING):
        table = default_table()
    assert type(table["merge_nested_splits"]).__module__ != "plugin_taken"
    assert "merge_nested_splits is taken" in caplog.text


def test_the_version_changes_with_the_source(tmp_path: Path) -> None:
    def version(name: str, text: str) -> str:
        module = load(tmp_path, name, PLUGIN.format(name="Mine", text=text))
        return PatternTable(patterns_of(module)).version

    assert version("version_a", "x") == version("version_b", "x")
    assert version("version_c", "y") != version("version_a2", "x")
    table = default_table()
    assert table.version == PatternTable(table).version
    assert table.version != table.without([next(iter(table)).name()]).version


def test_a_pattern_without_source_has_a_version() -> None:
    namespace: dict[str, Any] = {"__name__": "typed_in"}
    exec(PLUGIN.format(name="TypedIn", text="a"), namespace)
    first = PatternTable([namespace["TypedIn"]()]).version
    assert first
    assert module_under_test.PatternTable([]).version != first

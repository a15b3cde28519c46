"""The pages under docs/ are followed to the letter: what they say to write is written, and run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parent.parent / "docs" / "adding-a-pattern.md"
_FILE = re.compile(r"<!-- file (?P<name>\S+) -->\n```\w*\n(?P<text>.*?)```", re.DOTALL)
_PATTERNS = (
    "import sys; from passwright.scheduler.cli import main; sys.argv[0] = 'passwright'; main()"
)


def files_of(page: str) -> dict[str, str]:
    """The files that a page tells to write."""
    return {found["name"]: found["text"] for found in _FILE.finditer(page)}


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the files of the page, and the metadata that an install would leave."""
    folder = tmp_path_factory.mktemp("plugin")
    for name, text in files_of(PAGE.read_text(encoding="utf-8")).items():
        (folder / name).write_text(text, encoding="utf-8")
    subprocess.run(
        [sys.executable, "-c", "from setuptools import setup; setup()", "-q", "egg_info"],
        cwd=folder,
        check=True,
        capture_output=True,
        timeout=120,
    )
    return folder


def run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Python in the folder, as if the plug-in were installed."""
    environment = os.environ | {"PYTHONPATH": str(folder), "COLUMNS": "100"}
    return subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )


def test_the_page_has_its_files() -> None:
    files = files_of(PAGE.read_text(encoding="utf-8"))
    assert set(files) == {"passwright_doubles.py", "test_passwright_doubles.py", "pyproject.toml"}


def test_its_tests_pass(plugin: Path) -> None:
    done = run(plugin, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_passwright_doubles.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "14 passed" in done.stdout


def test_passwright_lists_the_pattern(plugin: Path) -> None:
    done = run(plugin, "-c", _PATTERNS, "patterns", "remove_double_negation")
    assert done.returncode == 0, done.stderr
    assert "no writes between" in done.stdout
    assert "neg(neg(x))" in done.stdout


def test_the_rewriter_takes_it_from_the_table(plugin: Path) -> None:
    code = (
        "from passwright.passes.table import default_table\n"
        "pattern = default_table()['remove_double_negation']\n"
        "assert type(pattern).__module__ == 'passwright_doubles'"
    )
    done = run(plugin, "-c", code)
    assert done.returncode == 0, done.stderr


def test_every_name_in_its_tables_exists() -> None:
    """Predicates and methods of the editor that the page names."""
    from passwright.passes import legality, spec
    from passwright.passes.editor import GraphEditor
    from passwright.passes.pattern import Pattern

    page = PAGE.read_text(encoding="utf-8")
    side = page.partition("## Side conditions")[2].partition("## Through")[0]
    names = {n for line in side.splitlines() if line.startswith("| `") for n in _names(line)}
    assert len(names) > 8
    assert [n for n in names if not (hasattr(legality, n) or hasattr(spec, n))] == []
    editor = set(re.findall(r"edit\.(\w+)", page))
    assert [name for name in editor if not hasattr(GraphEditor, name)] == []
    declared = page.partition("What it declares")[2].partition("## Side")[0]
    attributes = {
        n for line in declared.splitlines() if line.startswith("| `") for n in _names(line)
    }
    known = {*vars(Pattern), *Pattern.__annotations__}
    assert attributes <= known


def _names(row: str) -> list[str]:
    """Names in the first column of a table's row."""
    return re.findall(r"`(\w+)`", row.split("|")[1])

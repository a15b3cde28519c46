"""The package as it is installed: what is in it, what it imports, and how long that takes."""

import ast
import importlib.metadata
import json
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("passes", "features", "scheduler", "training", "data")

MAY_IMPORT = {
    "passes": {"passes"},
    "features": {"passes", "features"},
    "scheduler": {"passes", "features", "scheduler"},
    "training": set(FOLDERS),
    "data": set(),
}
# Where the parts are put together.
COMPOSITION_ROOTS = {"scheduler/cli.py"}


def sources() -> list[Path]:
    return [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]


def setuptools_table() -> dict[str, Any]:
    with (ROOT / "pyproject.toml").open("rb") as file:
        table: dict[str, Any] = tomllib.load(file)["tool"]["setuptools"]
    return table


def package_of(folder: Path) -> str:
    return ".".join(("passwright", *folder.relative_to(ROOT).parts))


def imported_modules(path: Path) -> Iterator[tuple[int, str]]:
    """Every module that a file imports, anywhere in it, with the line; relative ones resolved."""
    package = package_of(path.parent).split(".")
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield node.lineno, module
            yield from ((node.lineno, f"{module}.{alias.name}") for alias in node.names)


def forbidden_imports(path: Path, folder: str) -> list[str]:
    found = []
    for line, module in imported_modules(path):
        parts = module.split(".")
        if parts[0] in FOLDERS:
            found.append(f"{path.name}:{line} imports {module} without the package's name")
        if parts[0] == "passwright" and len(parts) > 1 and parts[1] not in MAY_IMPORT[folder]:
            found.append(f"{path.name}:{line} imports {module}")
    return sorted(set(found))


@pytest.mark.parametrize("path", sources(), ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_one_way(path: Path) -> None:
    relative = path.relative_to(ROOT)
    if relative.as_posix() not in COMPOSITION_ROOTS:
        assert forbidden_imports(path, relative.parts[0]) == []


@pytest.mark.parametrize(
    "text",
    [
        "from passwright.training import measure",
        "def late():\n    import passwright.scheduler.plan",
        "from passwright import scheduler",
        "from ..scheduler import plan",
        "import scheduler",
    ],
)
def test_a_wrong_import_would_be_seen(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "read_text", lambda _: text)
    assert forbidden_imports(ROOT / "passes" / "some.py", "passes")


def test_every_package_is_listed() -> None:
    folders = {path.parent for path in sources() if path.name == "__init__.py"}
    assert {package_of(folder) for folder in folders} == set(setuptools_table()["packages"])
    unlisted = {path.parent for path in sources()} - folders
    assert not unlisted, "folders with code but without an __init__.py"


def test_every_data_file_is_listed() -> None:
    patterns = setuptools_table()["package-data"]
    for folder in FOLDERS:
        assert (ROOT / folder / "py.typed").is_file()
        for path in (ROOT / folder).rglob("*"):
            if path.is_dir() or path.suffix in {".py", ".pyc"}:
                continue
            name = path.relative_to(ROOT / folder).as_posix()
            known = [*patterns["*"], *patterns.get(f"passwright.{folder}", [])]
            assert any(fnmatch(name, pattern) for pattern in known), (
                f"{folder}/{name} is not packed"
            )


@pytest.mark.parametrize(
    ("group", "name", "value"),
    [
        ("torch_dynamo_backends", "passwright", "passwright.scheduler.backend:passwright"),
        ("passwright.patterns", "builtin", "passwright.passes.patterns"),
        ("console_scripts", "passwright", "passwright.scheduler.cli:main"),
    ],
)
def test_entry_points_load(group: str, name: str, value: str) -> None:
    (entry,) = (e for e in importlib.metadata.entry_points(group=group, name=name))
    assert entry.value == value
    assert entry.load() is not None


def test_torch_lists_the_backend() -> None:
    import torch

    assert "passwright" in torch.compiler.list_backends()


def imported_by(module: str) -> dict[str, Any]:
    """CPU seconds that torch takes to import, those of the module after it, and what that adds."""
    code = (
        "import importlib, json, sys, time\n"
        "start = time.process_time(); import torch; torch_s = time.process_time() - start\n"
        "before = set(sys.modules); start = time.process_time()\n"
        f"importlib.import_module({module!r})\n"
        "own_s = time.process_time() - start\n"
        "print(json.dumps({'torch_s': torch_s, 'own_s': own_s,"
        " 'added': sorted(set(sys.modules) - before)}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True
    )
    result: dict[str, Any] = json.loads(done.stdout)
    return result


@pytest.mark.parametrize("module", ["passwright.passes", "passwright.scheduler.backend"])
def test_importing_adds_little_to_torch(module: str) -> None:
    result = imported_by(module)
    roots = {name.partition(".")[0] for name in result["added"]}
    lazy = {
        *("lightning_fabric", "optuna", "pandas", "pyarrow", "rich", "sklearn"),
        *("torch_geometric", "triton", "typer"),
    }
    assert not roots & lazy
    assert "passwright.training" not in result["added"]
    assert result["own_s"] < 0.5 * result["torch_s"]


@pytest.mark.slow
def test_the_wheel_holds_only_the_package(tmp_path: Path) -> None:
    # Through the source archive, so that nothing an earlier build left in the tree gets in.
    subprocess.run(
        [sys.executable, "-m", "build", "--outdir", str(tmp_path), str(ROOT)],
        check=True,
        capture_output=True,
        timeout=280,
    )
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"passwright"}
    assert "passwright/__init__.py" not in names
    packed = {name for name in names if name.endswith(".py")}
    assert packed == {f"passwright/{path.relative_to(ROOT).as_posix()}" for path in sources()}
    assert {f"passwright/{folder}/py.typed" for folder in FOLDERS} <= set(names)

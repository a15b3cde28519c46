"""Calls of the command line."""

from __future__ import annotations

import json
from typing import Any

from typer.testing import CliRunner, Result

from passwright.scheduler import cli


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli.app, list(arguments), env={"COLUMNS": "200"})


def run_json(*arguments: str) -> Any:
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def assert_refused(result: Result, *words: str) -> None:
    """Exit code 2, and one line on stderr that says what to do."""
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("passwright: ")
    assert result.stderr.count("\n") == 1
    for word in words:
        assert word in result.stderr

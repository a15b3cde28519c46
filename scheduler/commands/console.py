"""What all commands share: where output goes, how progress is shown, and how errors end a command.

Results go to stdout, everything else to stderr, so that `passwright ... --json | jq` works.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperGroup

from passwright.passes.errors import PlanFormatError, SettingsError, WorkloadError
from passwright.passes.errors import cause as cause

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

#: Exit codes besides 0: something failed, the command line is wrong, Ctrl-C.
FAILED, WRONG, INTERRUPTED = 1, 2, 130
#: Columns of output that goes to a file or a pipe.
_WIDTH = 160


class CommandGroup(TyperGroup):
    """Ends a command with one line on stderr, where the user can do something about the error."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except (SettingsError, PlanFormatError, WorkloadError) as error:
            say(f"passwright: {error}")
            raise typer.Exit(WRONG) from error
        except KeyboardInterrupt as error:
            say("passwright: stopped")
            raise typer.Exit(INTERRUPTED) from error


def say(line: str) -> None:
    """One line on stderr."""
    typer.echo(line, err=True)


def print_json(data: Any) -> None:
    """A JSON document on stdout, keys sorted."""
    typer.echo(json.dumps(data, indent=1, sort_keys=True))


def seconds_of(text: str, where: str) -> float:
    """`90`, `90s`, `10m` and `2h` in seconds. Raises typer.BadParameter about the option `where`."""
    import typer

    units = {"s": 1.0, "m": 60.0, "h": 3600.0}
    number, unit = (text[:-1], text[-1]) if text[-1:] in units else (text, "s")
    try:
        seconds = float(number) * units[unit]
    except ValueError:
        seconds = 0.0
    if seconds <= 0:
        raise typer.BadParameter(f"{text!r} is no time; use 90s, 10m or 2h", param_hint=where)
    return seconds


def console(*, stderr: bool = False) -> Console:
    """A rich console that wraps on a terminal and gets room for its tables elsewhere."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    given = stream.isatty() or "COLUMNS" in os.environ
    return Console(file=stream, width=None if given else _WIDTH, highlight=False, soft_wrap=False)


class Reporter:
    """Progress over a known number of items: a bar on a terminal, else one line an item."""

    def __init__(self, total: int, bar: Progress | None) -> None:
        self.total = total
        self.done = 0
        self._bar = bar
        self._task = bar.add_task("", total=total) if bar else None

    def working_on(self, what: str) -> None:
        """Shown beside the bar until told otherwise; not shown off a terminal."""
        if self._bar and self._task is not None:
            self._bar.update(self._task, description=what)

    def finished(self, line: str) -> None:
        """One more item is done; the line stays."""
        self.done += 1
        line = f"[{self.done}/{self.total}] {line}"
        if self._bar and self._task is not None:
            self._bar.console.print(line, markup=False)
            self._bar.update(self._task, completed=self.done)
        else:
            say(line)


@contextmanager
def progress(total: int) -> Iterator[Reporter]:
    """Progress on stderr."""
    if not sys.stderr.isatty():
        yield Reporter(total, None)
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}", markup=False),
    )
    with Progress(*columns, console=console(stderr=True), transient=True) as bar:
        yield Reporter(total, bar)

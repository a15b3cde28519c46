"""Whether results can be kept where they are wanted, asked before minutes of measuring and not after."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryFile
from typing import Protocol

from passwright.passes.errors import WorkloadError


def check(*files: Path | None) -> None:
    """Whether these can be written; makes their folders. Raises WorkloadError."""
    wanted = [file for file in files if file is not None]
    if len({file.absolute() for file in wanted}) < len(wanted):
        raise WorkloadError(f"{wanted[0]} cannot hold several things: name a file for each")
    for file in wanted:
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            if file.is_dir():
                raise IsADirectoryError(errno.EISDIR, "it is a folder")
            with TemporaryFile(dir=file.parent):
                pass
        except OSError as error:
            raise unwritable(file, error) from error


class HasRows(Protocol):
    """A report, as far as it matters whether there is anything in it."""

    @property
    def rows(self) -> Sequence[object]: ...


def check_unused(file: Path | None, load: Callable[[Path], HasRows]) -> None:
    """Whether a new report may take the file's place. Raises WorkloadError where measured rows would be
    lost, or something that is no report, as `load` finds."""
    if file is None or not file.exists() or not file.stat().st_size:
        return
    if rows := len(load(file).rows):
        raise WorkloadError(
            f"{file} holds {rows} rows that were measured before: go on from them with --resume, name"
            " another file, or remove it"
        )


def unwritable(file: Path, error: OSError) -> WorkloadError:
    """What is said of a file that cannot be written."""
    return WorkloadError(f"{file} cannot be written: {error.strerror}; name another file")

"""Whether results can be kept where they are wanted, asked before minutes of measuring and not after."""

from __future__ import annotations

import errno
from pathlib import Path
from tempfile import TemporaryFile

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


def unwritable(file: Path, error: OSError) -> WorkloadError:
    """What is said of a file that cannot be written."""
    return WorkloadError(f"{file} cannot be written: {error.strerror}; name another file")

"""The store of measured records: a directory of Parquet files to which records are only ever added.

    import pandas as pd
    pd.read_parquet("runs/records")

The directory holds segments, `records-000000.parquet` and so on. An append writes the last segment anew,
with the new rows at its end, under a hidden name, and renames it over the old one; a full segment is left
alone and the next one begun. So every change is one rename of one file, and nothing is ever deleted:

- At any moment, kills included, each segment is whole, and each record is in one segment.
- Records are there for good once `append` returns: file and directory are synced. Those of an append
  that was cut short are all there or all missing.
- A reader at any time, pandas included, sees each record that was finished before it began exactly once.

Hidden files (`.lock`, what a killed append left) are not read: readers of Parquet directories pass over
names that begin with a dot. The idea of rewriting a bounded tail in place of many small files that are
merged later is that of log-structured stores with one open segment.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from passwright.passes.errors import WorkloadError
from passwright.training.records import SCHEMA, Record, arrow_schema, record_key

if TYPE_CHECKING:
    import pyarrow as pa

#: A segment of so many rows is full. It bounds what an append writes: about a megabyte.
SEGMENT_ROWS = 1000
#: Where each file says of which schema it is.
_VERSION = b"passwright.schema"
_NAME = re.compile(r"records-(\d{6})\.parquet")
_KEY_COLUMNS = ("workload", "plan_key", "levels", "device")
#: Raw times, most of the bytes.
_BLOCKS = ("blocks", "default_blocks", "again_blocks")


class StoreError(WorkloadError):
    """What is to be read is no store of records, or of another schema, or another process writes it."""


class Store:
    """The records in one directory. Anybody may read; one process writes, and has the lock meanwhile.

        with Store("runs/records") as store:
            if wanted not in store.keys():
                store.append([record])

    A directory that is not there is made with the first lock. Not for several threads.
    """

    def __init__(
        self, directory: str | os.PathLike[str], *, segment_rows: int = SEGMENT_ROWS
    ) -> None:
        self.directory = Path(directory)
        self._segment_rows = segment_rows
        self._lock: int | None = None
        #: The last segment, to which an append adds, and its number.
        self._tail: pa.Table | None = None
        self._number = 0

    # ---- writing

    def lock(self) -> None:
        """From now on this process alone may append. Raises StoreError if another one may.

        The lock goes with the process, however that ends. Children that are forked share it.
        """
        if self._lock is not None:
            return
        self.directory.mkdir(parents=True, exist_ok=True)
        handle = os.open(self.directory / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(handle, 0)
            os.pwrite(handle, str(os.getpid()).encode(), 0)
            self._open_tail()
        except BlockingIOError:
            owner = os.pread(handle, 20, 0).decode() or "unknown"
            os.close(handle)
            raise StoreError(
                f"another collector writes to {self.directory} (process {owner}); wait for it, or"
                " collect into another directory and pack both"
            ) from None
        except BaseException:
            os.close(handle)
            raise
        self._lock = handle

    def close(self) -> None:
        """Gives the lock back. What was appended lies on disk already."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = self._tail = None

    def __enter__(self) -> Self:
        self.lock()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def append(self, records: Sequence[Record]) -> None:
        """Adds the records, all or none; they are on disk when it returns.

        Takes the lock if it is not held. Raises StoreError if another process holds it, and
        pyarrow.ArrowInvalid or ArrowTypeError for a value of a wrong type; then nothing is added.
        """
        import pyarrow as pa

        self.lock()
        added = to_table(records)
        if not added:
            return
        if self._tail is None:
            self._open_tail()
        # Whether a write that raises was in time, only the file knows.
        tail, self._tail = self._tail, None
        assert tail is not None
        if tail.num_rows >= self._segment_rows:
            self._number, tail = self._number + 1, added
        else:
            tail = pa.concat_tables([tail, added]).combine_chunks()
        write_table(tail, self._segment(self._number))
        self._tail = tail

    def _open_tail(self) -> None:
        """Looks at every file, so that a foreign one is found before anything is measured."""
        for left in self.directory.glob(".records-*"):
            left.unlink()  # of an append that was killed before its rename
        files = _files(self.directory)
        for file in files:
            _opened(file)
        numbers = [int(found[1]) for file in files if (found := _NAME.fullmatch(file.name))]
        self._number = max(numbers, default=0)
        if not numbers:
            # pandas cannot read a directory without files.
            write_table(_empty(), self._segment(0))
        self._tail = read_table(self._segment(self._number))

    def _segment(self, number: int) -> Path:
        return self.directory / f"records-{number:06d}.parquet"

    # ---- reading

    def table(self, columns: Sequence[str] | None = None) -> pa.Table:
        """All records, oldest first; or these columns of them."""
        return read_table(self.directory, columns) if self.directory.exists() else _empty(columns)

    def records(self) -> list[Record]:
        """All records, oldest first."""
        return to_records(self.table())

    def keys(self) -> Counter[str]:
        """How many records there are of each key."""
        table = self.table(_KEY_COLUMNS)
        rows = zip(*(table[name].to_pylist() for name in _KEY_COLUMNS), strict=True)
        return Counter(record_key(*row) for row in rows)


# ---- files


def read_table(path: Path, columns: Sequence[str] | None = None) -> pa.Table:
    """The records in a directory, by the names of its files, or in one file; or these columns of them.

    Raises:
        StoreError: there is nothing, a file holds something else, or is of another schema.
    """
    import pyarrow as pa

    if not path.exists():
        raise StoreError(f"there are no records at {path}: no such file or directory")
    files = _files(path) if path.is_dir() else [path]
    names = list(columns or arrow_schema().names)
    tables = [_opened(file).read(columns=names).select(names) for file in files]
    return pa.concat_tables([_empty(columns), *tables]).replace_schema_metadata(None)


def read_records(path: Path, *, blocks: bool = True) -> list[Record]:
    """The same as records; without the raw times, which take most of the reading, unless `blocks`."""
    names = [n for n in arrow_schema().names if blocks or n not in _BLOCKS]
    return to_records(read_table(path, names))


def to_records(table: pa.Table) -> list[Record]:
    """The rows of a table."""
    return [Record.from_row(row) for row in table.to_pylist()]


def to_table(records: Iterable[Record]) -> pa.Table:
    """Records as rows. Raises pyarrow.ArrowInvalid or ArrowTypeError for values of a wrong type."""
    import pyarrow as pa

    return pa.Table.from_pylist([record.to_row() for record in records], schema=arrow_schema())


def write_table(table: pa.Table, file: Path) -> None:
    """One file, in one piece or not at all, and synced. The same table gives the same bytes."""
    import pyarrow.parquet as pq

    table = table.replace_schema_metadata({_VERSION: str(SCHEMA)})
    part = file.with_name(f".{file.name}")
    with part.open("wb") as stream:
        pq.write_table(table, stream, compression="zstd")
        stream.flush()
        os.fsync(stream.fileno())
    part.replace(file)
    handle = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)  # the rename
    finally:
        os.close(handle)


def pack(sources: Path | Sequence[Path], file: Path) -> int:
    """Writes the records of directories and files as one file, to be committed; how many they are.

    The same records give the same bytes, in whatever order they were collected. Repetitions stay. What
    several sources hold, equal in every column, is one record that was copied.

    Raises:
        StoreError: a source cannot be read, or the file would lie in a source.
    """
    sources = [sources] if isinstance(sources, Path) else sources
    union: Counter[Record] = Counter()
    for source in sources:
        if source.is_dir() and source.resolve() == file.resolve().parent:
            raise StoreError(
                f"{file} would lie in {source}, which would then hold its records twice"
            )
        union |= Counter(read_records(source))
    records = sorted(union.elements(), key=_order)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_table(to_table(records), file)
    return len(records)


def _order(record: Record) -> tuple[str, ...]:
    """Like beside like, which packs well; then everything, so that the order is total."""
    first = (record.family, record.workload, record.levels, record.device, record.plan_key)
    return (*first, record.date, record.run, repr(record))


def _files(directory: Path) -> list[Path]:
    """What plain readers of the directory would read, in order."""
    found = [path for path in directory.iterdir() if path.name[0] not in "._"]
    for path in found:
        if path.suffix != ".parquet":
            raise StoreError(f"{directory} is no store of records: it holds {path.name}")
    return sorted(found)


def _opened(file: Path) -> Any:
    """A pyarrow.parquet.ParquetFile. Raises StoreError unless this version reads it."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        opened = pq.ParquetFile(file)
    except (OSError, pa.ArrowException) as error:
        raise StoreError(f"{file} is no Parquet file: {error}") from error
    found = opened.schema_arrow
    version = _version(found.metadata)
    if version is not None and version != SCHEMA:
        newer = "update Passwright"
        older = "collect anew, or read it with the version that wrote it"
        raise StoreError(
            f"{file} is of schema {version}, and this version of Passwright reads {SCHEMA};"
            f" {newer if version > SCHEMA else older}"
        )
    if version is None or not found.equals(arrow_schema()):
        raise StoreError(f"{file} holds no records of Passwright, but other columns")
    return opened


def _version(metadata: dict[bytes, bytes] | None) -> int | None:
    text = (metadata or {}).get(_VERSION, b"").decode(errors="replace")
    return int(text) if text.isdecimal() else None


def _empty(columns: Sequence[str] | None = None) -> Any:
    table = arrow_schema().empty_table()
    return table if columns is None else table.select(list(columns))

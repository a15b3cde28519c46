"""The store of records: nothing is lost or doubled, whenever it is killed, read or opened again."""

from __future__ import annotations

import multiprocessing
import os
import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from record_rows import numbered, record, write_for_ever

from passwright.training import store as module
from passwright.training.records import SCHEMA, Record, Status, arrow_schema
from passwright.training.store import Store, StoreError, pack, read_records, read_table, to_table

KILLS, ROWS = 20, 10


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "records"


def numbers(records: list[Record]) -> list[int]:
    return [int(record.plan_key) for record in records]


def visible(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir() if path.name[0] != ".")


# ---- writing and reading


def test_records_come_back_as_they_were(directory: Path) -> None:
    records = [
        record("tanh_to_sin", gain=0.123456789012345678, peak_bytes=2**40),
        record("exp_to_log", gain=None, why="out of memory"),
        record(status=Status.SAME_CODE, gain=0.0, blocks=(), lower=float("-inf")),
    ]
    with Store(directory) as store:
        store.append(records[:1])
        store.append(records[1:])
        assert store.records() == records
    assert Store(directory).records() == records
    assert read_records(directory, blocks=False)[0].blocks == ()


def test_a_store_that_is_not_there_is_empty(directory: Path) -> None:
    assert Store(directory).records() == []
    assert not Store(directory).keys()
    assert not directory.exists(), "who only reads makes nothing"


def test_pandas_reads_it_from_the_start(directory: Path) -> None:
    with Store(directory, segment_rows=2) as store:
        assert len(pd.read_parquet(directory)) == 0
        for number in range(5):
            store.append([numbered(number)])
        frame = pd.read_parquet(directory)
    assert list(frame.columns) == arrow_schema().names
    assert list(frame.plan_key) == [f"{number:06d}" for number in range(5)]
    assert list(frame.blocks[0]) == list(numbered(0).blocks)


def test_full_segments_are_left_alone(directory: Path) -> None:
    with Store(directory, segment_rows=2) as store:
        store.append([numbered(0)])
        store.append([numbered(1), numbered(2)])
        assert visible(directory) == ["records-000000.parquet"], "a batch is not divided"
        before = (directory / "records-000000.parquet").stat()
        store.append([numbered(3)])
    assert visible(directory) == ["records-000000.parquet", "records-000001.parquet"]
    after = (directory / "records-000000.parquet").stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    with Store(directory, segment_rows=2) as store:
        store.append([numbered(4)])
    assert numbers(Store(directory).records()) == [0, 1, 2, 3, 4]
    assert len(visible(directory)) == 2


def test_keys_count_repetitions(directory: Path) -> None:
    twice, once = record("tanh_to_sin"), record("exp_to_log")
    with Store(directory) as store:
        store.append([twice, once, record("tanh_to_sin", gain=0.2, date="2026-12-01")])
        assert store.keys() == Counter({twice.key: 2, once.key: 1})


def test_a_value_of_a_wrong_type_adds_nothing(directory: Path) -> None:
    with Store(directory) as store:
        store.append([numbered(0)])
        with pytest.raises((pa.ArrowInvalid, pa.ArrowTypeError)):
            store.append([numbered(1), numbered(2, batch="eight")])
        store.append([numbered(3)])
    assert numbers(Store(directory).records()) == [0, 3]


# ---- one writer


def test_a_second_collector_is_told_who_writes(directory: Path) -> None:
    with Store(directory) as store:
        store.append([numbered(0)])
        with pytest.raises(StoreError, match=rf"process {os.getpid()}\b"):
            Store(directory).lock()
        with pytest.raises(StoreError, match="another collector"):
            Store(directory).append([numbered(1)])
        assert numbers(Store(directory).records()) == [0], "reading takes no lock"
    with Store(directory) as store:
        assert numbers(store.records()) == [0]


# ---- kills


@pytest.mark.parametrize("step", ["file synced", "renamed", "directory synced"])
def test_an_append_cut_short_is_all_there_or_all_missing(
    step: str, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store(directory) as store:
        store.append([numbered(0)])
        with monkeypatch.context() as patch:
            interrupt_before(step, patch)
            with pytest.raises(KeyboardInterrupt):
                store.append([numbered(1), numbered(2)])
        there = [1, 2] if step == "directory synced" else []
        assert numbers(Store(directory).records()) == [0, *there]
        store.append([numbered(3)])
        assert numbers(Store(directory).records()) == [0, *there, 3]
    with Store(directory) as store:
        assert sorted(path.name for path in directory.glob(".*")) == [".lock"]


def interrupt_before(step: str, patch: pytest.MonkeyPatch) -> None:
    fsync, calls = os.fsync, []

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    def stop_at_second(handle: int) -> None:
        calls.append(handle)
        if len(calls) == 2:
            raise KeyboardInterrupt
        fsync(handle)

    if step == "renamed":
        patch.setattr(module.Path, "replace", stop)
    else:
        patch.setattr(os, "fsync", stop if step == "file synced" else stop_at_second)


def test_what_a_kill_left_is_removed(directory: Path) -> None:
    with Store(directory) as store:
        store.append([numbered(0)])
    (directory / ".records-000000.parquet").write_bytes(b"half a file")
    assert numbers(Store(directory).records()) == [0]
    assert len(pd.read_parquet(directory)) == 1
    with Store(directory):
        assert sorted(path.name for path in directory.glob(".*")) == [".lock"]


def test_killed_at_random_moments(directory: Path) -> None:
    """No finished record is lost, none is doubled, for pandas in between as for the store afterwards."""
    context = multiprocessing.get_context("forkserver")
    preloaded = ["passwright.training.plan_text", "passwright.training.store", "pyarrow.parquet"]
    context.set_forkserver_preload(preloaded)
    draw = random.Random(0)
    finished: list[int] = []
    start = 0
    for _ in range(KILLS):
        mine, theirs = context.Pipe(duplex=False)
        arguments = (str(directory), start, ROWS, theirs)
        child = context.Process(target=write_for_ever, args=arguments, daemon=True)
        child.start()
        theirs.close()
        finished.append(int(mine.recv_bytes()))
        deadline = time.monotonic() + draw.uniform(0.0, 0.1)
        while (left := deadline - time.monotonic()) > 0:
            if mine.poll(left):
                finished.append(int(mine.recv_bytes()))
        # The child goes on writing meanwhile.
        assert_holds([int(key) for key in pd.read_parquet(directory).plan_key], finished)
        child.kill()
        child.join()
        try:
            while True:
                finished.append(int(mine.recv_bytes()))
        except EOFError:
            mine.close()
        with Store(directory, segment_rows=ROWS) as store:
            found = numbers(store.records())
        assert_holds(found, finished)
        assert len(found) - len(finished) <= 3 * (1 + KILLS), "more than was under way"
        start = max(found) + 1
    assert len(finished) > 5 * KILLS, "the children hardly got to write"
    assert len(visible(directory)) > 5
    assert_holds([int(key) for key in pd.read_parquet(directory).plan_key], finished)


def assert_holds(found: list[int], finished: list[int]) -> None:
    doubled = [number for number, count in Counter(found).items() if count > 1]
    assert not doubled, f"doubled: {doubled}"
    assert not set(finished) - set(found), "lost"
    assert found == sorted(found)


# ---- files of others


def without_version(table: pa.Table) -> pa.Table:
    return table.replace_schema_metadata(None)


def with_column(table: pa.Table) -> pa.Table:
    return table.append_column("more", pa.array([1] * len(table)))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (with_column, "holds no records"),
        (without_version, "holds no records"),
        (lambda table: versioned(table, SCHEMA + 1), f"schema {SCHEMA + 1}.*update Passwright"),
        (lambda table: versioned(table, 0), "schema 0.*collect anew"),
    ],
)
def test_another_schema_is_refused(
    change: Callable[[pa.Table], pa.Table], words: str, directory: Path
) -> None:
    with Store(directory) as store:
        store.append([numbered(0)])
    file = directory / "records-000000.parquet"
    pq.write_table(change(pq.read_table(file)), file)
    for use in (Store(directory).records, Store(directory).lock, lambda: read_table(file)):
        with pytest.raises(StoreError, match=words):
            use()


def versioned(table: pa.Table, version: int) -> pa.Table:
    return table.replace_schema_metadata({b"passwright.schema": str(version)})


@pytest.mark.parametrize(
    ("name", "words"), [("notes.txt", "notes.txt"), ("other.parquet", "no Parquet")]
)
def test_a_foreign_file_is_named(name: str, words: str, directory: Path) -> None:
    with Store(directory) as store:
        store.append([numbered(0)])
    (directory / name).write_text("hello", encoding="utf-8")
    with pytest.raises(StoreError, match=words):
        Store(directory).records()
    with pytest.raises(StoreError, match=words):
        Store(directory).lock()


def test_nothing_there_is_an_error_for_who_names_it(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no records at"):
        read_table(tmp_path / "nowhere")


# ---- packing


def test_the_order_of_collecting_does_not_show(tmp_path: Path) -> None:
    records = [numbered(n % 7, gain=n / 10, run=str(n)) for n in range(20)]
    files = []
    for seed in range(3):
        random.Random(seed).shuffle(records)
        with Store(tmp_path / str(seed), segment_rows=4) as store:
            for item in records:
                store.append([item])
        assert pack(tmp_path / str(seed), tmp_path / f"{seed}.parquet") == 20
        files.append((tmp_path / f"{seed}.parquet").read_bytes())
    assert files[0] == files[1] == files[2]
    packed = read_records(tmp_path / "0.parquet")
    assert Counter(packed) == Counter(records)
    assert len(pd.read_parquet(tmp_path / "0.parquet")) == 20


def test_repetitions_stay_and_copies_do_not(tmp_path: Path) -> None:
    with Store(tmp_path / "one") as store:
        store.append([numbered(0), numbered(0), numbered(1)])
    with Store(tmp_path / "two") as store:
        store.append([numbered(1), numbered(1, gain=0.3), numbered(2)])
    file = tmp_path / "both.parquet"
    assert pack([tmp_path / "one", tmp_path / "two"], file) == 5
    assert numbers(read_records(file)) == [0, 0, 1, 1, 2]
    again = tmp_path / "again.parquet"
    assert pack([file, tmp_path / "two"], again) == 5
    assert again.read_bytes() == file.read_bytes()


def test_a_packed_file_is_small(tmp_path: Path) -> None:
    with Store(tmp_path / "records") as store:
        store.append([numbered(number) for number in range(500)])
    pack(tmp_path / "records", tmp_path / "packed.parquet")
    plain = sum(len(str(numbered(number).to_row())) for number in range(500))
    assert (tmp_path / "packed.parquet").stat().st_size < plain / 10


def test_a_pack_beside_its_records_would_double_them(directory: Path) -> None:
    with Store(directory) as store:
        store.append([numbered(0)])
    with pytest.raises(StoreError, match="twice"):
        pack(directory, directory / "packed.parquet")
    assert len(pd.read_parquet(directory)) == 1


def test_the_schema_has_all_fields() -> None:
    table = to_table([record("tanh_to_sin")])
    assert table.schema.names == list(record().to_row())

"""A worker's seat: its device, and the lock of that device."""

from __future__ import annotations

import gc
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch

from passwright.scheduler import inductor
from passwright.training import worker
from passwright.training.worker import Seat, lock_of, on_device, seats


@pytest.fixture(autouse=True)
def locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path / "locks"))


def seat(device: str) -> Seat:
    return Seat("", 0, device, 1)


def test_seats_take_the_devices_in_turn() -> None:
    found = seats("place", 5, ["cuda:0", "cuda:1"], 1)
    assert [one.number for one in found] == [0, 1, 2, 3, 4]
    assert [one.device for one in found] == ["cuda:0", "cuda:1", "cuda:0", "cuda:1", "cuda:0"]


def test_each_gpu_has_a_lock_whichever_way_it_is_named() -> None:
    places = {name: lock_of(seat(name))._device for name in ("cuda", "cuda:0", "cuda:1")}
    assert places["cuda"] == places["cuda:0"]
    assert places["cuda"] != places["cuda:1"]


def test_nobody_waits_while_a_worker_compiles_for_the_first_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    held: dict[str, bool] = {}
    lock = lock_of(seat("cuda"))
    monkeypatch.setattr(worker, "lock_of", lambda _: lock)

    def compiles(*_: object) -> object:
        held["compiling"] = lock._held is not None
        return lambda: held.update(running=lock._held is not None)

    def warm_up(*_: object, backend: Any, **__: object) -> None:
        held["beginning"] = lock._held is not None
        backend(None, [])()

    monkeypatch.setattr(inductor, "compile_with_inductor", compiles)
    monkeypatch.setattr(worker, "warm_up", warm_up)
    threads = torch.get_num_threads()
    try:
        on_device(seat("cuda"))
    finally:
        torch.set_num_threads(threads)
        gc.unfreeze()
    assert held == {"beginning": True, "compiling": False, "running": True}
    assert lock._held is None


@pytest.mark.parametrize(("name", "current"), [("cuda:1", [1]), ("cuda", [])])
def test_what_names_no_device_is_about_the_seats_own(
    name: str, current: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    chosen: list[int | None] = []
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: chosen.append(device.index))
    monkeypatch.setattr(worker, "warm_up", lambda *_, **__: chosen.append(None))
    threads = torch.get_num_threads()
    try:
        assert on_device(seat(name)) == torch.device(name)
    finally:
        torch.set_num_threads(threads)
        gc.unfreeze()
    assert chosen == [*current, None]

"""Threads of the caller's computations stay as many as they were."""

from __future__ import annotations

from threading import Event, Thread

import pytest
import torch

from passwright.scheduler import threads
from passwright.scheduler.threads import one_thread


def test_one_thread_inside_and_as_many_as_before_afterwards() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        with one_thread():
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 3
        with pytest.raises(ValueError, match="here"), one_thread():
            raise ValueError("here")
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


def test_threads_that_begin_meanwhile_compute_as_always() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    asked, left = Event(), Event()
    found: list[int] = []

    def compute() -> None:
        found.append(torch.get_num_threads())
        asked.set()
        left.wait(10)
        found.append(torch.get_num_threads())

    thread = Thread(target=compute)
    try:
        with one_thread():
            thread.start()
            assert asked.wait(10)
            assert torch.get_num_threads() == 1
        left.set()
        thread.join(10)
        assert found == [3, 3]
    finally:
        left.set()
        torch.set_num_threads(before)


def test_a_thread_of_the_caller_has_a_number_of_its_own() -> None:
    """Compiles are often set off by another thread than the main one."""
    before = torch.get_num_threads()
    found: list[int] = []

    def compute() -> None:
        torch.set_num_threads(2)
        with one_thread():
            found.append(torch.get_num_threads())
        found.append(torch.get_num_threads())

    thread = Thread(target=compute)
    try:
        thread.start()
        thread.join(10)
        assert found == [1, 2]
        assert torch.get_num_threads() == before
    finally:
        torch.set_num_threads(before)


def test_other_backends_than_openmp_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """With torch's own threads, a number that was set once stays."""
    monkeypatch.setattr(threads, "_has_openmp", lambda: False)
    set_to: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", set_to.append)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    with one_thread():
        pass
    assert not set_to

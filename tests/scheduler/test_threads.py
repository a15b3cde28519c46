"""Threads of the caller's computations stay as many as they were."""

from __future__ import annotations

import pytest
import torch

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

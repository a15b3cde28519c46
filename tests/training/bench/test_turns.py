"""Who has the device while rivals compile: all together, or one alone where kernels are tuned."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from passwright.training import variants
from passwright.training.device_lock import DeviceLock


@pytest.mark.parametrize(
    ("options", "mode", "measures"),
    [
        ({}, None, False),
        ({"combo_kernels": True}, None, False),
        ({}, "reduce-overhead", False),
        ({}, "max-autotune-no-cudagraphs", True),
        ({"mode": "tune"}, None, True),
        ({"benchmark_fusion": True}, None, True),
    ],
)
def test_who_measures_while_it_compiles(options: Any, mode: str | None, measures: bool) -> None:
    assert variants._measures(options, mode) is measures


def test_the_first_call_has_the_device_alone_and_later_ones_share_it(tmp_path: Path) -> None:
    lock, other = DeviceLock(tmp_path), DeviceLock(tmp_path)
    held: list[bool] = []

    def look() -> None:
        """Whether somebody else would have to wait."""
        waiting = threading.Thread(target=other.share, daemon=True)
        waiting.start()
        waiting.join(0.1)
        held.append(waiting.is_alive())
        if not waiting.is_alive():
            other.release()

    alone = variants._Alone(lock, wanted=True)
    run = alone.guarded(look)
    with alone:
        run()
    time.sleep(0.1)
    other.release()
    run()
    assert held == [True, False]
    assert other.waited > 0.05
    lock.release()

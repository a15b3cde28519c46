"""Imported by the demo's fork server alone: brings torch and its compiler into one process, once.

Each row of the demo then starts as a copy of that process, equally warm, in no time. There must be no
second thread when the copy is made, hence one thread for torch and none for compiling.
"""

from __future__ import annotations

import os
from contextlib import suppress

from passwright.training import demo_worker  # noqa: F401 (rows need it imported)
from passwright.training.processes import warm_up

_nowhere = os.open(os.devnull, os.O_WRONLY)
os.dup2(_nowhere, 1)
os.dup2(_nowhere, 2)
# What fails here fails again in each row, which then says why.
with suppress(Exception):
    warm_up("cpu", threads=1)

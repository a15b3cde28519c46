"""Warnings about what concerns every graph of a process: each is given once."""

from __future__ import annotations

import functools
import logging

log = logging.getLogger(__name__)


@functools.cache
def warn_once(text: str) -> None:
    """`warn_once.cache_clear()` forgets what was said."""
    log.warning(text)

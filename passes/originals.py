"""torch's own functions, where somebody has put others in their place.

Importing torch_geometric, for one, replaces `torch.index_select` and `torch.select` by functions of Python
that do more for tensors of its own. A graph that is captured afterwards holds these, nobody understands
them, and they are left alone. What reads and builds graphs means torch's own, whoever was imported first.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import torch


def original(target: Any) -> Any:
    """torch's function of the same name, for one that stands in its place; else the target."""
    module = getattr(target, "__module__", None)
    if not callable(target) or not isinstance(module, str) or module.partition(".")[0] == "torch":
        return target
    return _replaced(target)


@functools.cache
def _replaced(target: Any) -> Any:
    places = ((torch, torch._C._VariableFunctions), (torch.nn.functional, torch._C._nn))
    for shown, kept in places:
        for name in dir(kept):
            if getattr(shown, name, None) is target:
                return getattr(kept, name)
    return target


@contextmanager
def torch_as_it_was(package: str) -> Iterator[None]:
    """What importing the package inside puts into the place of torch's functions is taken out again.

    Nothing is done if it was imported before: then somebody wants it so.
    """
    if package in sys.modules:
        yield
        return
    before = dict(vars(torch))
    try:
        yield
    finally:
        for name, value in before.items():
            if vars(torch).get(name) is not value and not isinstance(value, ModuleType):
                setattr(torch, name, value)

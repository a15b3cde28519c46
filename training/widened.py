"""Runs code in float64 that asks for narrower types by name.

`module.double()` converts parameters and buffers, but not what the code makes itself: `x.float()`,
`torch.zeros(..., dtype=torch.float32)`, `torch.tensor(0.5)`. Such a model would not run in float64, or in
part only, and there would be no oracle for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map_only

_NARROW = frozenset({torch.float32, torch.float16, torch.bfloat16})
_CONVERSIONS = frozenset({Tensor.float, Tensor.half, Tensor.bfloat16})


class _Widened(TorchFunctionMode):
    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if func in _CONVERSIONS:
            return Tensor.double(*args, **(kwargs or {}))
        args, kwargs = tree_map_only(torch.dtype, _wide, (tuple(args), dict(kwargs or {})))
        return func(*args, **kwargs)


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype in _NARROW else dtype


@contextmanager
def widened() -> Iterator[None]:
    """Code that runs inside makes float64 of every type of floating point that it asks for."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with _Widened():
            yield
    finally:
        torch.set_default_dtype(before)

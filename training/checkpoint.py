"""Nested dicts and lists of tensors and plain values as one safetensors file: no code is in it, and numbers
come back to the bit.

Tensors lie in the file by their number; its header has the rest as JSON, with dicts as lists of pairs,
since the keys of an optimizer's state are numbers.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from torch import Tensor

_TENSOR, _PAIRS = "tensor", "pairs"


def write(tree: Any, file: Path) -> None:
    """Writes the file, in one piece or not at all. Tuples come back as lists."""
    from safetensors.torch import save_file

    tensors: dict[str, Tensor] = {}
    text = json.dumps(_packed(tree, tensors))
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_name(file.name + ".part")
    save_file(tensors, part, metadata={"tree": text})
    part.replace(file)


def read(file: Path) -> Any:
    """What `write` wrote; None if there is no file."""
    from safetensors import safe_open

    if not file.exists():
        return None
    with safe_open(file, "pt") as opened:
        tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
        return _unpacked(json.loads(opened.metadata()["tree"]), tensors)


def _packed(value: Any, tensors: dict[str, Tensor]) -> Any:
    if isinstance(value, Tensor):
        name = str(len(tensors))
        # A copy: the format refuses tensors that share memory.
        tensors[name] = value.detach().cpu().clone().contiguous()
        return {_TENSOR: name}
    if isinstance(value, dict):
        return {_PAIRS: [[key, _packed(inner, tensors)] for key, inner in value.items()]}
    if isinstance(value, list | tuple):
        return [_packed(inner, tensors) for inner in value]
    return value


def _unpacked(value: Any, tensors: dict[str, Tensor]) -> Any:
    if isinstance(value, list):
        return [_unpacked(inner, tensors) for inner in value]
    if isinstance(value, dict):
        if _TENSOR in value:
            return tensors[value[_TENSOR]]
        return {key: _unpacked(inner, tensors) for key, inner in value[_PAIRS]}
    return value

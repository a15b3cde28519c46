"""Models of deepctr-torch 0.3.0 (Apache-2.0): ranking, multi-task and one on histories.

They take one float matrix whose columns are all fields, ids included. Each field is cut out as a
slice of columns, the ids are cast to int64, and every field is looked up on its own.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from passwright.training.workloads.inputs import (
    EMBEDDING,
    HISTORY,
    HISTORY_LENGTH,
    VOCABULARY,
    Fields,
    InputSource,
)
from passwright.training.workloads.weights import redraw
from passwright.training.workloads.workload import Setup, Workload, require

PACKAGE = "deepctr-torch"
TASKS: dict[str, Any] = {"task_types": ("binary",) * 3, "task_names": ("a", "b", "c")}


@dataclass(frozen=True)
class _Entry:
    """How one class of the package is called: with which columns first, and which options."""

    family: str
    cls: str
    options: dict[str, Any] = field(default_factory=dict)
    linear_part: bool = True  # a first argument for the linear part, as most ranking models take
    history: bool = False
    experts: int | None = None
    fewest_experts: int = 1
    per_expert: tuple[str, ...] = ()  # the options that say how many


_ENTRIES = {
    "WDL": _Entry("widedeep", "WDL"),
    "DeepFM": _Entry("deepfm", "DeepFM"),
    "xDeepFM": _Entry("xdeepfm", "xDeepFM"),
    "DIFM": _Entry("difm", "DIFM"),
    "IFM": _Entry("ifm", "IFM"),
    "AutoInt": _Entry("autoint", "AutoInt"),
    "DCN_matrix": _Entry("dcn", "DCN", {"cross_parameterization": "matrix", "cross_num": 3}),
    "DCNMix": _Entry("dcnmix", "DCNMix", {"cross_num": 3}),
    "FiBiNET": _Entry("fibinet", "FiBiNET", {"bilinear_type": "each"}),
    "ONN": _Entry("onn", "ONN"),
    "NFM": _Entry("nfm", "NFM"),
    "AFN": _Entry("afn", "AFN"),
    "PNN": _Entry("pnn", "PNN", linear_part=False),
    "MMOE": _Entry(
        "mmoe",
        "MMOE",
        TASKS,
        linear_part=False,
        experts=8,
        fewest_experts=2,
        per_expert=("num_experts",),
    ),
    "PLE": _Entry(
        "ple",
        "PLE",
        TASKS,
        linear_part=False,
        experts=2,
        per_expert=("shared_expert_num", "specific_expert_num"),
    ),
    "SharedBottom": _Entry("sharedbottom", "SharedBottom", linear_part=False),
    "ESMM": _Entry("esmm", "ESMM", linear_part=False),
    "DIN": _Entry(
        "din", "DIN", {"att_weight_normalization": True}, linear_part=False, history=True
    ),
}


def _columns(api: ModuleType, fields: Fields, history: bool) -> list[Any]:
    columns = [api.SparseFeat(name, VOCABULARY, EMBEDDING) for name in fields.categorical]
    columns += [api.DenseFeat(name, 1) for name in fields.numerical]
    if history:
        columns += [api.SparseFeat(name, VOCABULARY, EMBEDDING) for name in HISTORY]
        columns += [
            api.VarLenSparseFeat(
                api.SparseFeat(f"hist_{name}", VOCABULARY, EMBEDDING, embedding_name=name),
                HISTORY_LENGTH,
                length_name="seq_length",
            )
            for name in HISTORY
        ]
    return columns


def _construct(entry: _Entry, setup: Setup) -> nn.Module:
    with _no_version_check():
        require("deepctr_torch", PACKAGE)
        api = require("deepctr_torch.inputs", PACKAGE)
        columns = _columns(api, Fields.of(setup.size), entry.history)
        cls = getattr(require("deepctr_torch.models", PACKAGE), entry.cls)
    arguments: list[Any] = [columns, columns] if entry.linear_part else [columns]
    if entry.history:
        arguments.append(list(HISTORY))
    options = entry.options | dict.fromkeys(entry.per_expert, setup.experts)
    # The models keep the device for tensors that forward makes, so moving them is not enough.
    model = cls(*arguments, **options, seed=setup.seed, device=str(setup.device))
    return redraw(model.cpu())


@contextlib.contextmanager
def _no_version_check() -> Iterator[None]:
    """Import deepctr-torch without its question to the network, which needs one more package.

    On import it asks PyPI for newer versions of itself, in a thread, through `requests`, which its
    metadata does not name. The check is the only thing in its module `utils`.
    """
    name = "deepctr_torch.utils"
    if name in sys.modules or "deepctr_torch" in sys.modules:
        yield
        return
    stand_in = ModuleType(name)
    stand_in.__dict__["check_version"] = lambda _version: None
    sys.modules[name] = stand_in
    try:
        yield
    finally:
        del sys.modules[name]


def _matrix(history: bool, draw: InputSource) -> tuple[Tensor]:
    """A float32 matrix (batch, 39), or (batch, 142) with histories, in the columns' order."""
    fields = draw.fields
    parts = [draw.ids(len(fields.categorical)).float(), draw.uniform(len(fields.numerical))]
    if history:
        # The package puts the length after the first history that names it.
        parts += [
            draw.ids(len(HISTORY)).float(),
            draw.ids(HISTORY_LENGTH).float(),
            draw.ids(1, low=1, high=HISTORY_LENGTH + 1).float(),
            draw.ids(HISTORY_LENGTH).float(),
        ]
    return (torch.cat(parts, dim=1),)


WORKLOADS: tuple[Workload, ...] = tuple(
    Workload(
        f"zoo:deepctr/{name}",
        entry.family,
        PACKAGE,
        partial(_construct, entry),
        partial(_matrix, entry.history),
        experts=entry.experts,
        fewest_experts=entry.fewest_experts,
    )
    for name, entry in _ENTRIES.items()
)

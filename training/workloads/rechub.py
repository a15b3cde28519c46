"""Models of torch-rechub 0.9.0 (MIT): ranking, multi-task and one for matching sequences.

They take one dictionary of tensors, a tensor a field, and look each field up on its own: 26 to 28
embeddings that meet in one cat or stack, followed by towers, experts or attention.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

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

PACKAGE = "torch-rechub"
TASKS = 3
SEQUENCE_EMBEDDING = 32


class _Fields:
    """Field descriptions for one model.

    rechub keeps a field's embedding table on its description, so no two models may share one.
    """

    def __init__(self, fields: Fields, experts: int = 0) -> None:
        self.experts = experts
        self._api = require("torch_rechub.basic.features", PACKAGE)
        self.sparse = [self._sparse(name) for name in fields.categorical]
        self.dense = [self._api.DenseFeature(name) for name in fields.numerical]

    @property
    def all(self) -> list[Any]:
        return self.sparse + self.dense

    @property
    def target(self) -> list[Any]:
        return [self._sparse(name, padding_idx=0) for name in HISTORY]

    @property
    def history(self) -> list[Any]:
        return [self.sequence(f"hist_{name}", EMBEDDING, shared_with=name) for name in HISTORY]

    def sequence(self, name: str, width: int, shared_with: str | None = None) -> Any:
        return self._api.SequenceFeature(
            name,
            VOCABULARY,
            width,
            pooling="concat",
            shared_with=shared_with,
            padding_idx=0,
        )

    def _sparse(self, name: str, padding_idx: int | None = None) -> Any:
        return self._api.SparseFeature(name, VOCABULARY, EMBEDDING, padding_idx=padding_idx)


# Made anew for each model: the package writes its own settings into the dictionaries it is given.
def _mlp(*widths: int) -> dict[str, Any]:
    return {"dims": list(widths)}


def _towers(width: int) -> list[dict[str, Any]]:
    return [_mlp(width) for _ in range(TASKS)]


# The usual number, of models where it can be chosen.
_EXPERTS = {"MMOE": 8}
_TO_FLOAT32 = "torch-rechub casts numerical fields to float32 on the way to its layers"
# Models with numerical fields, which end up in a product with weights.
_FLOAT32_ONLY = dict.fromkeys(
    (
        "WideDeep",
        "DeepFM",
        "DCN",
        "DCNv2_mix",
        "AutoInt",
        "SharedBottom",
        "MMOE",
        "AITM",
    ),
    _TO_FLOAT32,
)


def _halves(columns: list[Any]) -> tuple[list[Any], list[Any]]:
    return columns[: len(columns) // 2], columns[len(columns) // 2 :]


_Construct = Callable[[Any, _Fields], nn.Module]
_CLASSIFY = ["classification"] * TASKS

# Name: family, and the construction from the package's module and the fields.
_RANKING: dict[str, tuple[str, _Construct]] = {
    "WideDeep": ("widedeep", lambda api, f: api.WideDeep(f.dense, f.sparse, _mlp(256, 128))),
    "DeepFM": ("deepfm", lambda api, f: api.DeepFM(f.all, f.sparse, _mlp(256, 128))),
    "DCN": ("dcn", lambda api, f: api.DCN(f.all, 3, _mlp(256, 128))),
    "DCNv2_mix": (
        "dcnmix",
        lambda api, f: api.DCNv2(
            f.all, 3, _mlp(256, 128), use_low_rank_mixture=True, low_rank=32, num_experts=4
        ),
    ),
    "EDCN": (
        "edcn",
        lambda api, f: api.EDCN(f.sparse, 3, _mlp(256, 128), bridge_type="attention_pooling"),
    ),
    "AFM": ("afm", lambda api, f: api.AFM(f.sparse, EMBEDDING)),
    "AutoInt": (
        "autoint",
        lambda api, f: api.AutoInt(
            f.sparse, f.dense, num_layers=3, num_heads=2, mlp_params=_mlp(256, 128)
        ),
    ),
}
_RANKING_ON_HISTORY: dict[str, tuple[str, _Construct]] = {
    "DIN": (
        "din",
        lambda api, f: api.DIN(f.sparse, f.history, f.target, _mlp(256, 128), _mlp(64, 32)),
    ),
    "BST": (
        "bst",
        lambda api, f: api.BST(
            f.sparse, f.history, f.target, _mlp(256, 128), nhead=4, num_layers=2
        ),
    ),
}
_MULTI_TASK: dict[str, tuple[str, _Construct]] = {
    "SharedBottom": (
        "sharedbottom",
        lambda api, f: api.SharedBottom(f.all, _CLASSIFY, _mlp(256, 128), _towers(64)),
    ),
    "MMOE": (
        "mmoe",
        lambda api, f: api.MMOE(f.all, _CLASSIFY, f.experts, _mlp(128, 64), _towers(32)),
    ),
    "AITM": ("aitm", lambda api, f: api.AITM(f.all, TASKS, _mlp(128, 64), _towers(32))),
    "ESMM": (
        "esmm",
        lambda api, f: api.ESMM(*_halves(f.sparse), _mlp(128, 64), _mlp(128, 64)),
    ),
}


def _fields(draw: InputSource) -> tuple[dict[str, Tensor]]:
    return (draw.by_field(),)


def _fields_and_history(draw: InputSource) -> tuple[dict[str, Tensor]]:
    target = {name: draw.ids() for name in HISTORY}
    return (draw.by_field() | target | draw.sequences(f"hist_{name}" for name in HISTORY),)


def _construct(module: str, make: _Construct, setup: Setup) -> nn.Module:
    fields = _Fields(Fields.of(setup.size), setup.experts)
    return redraw(make(require(f"torch_rechub.models.{module}", PACKAGE), fields))


def _sasrec(setup: Setup) -> nn.Module:
    fields = _Fields(Fields.of(setup.size))
    sequences = [
        fields.sequence("seq", SEQUENCE_EMBEDDING),
        fields.sequence("pos", SEQUENCE_EMBEDDING, shared_with="seq"),
        fields.sequence("neg", SEQUENCE_EMBEDDING, shared_with="seq"),
    ]
    api = require("torch_rechub.models.matching.sasrec", PACKAGE)
    return redraw(api.SASRec(sequences, max_len=HISTORY_LENGTH))


def _sequences(draw: InputSource) -> tuple[dict[str, Tensor]]:
    return (draw.sequences(("seq", "pos", "neg")),)


def _group(
    module: str,
    table: dict[str, tuple[str, _Construct]],
    inputs: Callable[[InputSource], tuple[Any, ...]] = _fields,
) -> list[Workload]:
    return [
        Workload(
            f"zoo:rechub/{name}",
            family,
            PACKAGE,
            partial(_construct, module, make),
            inputs,
            experts=_EXPERTS.get(name),
            float32_only=_FLOAT32_ONLY.get(name, ""),
        )
        for name, (family, make) in table.items()
    ]


WORKLOADS: tuple[Workload, ...] = (
    *_group("ranking", _RANKING),
    *_group("ranking", _RANKING_ON_HISTORY, _fields_and_history),
    *_group("multi_task", _MULTI_TASK),
    Workload(
        "zoo:rechub/SASRec",
        "sasrec",
        PACKAGE,
        _sasrec,
        _sequences,
        size=None,
        cpu_only="torch-rechub makes its mask there, wherever the inputs are",
    ),
)

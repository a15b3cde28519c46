"""Models of torchfm 0.7.0 (MIT): factorisation machines over one matrix of ids.

The numerical fields are taken as bucketed, so that every field is categorical. All fields share one
embedding table with an offset a field, except in FFM, which has a table for each field that another
can meet (39) and then loops over all pairs (741).
"""

from __future__ import annotations

from functools import partial
from typing import Any

from torch import Tensor, nn

from passwright.training.workloads.inputs import EMBEDDING, VOCABULARY, InputSource
from passwright.training.workloads.weights import redraw
from passwright.training.workloads.workload import Setup, Workload, require

PACKAGE = "torchfm"

_Entry = tuple[str, str, str, dict[str, Any]]

# Name: family, module, class, and the options beyond the fields and the embedding's width.
_ENTRIES: dict[str, _Entry] = {
    "xDeepFM": (
        "xdeepfm",
        "xdfm",
        "ExtremeDeepFactorizationMachineModel",
        {"mlp_dims": (256, 128), "dropout": 0.1, "cross_layer_sizes": (32, 32)},
    ),
    "FFM": ("ffm", "ffm", "FieldAwareFactorizationMachineModel", {}),
    "AutoInt": (
        "autoint",
        "afi",
        "AutomaticFeatureInteractionModel",
        {
            "atten_embed_dim": 32,
            "num_heads": 2,
            "num_layers": 3,
            "mlp_dims": (256, 128),
            "dropouts": (0.0, 0.0, 0.0),
        },
    ),
}


def _construct(entry: _Entry, setup: Setup) -> nn.Module:
    _family, module, cls, options = entry
    api = require(f"torchfm.model.{module}", PACKAGE)
    return redraw(getattr(api, cls)([VOCABULARY] * setup.size, EMBEDDING, **options))


def _ids(draw: InputSource) -> tuple[Tensor]:
    return (draw.ids(draw.size, low=0),)


WORKLOADS: tuple[Workload, ...] = tuple(
    Workload(f"zoo:torchfm/{name}", entry[0], PACKAGE, partial(_construct, entry), _ids)
    for name, entry in _ENTRIES.items()
)

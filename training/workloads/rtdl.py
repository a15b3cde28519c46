"""The FT-Transformer of rtdl_revisiting_models 0.0.2 (Apache-2.0 by its classifier).

It takes a float matrix of numerical fields and an int64 matrix of categorical ones, and runs a
transformer over one token a field.
"""

from __future__ import annotations

from torch import Tensor, nn

from passwright.training.workloads.inputs import CATEGORICAL, NUMERICAL, VOCABULARY, InputSource
from passwright.training.workloads.workload import Setup, Workload, require

PACKAGE = "rtdl_revisiting_models"
BLOCKS = 2


def _construct(_: Setup) -> nn.Module:
    cls = require("rtdl_revisiting_models", PACKAGE).FTTransformer
    model: nn.Module = cls(
        n_cont_features=len(NUMERICAL),
        cat_cardinalities=[VOCABULARY] * len(CATEGORICAL),
        d_out=1,
        **cls.get_default_kwargs(n_blocks=BLOCKS),
    )
    return model


def _columns(draw: InputSource) -> tuple[Tensor, Tensor]:
    return draw.uniform(len(NUMERICAL)), draw.ids(len(CATEGORICAL), low=0)


WORKLOADS: tuple[Workload, ...] = (
    Workload("zoo:rtdl/FTTransformer", "fttransformer", PACKAGE, _construct, _columns),
)

"""The FT-Transformer of rtdl_revisiting_models 0.0.2 (Apache-2.0 by its classifier).

It takes a float matrix of numerical fields and an int64 matrix of categorical ones, and runs a
transformer over one token a field.
"""

from __future__ import annotations

from torch import Tensor, nn

from passwright.training.workloads.inputs import VOCABULARY, Fields, InputSource
from passwright.training.workloads.workload import Setup, Workload, require

PACKAGE = "rtdl_revisiting_models"
BLOCKS = 2


def _construct(setup: Setup) -> nn.Module:
    fields = Fields.of(setup.size)
    cls = require("rtdl_revisiting_models", PACKAGE).FTTransformer
    model: nn.Module = cls(
        n_cont_features=len(fields.numerical),
        cat_cardinalities=[VOCABULARY] * len(fields.categorical),
        d_out=1,
        **cls.get_default_kwargs(n_blocks=BLOCKS),
    )
    return model


def _columns(draw: InputSource) -> tuple[Tensor, Tensor]:
    fields = draw.fields
    return draw.uniform(len(fields.numerical)), draw.ids(len(fields.categorical), low=0)


WORKLOADS: tuple[Workload, ...] = (
    Workload("zoo:rtdl/FTTransformer", "fttransformer", PACKAGE, _construct, _columns),
)

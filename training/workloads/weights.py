"""Weights under which a model's output shows what its graph computes.

Of the packages, two draw embeddings (one of them also linear layers) with a deviation of 1e-4, from
which outputs come out equal to seven digits whatever the input is; another draws the first-order
weights so large that they hide the interactions. A wrong rewrite would pass on such models.
"""

from __future__ import annotations

import torch
from torch import nn

EMBEDDING_STD = 0.1


@torch.no_grad()
def redraw(model: nn.Module) -> nn.Module:
    """Draw embeddings from N(0, 0.1²), with padding rows at zero, and linear layers as torch does.

    Other parameters keep the package's own initialisation. Returns the model.
    """
    for layer in model.modules():
        if isinstance(layer, nn.Linear):
            layer.reset_parameters()
        elif isinstance(layer, nn.Embedding):
            layer.weight.normal_(0, EMBEDDING_STD)
            if layer.padding_idx is not None:
                layer.weight[layer.padding_idx].zero_()
    return model

"""Single blocks of language models, at the shapes on which superoptimisers of tensor programs are measured.

The blocks and sizes are those that Mirage (Wu et al., arXiv 2405.05751) searches kernels for: parts of
LLaMA, Chameleon, Falcon and GPT-3 as one of several GPUs runs them, for 1, 8 or 16 rows, in half precision.
Their graphs are small and hold little to batch: they show what a scheduler of graph rewrites does where
there is nothing to do, and beside kernels that were searched for one shape.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from passwright.training.workloads.inputs import InputSource
from passwright.training.workloads.workload import Workload

#: Heads of keys and values, and queries to each: those of several heads and tokens together.
KEY_HEADS, QUERIES = 2, 256
#: Keys and values that are there already.
KEYS = 4096
#: Rank of the low-rank addition, and columns of its output for each of the input.
RANK, WIDENING = 16, 16


class NormLinear(nn.Module):
    """A root-mean-square norm and the product behind it: (batch, width) -> (batch, 3 * width / 2).

    With a width of 4096, the projection to queries, keys and values of LLaMA-3-8B: 6144 columns.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(width)
        self.linear = nn.Linear(width, 3 * width // 2, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.linear(self.norm(x))
        return out


class GatedMlp(nn.Module):
    """Two products of one input, of which one gates the other: (batch, width) -> (batch, width)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gate = nn.Linear(width, width, bias=False)
        self.up = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        gated: Tensor = F.silu(self.gate(x)) * self.up(x)
        return gated


class GroupQueryAttention(nn.Module):
    """Attention of queries to keys and values that several heads share, written out.

    Queries (batch, 2, 256, width), keys and values (batch, 2, 4096, width) -> the shape of the queries.
    Where LLaMA-3-70B is cut over four GPUs, each has two heads of keys and values, and 256 queries are the
    eight heads of 64 tokens. Without parameters: in training its inputs get the gradients.

    Args:
        normed: queries and keys are normed first, as in Chameleon.
    """

    def __init__(self, *, normed: bool = False) -> None:
        super().__init__()
        self.normed = normed

    def forward(self, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        width = queries.shape[-1]
        if self.normed:
            queries, keys = F.rms_norm(queries, (width,)), F.rms_norm(keys, (width,))
        scores = queries @ keys.transpose(-2, -1) / math.sqrt(width)
        return torch.softmax(scores, dim=-1) @ values


class LowRankLinear(nn.Module):
    """A Linear and a low-rank addition to it (LoRA, Hu et al., arXiv 2106.09685).

    (batch, width) -> (batch, 16 * width), by way of 16 columns; 256 and 4096 with the usual width.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, WIDENING * width, bias=False)
        self.down = nn.Linear(width, RANK, bias=False)
        self.up = nn.Linear(RANK, WIDENING * width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.linear(x) + self.up(self.down(x))
        return out


def _row(draw: InputSource) -> tuple[Tensor]:
    return (draw.normal(draw.width),)


def _heads(draw: InputSource) -> tuple[Tensor, Tensor, Tensor]:
    queries = draw.normal(KEY_HEADS, QUERIES, draw.width)
    keys, values = (draw.normal(KEY_HEADS, KEYS, draw.width) for _ in range(2))
    return queries, keys, values


#: A block each, with a family of its own. The batches of the papers are 1, 8 and 16.
WORKLOADS: tuple[Workload, ...] = (
    Workload(
        "own:rms_norm",
        "rmsnorm",
        None,
        lambda s: NormLinear(s.width),
        _row,
        16,
        size=None,
        width=4096,
        width_multiple=2,
    ),
    Workload(
        "own:gated_mlp",
        "gatedmlp",
        None,
        lambda s: GatedMlp(s.width),
        _row,
        16,
        size=None,
        width=4096,
    ),
    Workload(
        "own:attention",
        "groupqueryattention",
        None,
        lambda _: GroupQueryAttention(),
        _heads,
        16,
        size=None,
        width=64,
    ),
    Workload(
        "own:qk_norm_attention",
        "qknormattention",
        None,
        lambda _: GroupQueryAttention(normed=True),
        _heads,
        16,
        size=None,
        width=64,
    ),
    Workload(
        "own:lora",
        "lora",
        None,
        lambda s: LowRankLinear(s.width),
        _row,
        16,
        size=None,
        width=256,
    ),
)

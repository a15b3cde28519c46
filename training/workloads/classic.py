"""Branching models from outside recommendation: convolutions, attention and recurrence.

In a learned model's data they stand for graphs that are unlike those of recommendation models.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from passwright.training.workloads.archetypes_blocks import Attention
from passwright.training.workloads.inputs import InputSource
from passwright.training.workloads.workload import Workload

#: Rows and columns of an image, and tokens of a sequence.
IMAGE, TOKENS = 16, 16
#: Heads of the branches of attention, in turn.
HEADS = (1, 2, 4, 8)


def _convolution(inputs: int, outputs: int, kernel: int) -> nn.Sequential:
    """A convolution that keeps rows and columns, a BatchNorm and a ReLU."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(),
    )


class InceptionBlock(nn.Module):
    """Branches of convolutions of growing reach, joined: (batch, inputs, rows, columns) -> the same
    with branches * width channels.

    The first branch is a 1x1 convolution, the last a pooling with a 1x1 convolution; each between is
    a 1x1 convolution and one 3x3 convolution more than the branch before.
    """

    def __init__(self, inputs: int, branches: int, width: int) -> None:
        super().__init__()
        between = [
            nn.Sequential(
                _convolution(inputs, width, 1), *(_convolution(width, width, 3) for _ in range(n))
            )
            for n in range(1, branches - 1)
        ]
        pool = nn.Sequential(nn.MaxPool2d(3, stride=1, padding=1), _convolution(inputs, width, 1))
        self.branches = nn.ModuleList([_convolution(inputs, width, 1), *between, pool])

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([branch(x) for branch in self.branches], dim=1)


class Inception(nn.Module):
    """Blocks in the manner of Inception (Szegedy et al., arXiv 1409.4842 and 1512.00567).

    (batch, 3, 16, 16) -> (batch, outputs). Simplified: all branches are of equal width, and neither
    strides nor auxiliary heads.

    Args:
        branches: of each block; 4 as in the paper.
        width: channels of a branch.
        blocks: how many follow each other.
        outputs: columns of the output.
    """

    def __init__(
        self, branches: int = 4, width: int = 16, blocks: int = 3, outputs: int = 10
    ) -> None:
        super().__init__()
        self.stem = _convolution(3, width, 3)
        counts = [width] + [branches * width] * (blocks - 1)
        self.blocks = nn.Sequential(*(InceptionBlock(count, branches, width) for count in counts))
        self.head = nn.Linear(branches * width, outputs)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.blocks(self.stem(x)).mean(dim=(2, 3)))
        return out


class MultiBranchAttention(nn.Module):
    """Branches of attention with 1, 2, 4 and 8 heads on the same tokens, layer upon layer.

    (batch, 16, width) -> (batch, 1). The branches of a layer are joined for a Linear, with a residual
    and a LayerNorm, so that tokens are seen at several granularities. The sizes are ours; what is
    taken from Vaswani et al. (2017) is the attention alone.

    Args:
        branches: of each layer.
        width: columns of a token; a multiple of 8, the most heads.
        layers: how many are stacked.
    """

    def __init__(self, branches: int = 4, width: int = 32, layers: int = 2) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.ModuleList(Attention(width, HEADS[n % len(HEADS)]) for n in range(branches))
            for _ in range(layers)
        )
        self.merges = nn.ModuleList(nn.Linear(branches * width, width) for _ in range(layers))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(layers))
        self.head = nn.Linear(width, 1)

    def forward(self, x: Tensor) -> Tensor:
        for branches, merge, norm in zip(self.layers, self.merges, self.norms, strict=True):
            assert isinstance(branches, nn.ModuleList)
            joined = torch.cat([attention(x, x) for attention in branches], dim=-1)
            x = norm(x + merge(joined))
        out: Tensor = self.head(x.mean(dim=1))
        return out


class LstmCell(nn.Module):
    """A cell of long short-term memory (Hochreiter and Schmidhuber, 1997), written out."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.of_input = nn.Linear(width, 4 * width)
        self.of_state = nn.Linear(width, 4 * width, bias=False)

    def forward(self, x: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        hidden, memory = state
        gates = self.of_input(x) + self.of_state(hidden)
        enter, forget, new, leave = torch.split(gates, hidden.shape[1], dim=1)
        memory = torch.sigmoid(forget) * memory + torch.sigmoid(enter) * torch.tanh(new)
        return torch.sigmoid(leave) * torch.tanh(memory), memory


class GruCell(nn.Module):
    """A gated recurrent unit (Cho et al., 2014), written out as torch's own computes it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.of_input = nn.Linear(width, 3 * width)
        self.of_state = nn.Linear(width, 3 * width)

    def forward(self, x: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        (hidden,) = state
        reset, update, new = self.of_input(x).split(hidden.shape[1], dim=1)
        old_reset, old_update, old_new = self.of_state(hidden).split(hidden.shape[1], dim=1)
        update = torch.sigmoid(update + old_update)
        candidate = torch.tanh(new + torch.sigmoid(reset + old_reset) * old_new)
        return ((1 - update) * candidate + update * hidden,)


class Unrolled(nn.Module):
    """A recurrent network as one graph without a loop: (batch, steps, width) -> (batch, 1).

    Layers read what the layer below them gives at each step; the last state goes to a Linear.

    Args:
        cell: makes a cell of so many columns.
        states: tensors of a cell's state, of which the first is its output.
        width: columns of the input and of a state.
        layers: how many are stacked.
    """

    def __init__(self, cell: type[LstmCell | GruCell], states: int, width: int, layers: int):
        super().__init__()
        self.states, self.width = states, width
        self.cells = nn.ModuleList(cell(width) for _ in range(layers))
        self.head = nn.Linear(width, 1)

    def forward(self, x: Tensor) -> Tensor:
        steps = list(torch.unbind(x, dim=1))
        for cell in self.cells:
            state = (x.new_zeros(x.shape[0], self.width),) * self.states
            for number, step in enumerate(steps):
                state = cell(step, state)
                steps[number] = state[0]
        out: Tensor = self.head(steps[-1])
        return out


def _image(draw: InputSource) -> tuple[Tensor]:
    return (draw.normal(3, IMAGE, IMAGE),)


def _tokens(draw: InputSource) -> tuple[Tensor]:
    return (draw.normal(TOKENS, draw.width),)


def _steps(draw: InputSource) -> tuple[Tensor]:
    return (draw.normal(draw.size, draw.width),)


WORKLOADS: tuple[Workload, ...] = (
    Workload(
        "own:inception",
        "inception",
        None,
        lambda s: Inception(s.size, s.width, s.layers),
        _image,
        64,
        size=4,
        width=16,
        layers=3,
    ),
    Workload(
        "own:multi_branch_attention",
        "multibranchattention",
        None,
        lambda s: MultiBranchAttention(s.size, s.width, s.layers),
        _tokens,
        size=4,
        width=32,
        layers=2,
        width_multiple=max(HEADS),
    ),
    Workload(
        "own:unrolled_lstm",
        "lstm",
        None,
        lambda s: Unrolled(LstmCell, 2, s.width, s.layers),
        _steps,
        size=12,
        width=32,
        layers=1,
    ),
    Workload(
        "own:unrolled_gru",
        "gru",
        None,
        lambda s: Unrolled(GruCell, 1, s.width, s.layers),
        _steps,
        size=12,
        width=32,
        layers=1,
    ),
)

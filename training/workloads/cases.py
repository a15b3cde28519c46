"""Small models of cases that people met in public trackers, each with what the right behaviour is.

Each function returns a module and the arguments of one call, drawn from a source that also says how
many rows the inputs have and how many branches or steps the model (`case:D1?fields=3`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from passwright.training.workloads.inputs import InputSource
from passwright.training.workloads.workload import Setup, Workload, seeded

Case = tuple[nn.Module, tuple[Tensor, ...]]


def _weights(count: int, *shape: int) -> nn.ParameterList:
    scale = shape[-1] ** -0.5
    return nn.ParameterList(nn.Parameter(torch.randn(shape) * scale) for _ in range(count))


class OwnInputs(nn.Module):
    """A product for each of `size` inputs that separate pointwise ops make.

    (batch, size * width) -> (batch, width)
    """

    def __init__(self, size: int, width: int = 64) -> None:
        super().__init__()
        self.width = width
        self.weights = _weights(size, width, width)

    def forward(self, x: Tensor) -> Tensor:
        pieces = torch.split(x, self.width, dim=1)
        inputs = [torch.sin(piece) * number for number, piece in enumerate(pieces, 1)]
        return torch.stack([F.linear(x, w) for x, w in zip(inputs, self.weights, strict=True)]).sum(
            0
        )


def d1(draw: InputSource) -> Case:
    """pytorch#106688: products of equal shape whose inputs are made by separate pointwise ops.

    Right: the predicted gain charges the copies of the stack; few products are left alone.
    """
    return OwnInputs(draw.size), (draw.normal(draw.size * 64),)


class PieceLinears(nn.Module):
    """A Linear of its own for each piece of the input, joined again.

    (batch, size * width) -> (batch, size * outputs)
    """

    def __init__(self, size: int, width: int = 32, outputs: int = 32) -> None:
        super().__init__()
        self.width = width
        self.linears = nn.ModuleList(nn.Linear(width, outputs) for _ in range(size))

    def forward(self, x: Tensor) -> Tensor:
        pieces = torch.split(x, self.width, dim=1)
        outputs = [linear(piece) for linear, piece in zip(self.linears, pieces, strict=True)]
        return torch.cat(outputs, dim=1)


def d2(draw: InputSource) -> Case:
    """pytorch PR#107759: split, a Linear of its own for each piece, cat.

    Right: batch and then clean up, so that one view and one batched product are left and neither
    stack nor unbind; cleaning up first leaves nothing to batch for less, and is seen as worse.
    """
    return PieceLinears(draw.size), (draw.normal(draw.size * 32),)


class Towers(nn.Module):
    """Linear, ReLU, Linear for each input, of any widths: (batch, width) each -> (batch, sum)."""

    def __init__(self, widths: Sequence[int], hidden: int = 32, outputs: int = 16) -> None:
        super().__init__()
        self.towers = nn.ModuleList(
            nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, outputs))
            for width in widths
        )

    def forward(self, *inputs: Tensor) -> Tensor:
        outputs = [tower(x) for tower, x in zip(self.towers, inputs, strict=True)]
        return torch.cat(outputs, dim=1)


def d3(draw: InputSource) -> Case:
    """xpu_graph#448: 30 features, each with a Linear 64-32, a ReLU and a Linear 32-16.

    Right: layers of equal shape are batched, one after the other.
    """
    return Towers([64] * draw.size), tuple(draw.normal(64) for _ in range(draw.size))


def d3_unequal(draw: InputSource) -> Case:
    """xpu_graph#448: the same with features of unequal width.

    Right: the first layers are grouped only where that is predicted to be better.
    """
    widths = [(48, 64, 80)[number % 3] for number in range(draw.size)]
    return Towers(widths), tuple(draw.normal(width) for width in widths)


class OneInput(nn.Module):
    """Linears on one input, of any widths and with or without bias: x -> a tensor for each."""

    def __init__(self, inputs: int, widths: Sequence[int], biases: Sequence[bool]) -> None:
        super().__init__()
        self.linears = nn.ModuleList(
            nn.Linear(inputs, width, bias=bias) for width, bias in zip(widths, biases, strict=True)
        )

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return tuple(torch.relu(linear(x)) for linear in self.linears)


def d4(draw: InputSource) -> Case:
    """pytorch#178387: Linears of width 960, 320 and 320 on one input, not all with a bias.

    Right: one wide product and a split; the missing bias is handled.
    """
    widths = [960] + [320] * (draw.size - 1)
    biases = [number != 1 for number in range(draw.size)]
    return OneInput(320, widths, biases), (draw.normal(320),)


def d4_gates(draw: InputSource) -> Case:
    """pytorch#178387: gates of width 8 beside experts of width 128, on one input.

    Right: as for D4, over widths that differ much.
    """
    widths = [128] * draw.size + [8] * 2
    return OneInput(256, widths, [True] * len(widths)), (draw.normal(256),)


class TwoKinds(nn.Module):
    """Two joins of `size` parts of equal shape: one of products, one of pointwise results.

    (batch, size * width) twice -> the same shape twice
    """

    def __init__(self, size: int, width: int = 32) -> None:
        super().__init__()
        self.products = PieceLinears(size, width, width)
        self.width = width

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        pieces = [torch.tanh(piece) for piece in torch.split(y, self.width, dim=1)]
        return self.products(x), torch.cat(pieces, dim=1)


def d5(draw: InputSource) -> Case:
    """pytorch#102804: a cat of product results, and a cat of pointwise results.

    Right: the two are predicted differently. Both are written in place (torch 2.13): what batching
    saves is launches, which cost a product more.
    """
    columns = draw.size * 32
    return TwoKinds(draw.size), (draw.normal(columns), draw.normal(columns))


class Experts(nn.Module):
    """Linear and GELU for each of `size` inputs: (batch, inputs) each -> (batch, size, outputs)."""

    def __init__(self, size: int, inputs: int, outputs: int) -> None:
        super().__init__()
        self.linears = nn.ModuleList(nn.Linear(inputs, outputs) for _ in range(size))

    def forward(self, *inputs: Tensor) -> Tensor:
        pairs = zip(self.linears, inputs, strict=True)
        return torch.stack([F.gelu(linear(x)) for linear, x in pairs], dim=1)


#: (experts, rows, inputs, outputs) that people measured in D6; the model has those in the middle.
D6_SHAPES = ((32, 640, 1024, 2048), (16, 256, 128, 256), (4, 1024, 512, 1024))


def d6(draw: InputSource) -> Case:
    """pytorch#187093: experts Linear, bias, GELU at the sizes of `D6_SHAPES`.

    Right: the chosen form changes with the size, and both predictions are shown.
    """
    inputs, outputs = D6_SHAPES[1][2:]
    return Experts(draw.size, inputs, outputs), tuple(draw.normal(inputs) for _ in range(draw.size))


class ExtremeProducts(nn.Module):
    """A batched product of many small matrices, and a product of a long thin one.

    (batch, 16, width, width) and (batch, 256, width) -> the same, and (batch, 256, 4)
    """

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.small = nn.Parameter(torch.randn(width, width))
        self.thin = nn.Linear(width, 4)

    def forward(self, many: Tensor, long: Tensor) -> tuple[Tensor, Tensor]:
        flat = many.flatten(0, 1)
        products = torch.bmm(flat, self.small.expand(flat.shape[0], -1, -1))
        return products.view_as(many), self.thin(long.flatten(0, 1)).unflatten(0, (-1, 256))


def d7(draw: InputSource) -> Case:
    """pytorch PR#120047: bmm with a large batch of small matrices, mm with huge m and tiny n and k.

    Right: a model of their time does better than a linear fit on shapes it has not seen.
    """
    many, long = draw.normal(16, draw.size, draw.size), draw.normal(256, draw.size)
    return ExtremeProducts(draw.size), (many, long)


class Dlrm(nn.Module):
    """A small DLRM: look-ups, an MLP below and one above, products of all pairs between."""

    def __init__(self, tables: int, rows: int = 100, width: int = 16, dense: int = 13) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(rows, width) for _ in range(tables))
        self.below = _mlp(dense, 64, 32, width)
        parts = tables + 1
        self.register_buffer("pairs", torch.triu_indices(parts, parts, 1), persistent=False)
        self.above = _mlp(width + parts * (parts - 1) // 2, 64, 32, 1)

    def forward(self, ids: Tensor, dense: Tensor) -> Tensor:
        bottom = self.below(dense)
        looked_up = [table(ids[:, number]) for number, table in enumerate(self.tables)]
        parts = torch.stack([bottom, *looked_up], dim=1)
        products = torch.bmm(parts, parts.transpose(1, 2))
        pairs: Tensor = self.pairs  # type: ignore[assignment]
        joined = torch.cat([bottom, products[:, pairs[0], pairs[1]]], dim=1)
        out: Tensor = self.above(joined)
        return out


def _mlp(*sizes: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(sizes):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def d8(draw: InputSource) -> Case:
    """torchrec PR#4398: DLRM with 26 tables and MLPs of three layers.

    Right: where nothing is worth doing the plan is empty, and deciding that costs under a second.
    """
    return Dlrm(draw.size), (draw.ids(draw.size, high=100), draw.normal(13))


class UnevenSplit(nn.Module):
    """A split whose last piece is shorter, joined again: (batch, 10) -> the same shape."""

    def forward(self, x: Tensor) -> Tensor:
        first, second, rest = torch.split(x, 4, dim=1)
        return torch.cat([torch.tanh(first), second, rest], dim=1)


def d9(draw: InputSource) -> Case:
    """pytorch#197080: ten columns split by four.

    Right: correct; a pass that crashes is skipped with one warning and the compile succeeds.
    """
    return UnevenSplit(), (draw.normal(10),)


class ScaledDifferences(nn.Module):
    """Differences with alpha=2, and one without: 2 n of (batch, width) -> (batch, n + 1, width)."""

    def forward(self, *inputs: Tensor) -> Tensor:
        half = len(inputs) // 2
        pairs = list(zip(inputs[:half], inputs[half:], strict=True))
        scaled = [torch.sub(left, right, alpha=2) for left, right in pairs]
        return torch.stack([*scaled, torch.sub(*pairs[0])], dim=1)


def d10(draw: InputSource) -> Case:
    """pytorch#195442: five sub(alpha=2).

    Right: every keyword argument is part of what members of a batch have in common, and the
    verifier would catch a pattern that drops one.
    """
    return ScaledDifferences(), tuple(draw.normal(8) for _ in range(2 * draw.size))


class WrittenBetween(nn.Module):
    """The same function of the same memory, which is overwritten in between.

    (batch, width) -> (batch, size, width)
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def forward(self, x: Tensor) -> Tensor:
        y = x * 2
        results = []
        for _ in range(self.size):
            results.append(torch.tanh(y))
            y.add_(1)
        return torch.stack(results, dim=1)


def d11(draw: InputSource) -> Case:
    """pytorch PR#128570: t0 = tanh(y); y.add_(1); t1 = tanh(y); and so on.

    Right: nothing is batched across a write.
    """
    return WrittenBetween(draw.size), (draw.normal(8),)


class UnrolledGru(nn.Module):
    """A GRU cell written out, over `size` steps: (batch, size, inputs) -> (batch, width)."""

    def __init__(self, size: int, inputs: int = 8, width: int = 16) -> None:
        super().__init__()
        self.size, self.width = size, width
        self.of_input = nn.Linear(inputs, 3 * width)
        self.of_state = nn.Linear(width, 3 * width)

    def forward(self, x: Tensor) -> Tensor:
        state = x.new_zeros(x.shape[0], self.width)
        for step in range(self.size):
            reset, update, new = self.of_input(x[:, step]).chunk(3, dim=1)
            old_reset, old_update, old_new = self.of_state(state).chunk(3, dim=1)
            update = torch.sigmoid(update + old_update)
            candidate = torch.tanh(new + torch.sigmoid(reset + old_reset) * old_new)
            state = candidate + update * (state - candidate)
        return state


def d12(draw: InputSource) -> Case:
    """pytorch#154652: a GRU cell unrolled over 50, 200 or 500 steps.

    Right: planning takes time near to linear in the number of nodes, and obeys its budget.
    """
    return UnrolledGru(draw.size), (draw.normal(draw.size, 8),)


class LowRankExperts(nn.Module):
    """Each of `size` experts is two thin matrices: (batch, width) each -> (batch, width)."""

    def __init__(self, size: int, width: int = 256, rank: int = 16) -> None:
        super().__init__()
        self.down = _weights(size, rank, width)
        self.up = _weights(size, width, rank)

    def forward(self, *inputs: Tensor) -> Tensor:
        parts = zip(inputs, self.down, self.up, strict=True)
        return torch.stack([F.linear(F.linear(x, down), up) for x, down, up in parts]).sum(0)


def d13(draw: InputSource) -> Case:
    """unsloth-zoo PR#827: 128 experts with rows of their own, each a product of low rank.

    Right: the opposite is decided on a CPU and on a GPU.
    """
    return LowRankExperts(draw.size), tuple(draw.normal(256) for _ in range(draw.size))


def _workload(
    name: str, case: Callable[[InputSource], Case], batch: int, size: int | None
) -> Workload:
    def construct(setup: Setup) -> nn.Module:
        return case(InputSource(1, setup.seed, setup.size))[0]

    def inputs(draw: InputSource) -> tuple[Tensor, ...]:
        with seeded(0):
            return case(draw)[1]

    family = case.__name__.partition("_")[0]
    return Workload(f"case:{name}", f"case-{family}", None, construct, inputs, batch, size)


WORKLOADS: tuple[Workload, ...] = (
    _workload("D1", d1, 64, 8),
    _workload("D2", d2, 64, 8),
    _workload("D3", d3, 64, 30),
    _workload("D3-unequal", d3_unequal, 64, 9),
    _workload("D4", d4, 64, 3),
    _workload("D4-gates", d4_gates, 64, 4),
    _workload("D5", d5, 64, 8),
    _workload("D6", d6, 256, 16),
    _workload("D7", d7, 16, 8),
    _workload("D8", d8, 64, 26),
    _workload("D9", d9, 2, None),  # the size is what the case is about
    _workload("D10", d10, 8, 5),
    _workload("D11", d11, 8, 4),
    _workload("D12", d12, 8, 50),
    _workload("D13", d13, 64, 128),
)

"""The models written from papers compute what they say."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from passwright.training.workloads.archetypes_blocks import Attention
from passwright.training.workloads.archetypes_dlrm import Dlrm, FactorizationBlock
from passwright.training.workloads.archetypes_hstu import HstuLayer, RelativeBias
from passwright.training.workloads.classic import GruCell, Inception, LstmCell, Unrolled


@pytest.mark.parametrize("fused", [False, True])
def test_attention_is_that_of_torch(fused: bool) -> None:
    ours, torchs = Attention(8, 2, fused), nn.MultiheadAttention(8, 2, batch_first=True)
    with torch.no_grad():
        parts = [ours.query, ours.key, ours.value]
        torchs.in_proj_weight.copy_(torch.cat([part.weight for part in parts]))
        torchs.in_proj_bias.copy_(torch.cat([part.bias for part in parts]))
        torchs.out_proj.load_state_dict(ours.out.state_dict())
    x, context = torch.randn(2, 3, 8), torch.randn(2, 5, 8)
    expected, _ = torchs(x, context, context)
    torch.testing.assert_close(ours(x, context), expected)


def test_dlrm_multiplies_each_pair_once() -> None:
    model = Dlrm(fields=6, width=4, layers=1)
    tokens = 1 + len(model.singles) + len(model.bags)
    pairs = {tuple(sorted(pair)) for pair in model.pairs.T.tolist()}  # type: ignore[operator, union-attr]
    assert pairs == {(a, b) for a in range(tokens) for b in range(a + 1, tokens)}


def test_wukongs_products_are_those_of_the_whole_matrix() -> None:
    block = FactorizationBlock(5, 2, 4, rank=3, hidden=8)
    seen: list[Tensor] = []
    block.norm.register_forward_hook(lambda _module, inputs, _out: seen.append(inputs[0]))
    x = torch.randn(2, 5, 4)
    assert block(x).shape == (2, 2, 4)
    expected = x @ x.transpose(1, 2) @ block.project.weight.T
    torch.testing.assert_close(seen[0].view(2, 5, 3), expected)


def test_hstu_does_not_look_ahead() -> None:
    layer, times = HstuLayer(8, events=6), torch.arange(6).repeat(2, 1) * 100
    x = torch.randn(2, 6, 8)
    changed = x.clone()
    changed[:, 4] = torch.randn(2, 8)
    before, after = layer(x, times), layer(changed, times)
    assert torch.equal(before[:, :4], after[:, :4])
    assert (before[:, 4:] != after[:, 4:]).any(dim=2).all()


def test_hstus_bias_depends_on_distances_alone() -> None:
    bias, times = RelativeBias(5), torch.tensor([[0, 10, 20, 30, 40]])
    out = bias(times)[0, 0]
    torch.testing.assert_close(bias(times + 777)[0, 0], out)
    torch.testing.assert_close(out[1:, 1:], out[:-1, :-1])
    assert not torch.allclose(out, out.T)


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_recurrences_are_those_of_torch(kind: str) -> None:
    ours: nn.Module
    torchs: nn.Module
    if kind == "lstm":
        ours, torchs = Unrolled(LstmCell, 2, 4, layers=2), nn.LSTM(4, 4, 2, batch_first=True)
    else:
        ours, torchs = Unrolled(GruCell, 1, 4, layers=2), nn.GRU(4, 4, 2, batch_first=True)
    with torch.no_grad():
        for number, cell in enumerate(ours.cells):
            for theirs, linear in (("ih", cell.of_input), ("hh", cell.of_state)):
                getattr(torchs, f"weight_{theirs}_l{number}").copy_(linear.weight)
                bias = getattr(torchs, f"bias_{theirs}_l{number}")
                bias.zero_() if linear.bias is None else bias.copy_(linear.bias)
    x = torch.randn(3, 5, 4)
    expected = ours.head(torchs(x)[0][:, -1])
    torch.testing.assert_close(ours(x), expected)


def test_inceptions_branches_keep_the_image_and_are_joined() -> None:
    model = Inception(branches=5, width=4, blocks=2)
    convolutions = [
        sum(isinstance(module, nn.Conv2d) for module in branch.modules())
        for branch in model.blocks[0].branches  # type: ignore[union-attr]
    ]
    assert convolutions == [1, 2, 3, 4, 1]
    assert model.blocks(torch.randn(2, 4, 6, 6)).shape == (2, 20, 6, 6)

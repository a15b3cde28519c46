"""Chains of reshapes and permutes."""

from __future__ import annotations

import torch
from torch import Tensor

from passwright.passes.conformance import Example, PatternConformance, tensor
from passwright.passes.ops import Permute, Reshape
from passwright.passes.patterns import (
    MergePermutes,
    MergeReshapes,
    RemoveIdentityPermute,
    RemoveIdentityReshape,
    ReshapeOfPermute,
)

CUBE = (tensor("b", 4, 6),)


def reshaped_twice(x: Tensor) -> Tensor:
    return torch.sin(torch.reshape(torch.flatten(x, 1), (-1, 3, 8)))


class TestMergeReshapes(PatternConformance):
    pattern = MergeReshapes()
    examples = (Example(reshaped_twice, CUBE, {Reshape: 2}, {Reshape: 1}, (1, 2)),)


def same_shape(x: Tensor) -> Tensor:
    return torch.sin(torch.reshape(x, (-1, 4, 6)))


class TestRemoveIdentityReshape(PatternConformance):
    pattern = RemoveIdentityReshape()
    examples = (Example(same_shape, CUBE, {Reshape: 1}, {Reshape: 0}, (0, 1)),)


def turned_twice(x: Tensor) -> Tensor:
    return torch.sin(torch.transpose(torch.permute(x, (1, 0, 2)), 1, 2))


class TestMergePermutes(PatternConformance):
    pattern = MergePermutes()
    examples = (Example(turned_twice, CUBE, {Permute: 2}, {Permute: 1}, (1, 2)),)


def not_turned(x: Tensor) -> Tensor:
    return torch.sin(torch.permute(x, (0, 1, 2)))


class TestRemoveIdentityPermute(PatternConformance):
    pattern = RemoveIdentityPermute()
    examples = (Example(not_turned, CUBE, {Permute: 1}, {Permute: 0}, (0, 1)),)


def only_ones_move(x: Tensor) -> Tensor:
    return torch.sin(torch.transpose(torch.unsqueeze(x, 1), 0, 1))


class TestReshapeOfPermute(PatternConformance):
    pattern = ReshapeOfPermute()
    examples = (
        Example(only_ones_move, CUBE, {Reshape: 1, Permute: 1}, {Reshape: 1, Permute: 0}, (1, 2)),
    )

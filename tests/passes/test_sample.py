"""Random inputs for a graph: types, layouts, indices within their tables, real examples."""

from __future__ import annotations

import operator
from typing import Any

import torch
import torch.nn.functional as F

from passwright.passes.sample import index_bounds, sample_inputs
from passwright.passes.verify import verify

aten = torch.ops.aten


def test_samples_have_the_type_of_the_placeholders(sketch: Any) -> None:
    s = sketch()
    nodes = [
        s.input(3, 4, requires_grad=True),
        s.input(3, 4, stride=(1, 3)),
        s.input(2, 2, dtype=torch.bfloat16),
        s.input(5, dtype=torch.int32),
        s.input(5, dtype=torch.bool),
        s.input(3, dtype=torch.complex64),
        s.input(4, 3, stride=(1, 0)),
        s.input(),
        s.input(0, 2),
    ]
    s.output(*nodes)
    state = torch.get_rng_state()
    values = sample_inputs(s.module())
    for node, value in zip(nodes, values, strict=True):
        like = node.meta["example_value"]
        assert (value.shape, value.dtype, value.stride()) == (like.shape, like.dtype, like.stride())
        assert value.requires_grad == like.requires_grad
        assert value.is_leaf
        if value.is_floating_point() and value.numel():
            assert value.abs().max() > 0
            assert value.abs().max() < 1
    assert torch.equal(torch.get_rng_state(), state)
    again = sample_inputs(s.module())
    assert all(map(torch.equal, values, again))
    other = sample_inputs(s.module(), seed=1)
    assert not torch.equal(values[0], other[0])


def test_indices_stay_within_their_tables(sketch: Any) -> None:
    s = sketch()
    ids = s.input(64, 3, dtype=torch.int64)
    columns = s.input(64, 4)
    shifted, picks = s.input(64, dtype=torch.int64), s.input(8, dtype=torch.int64)
    labels, free = s.input(64, dtype=torch.int64), s.input(64, dtype=torch.int64)
    bags, starts = s.input(20, dtype=torch.int64), s.input(5, dtype=torch.int64)
    big, small, bag = s.input(50, 4), s.input(7, 4), s.input(9, 4)
    logits, offsets = s.input(64, 11), s.input(1, dtype=torch.int64)
    s.call(F.embedding, s.call(operator.getitem, ids, (slice(None), 0)), big)
    s.call(F.embedding, s.call("long", s.call("view", ids, -1)), small)
    halves = s.call(torch.split, columns, 2, 1)
    s.call(F.embedding, s.call("long", s.call(operator.getitem, halves, 0)), big)
    s.call(F.embedding, s.call("to", s.call(torch.squeeze, s.call(torch.narrow, columns, 1, 3, 1)),
                               torch.int32), bag)  # fmt: skip
    s.call(F.embedding, s.call(torch.add, shifted, offsets), big)
    s.call(torch.index_select, logits, 1, picks)
    s.call(F.cross_entropy, logits, labels)
    s.call(F.embedding_bag, bags, bag, starts)
    s.output(free)
    module = s.module()
    bounds = {str(n.target): b for n, b in index_bounds(s.view()).items()}
    assert bounds == {
        str(ids.target): 7,
        str(columns.target): 9,
        str(shifted.target): 25,
        str(picks.target): 11,
        str(labels.target): 11,
        str(offsets.target): 25,
        str(bags.target): 9,
        str(starts.target): 1,
    }
    values = sample_inputs(module)
    by_name = dict(zip((n.target for n in module.graph.find_nodes(op="placeholder")), values,
                       strict=True))  # fmt: skip
    for name, bound in bounds.items():
        value = by_name[name]
        assert 0 <= value.min() <= value.max() < bound
        assert torch.equal(value, value.round())
        assert bound == 1 or value.numel() == 1 or value.unique().numel() > 1
    verdict = verify(module, module, training=True)
    assert verdict.ok, verdict.sentence


def test_real_examples(sketch: Any) -> None:
    s = sketch()
    ids, x, w = s.input(6, dtype=torch.int64), s.input(6, 2), s.input(3, requires_grad=True)
    column = s.call("long", s.call(torch.select, x, 1, 0))
    s.output(s.call(F.embedding, column, s.input(9, 2)), ids, w)
    examples = [
        torch.arange(6),
        torch.arange(12.0).reshape(6, 2).remainder(9),
        torch.zeros(3),
        torch.ones(9, 2),
    ]
    shaken = sample_inputs(s.module(), examples)
    assert torch.equal(shaken[0], examples[0])
    assert torch.equal(shaken[1], examples[1]), "it becomes an index"
    assert shaken[2].abs().min() > 0
    assert shaken[2].requires_grad
    assert 0.02 < (shaken[3] - 1).abs().mean() < 0.3
    assert torch.equal(examples[2], torch.zeros(3))


def test_running_variances_are_positive(sketch: Any) -> None:
    s = sketch()
    x, mean, var = s.input(8, 4), s.input(4), s.input(4)
    s.output(s.call(F.batch_norm, x, mean, var))
    module = s.module()
    assert sample_inputs(module)[2].min() > 0
    assert verify(module, module, training=False).ok


def test_an_input_of_unknown_type_needs_an_example(sketch: Any) -> None:
    s = sketch()
    x = s.graph.placeholder("x")
    s.graph.output(x)
    module = s.module()
    assert "no known type" in verify(module, module, training=False).sentence
    assert verify(module, module, [torch.rand(3)], training=False).ok

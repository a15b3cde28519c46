"""Walks ask the check that they are given, and failures are made small within its means."""

from __future__ import annotations

import torch
from torch import fx

from passwright.passes.isolated import run
from passwright.passes.random_graphs import RandomGraph, random_graph
from passwright.passes.random_shown import shown_graph
from passwright.passes.random_walks import EAGER, LIMIT, TorchFails, Trial, replay, shrink, walk
from passwright.passes.testing import text

#: A graph on which much can be done.
SEED = 7


def counted(graph: RandomGraph, module: fx.GraphModule) -> str:
    """Finds fault with any change."""
    return "" if text(graph.module.graph) == text(module.graph) else "changed"


def test_the_check_of_a_trial_decides() -> None:
    trial = Trial(check=counted, lengths=(8,))
    found = walk(SEED, trial=trial)
    assert found.failure == "changed"
    assert len(found.steps) == 8
    assert walk(SEED).failure == ""
    assert replay(random_graph(SEED), found.steps, trial=trial) == "changed"


def test_what_torch_fails_at_as_well_is_no_failure() -> None:
    def torchs(graph: RandomGraph, module: fx.GraphModule) -> str:
        raise TorchFails("off")

    trial = Trial(check=torchs)
    found = walk(SEED, trial=trial)
    assert (found.failure, found.excused) == ("", "off")
    assert replay(random_graph(SEED), found.steps, trial=trial) == ""


def test_shrinking_ends_at_one_step_and_keeps_to_its_replays() -> None:
    asked = 0

    def check(graph: RandomGraph, module: fx.GraphModule) -> str:
        nonlocal asked
        asked += 1
        return counted(graph, module)

    found = walk(SEED, trial=Trial(check=check, lengths=(LIMIT,)))
    assert len(found.steps) > 8
    asked = 0
    _, steps, failure = shrink(found, trial=Trial(check=check, replays=3))
    assert failure == "changed"
    assert asked == 3
    assert 1 < len(steps) < len(found.steps)
    asked = 0
    _, steps, failure = shrink(found, trial=Trial(check=check, replays=EAGER.replays))
    assert len(steps) == 1
    assert failure == "changed"
    assert asked < 3 * len(found.steps)


def test_shown_graphs_return_more_and_stay_what_they_were() -> None:
    shown = 0
    for seed in range(12):
        plain, graph = random_graph(seed, calls=(16, 44)), shown_graph(seed)
        assert text(graph.module.graph) == text(shown_graph(seed).module.graph)
        before, after = (run(g.module, g.inputs[0], training=False) for g in (plain, graph))
        shown += len(after.outputs) > len(before.outputs)
        for old, new in zip(before.outputs, after.outputs, strict=False):
            assert torch.equal(old.nan_to_num(), new.nan_to_num())
    assert shown > 6

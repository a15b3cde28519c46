"""Sequences that make the same graphs lead to one state, and no macro is done twice in one."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import pytest
import torch

from passwright.passes.table import default_table
from passwright.scheduler.device import describe_gpu
from passwright.training.macros import CLEAN_UP, open_macros
from passwright.training.model_plan import ModelPlan, settled
from passwright.training.proposals import Graphs
from passwright.training.search import states as module_states
from passwright.training.search.models import Sequences
from passwright.training.search.states import PLANNED, States, leading
from passwright.training.workloads import build
from passwright.training.workloads.capture import captured

NAMES = ("own:norm_branches?fields=4", "own:mmoe", "zoo:deepctr/ESMM?fields=4")


def graphs_of(name: str) -> Graphs:
    module, inputs = build(name, batch=32)
    return Graphs(captured(module, inputs, train=False), describe_gpu("NVIDIA H200"), False)


@pytest.fixture(scope="module", params=NAMES)
def graphs(request: Any) -> Graphs:
    return graphs_of(request.param)


def alphabet(graphs: Graphs) -> list[str]:
    table = default_table()
    opened = {m.label for g in graphs.captured for m in open_macros(g.graph, table)}
    return [CLEAN_UP.label, *sorted(opened - {CLEAN_UP.label})]


def some(labels: Sequence[str]) -> list[tuple[str, ...]]:
    pairs = list(itertools.permutations(labels[:5], 2))
    return [(), *((label,) for label in labels), *pairs, tuple(labels), tuple(reversed(labels))]


def test_sequences_of_one_state_make_the_same_graphs(graphs: Graphs) -> None:
    """But for the order of their nodes, in which rewrites that were done in another order may differ."""
    sequences = Sequences(graphs)
    states = States(graphs, lambda: sequences.planned)
    asked = [*some(alphabet(graphs)), (PLANNED,), (PLANNED, *alphabet(graphs)[:3])]
    with torch.no_grad():
        told = {s: states.reach(s) for s in asked}
        plans = {s: settled(graphs.captured, sequences.plan_of(s))[1] for s in asked}
    keys = {s: module_states._content(after) for s, after in plans.items()}
    pairs = list(itertools.combinations(asked, 2))
    for one, other in pairs:
        assert told[one] != told[other] or keys[one] == keys[other], (one, other)
    alike = [told[one] == told[other] for one, other in pairs if keys[one] == keys[other]]
    assert sum(alike) >= 0.9 * len(alike) > 0


def test_what_does_nothing_is_left_out(graphs: Graphs) -> None:
    sequences = Sequences(graphs)
    states = States(graphs, lambda: sequences.planned)
    labels = alphabet(graphs)
    everything = (*labels, *labels)
    asked = [(), (PLANNED,), everything, (PLANNED, *everything), *some(labels)]
    shorter = 0
    with torch.no_grad():
        for sequence in asked:
            found = states.effective(sequence)
            assert states.reach(found) == states.reach(sequence)
            assert states.effective(found) == found
            assert len(found) <= max(len(sequence), 1)
            shorter += len(found) < len(sequence)
    assert shorter
    assert states.effective(()) == ()


def test_what_is_predicted_is_what_the_plan_of_the_sequence_foretells(graphs: Graphs) -> None:
    sequences = Sequences(graphs)
    states = States(graphs, lambda: sequences.planned)
    with torch.no_grad():
        for sequence in some(alphabet(graphs))[:12]:
            foretold = sequences.plan_of(sequence).predicted
            assert foretold is not None
            assert states.predicted(sequence).mean == pytest.approx(foretold.mean, abs=0.02)


def test_each_macro_is_performed_once_in_a_state(monkeypatch: pytest.MonkeyPatch) -> None:
    graphs = graphs_of(NAMES[0])
    states = States(graphs, ModelPlan)
    done: list[str] = []
    perform = module_states.apply_macro

    def counted(graph: Any, macro: Any, table: Any) -> list[str]:
        done.append(macro.label)
        return perform(graph, macro, table)

    monkeypatch.setattr(module_states, "apply_macro", counted)
    labels = alphabet(graphs)
    with torch.no_grad():
        first = [states.reach(sequence) for sequence in some(labels)]
        count = len(done)
        assert [states.reach(sequence) for sequence in some(labels)] == first
    assert 0 < count == len(done)


def test_graphs_that_were_forgotten_are_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module_states, "_KEPT", 1)
    graphs = graphs_of(NAMES[0])
    labels = alphabet(graphs)
    few, many = States(graphs, ModelPlan), States(graphs, ModelPlan)
    with torch.no_grad():
        forgetful = [few.reach(sequence) for sequence in some(labels)]
        monkeypatch.setattr(module_states, "_KEPT", 256)
        assert [many.reach(sequence) for sequence in some(labels)] == forgetful
    assert len(few._kept) == 1


def test_the_plan_comes_first_or_not_at_all() -> None:
    assert leading(("a", PLANNED, "b")) == (CLEAN_UP.label, "a", "b")
    assert leading((PLANNED, "a")) == (PLANNED, "a")
    assert leading((PLANNED,)) == (PLANNED,)
    assert leading(()) == ()

"""Our own models: built at any size, trainable in both precisions, exact by name, one graph for Dynamo."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn

from passwright.training import workloads
from passwright.training.workloads import blocks
from passwright.training.workloads.spec import Spec

BATCH = 3
SMALL = {
    "own:dlrm": "fields=4,width=4,layers=1",
    "own:dhen": "fields=4,width=8,layers=2",
    "own:wukong": "fields=4,width=8,layers=2",
    "own:interformer": "fields=4,width=8,layers=1",
    "own:coffee": "fields=5,width=8,layers=1",
    "own:hstu": "width=8,layers=1",
    "own:inception": "fields=4,width=4,layers=1",
    "own:multi_branch_attention": "fields=4,width=8,layers=1",
    "own:unrolled_lstm": "fields=3,width=8,layers=2",
    "own:unrolled_gru": "fields=3,width=8,layers=2",
    "own:illustrative": "fields=5,width=8,layers=2",
}
NAMES = [f"{name}?{sizes}" for name, sizes in SMALL.items()]


def build(name: str, **how: Any) -> tuple[nn.Module, tuple[Tensor, ...]]:
    return workloads.build(name, batch=BATCH, **how)


def check_gradients(model: nn.Module, out: Tensor) -> None:
    assert out.ndim == 2
    assert out.shape[0] == BATCH
    # In a batch norm's gradient the mean of a plain sum would cancel out.
    weights = torch.linspace(1, 2, out.numel()).view_as(out)
    (out.float() * weights).sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert torch.isfinite(parameter.grad).all(), name


def test_every_new_workload_is_here_and_a_family_of_its_own() -> None:
    families = {w.name: w.family for w in workloads.workloads("own")}
    assert families.keys() - SMALL.keys() == {
        "own:split_cat",
        "own:split_cat_sigmoid",
        "own:split_cat_reversed",
        "own:norm_branches",
        "own:mmoe",
        "own:shared_linears",
        *(w.name for w in blocks.WORKLOADS),
    }
    assert len({families[name] for name in SMALL}) == len(SMALL)


@pytest.mark.parametrize("name", NAMES)
def test_a_training_step_reaches_every_parameter(name: str) -> None:
    model, inputs = build(name, train=True)
    check_gradients(model, model(*inputs))


@pytest.mark.parametrize("name", NAMES)
def test_a_training_step_works_in_bfloat16(name: str) -> None:
    spec = Spec(name, BATCH, "bf16", train=True)
    model, inputs = spec.build(workloads.build, torch.device("cpu"))
    out = model(*inputs)
    assert out.dtype == torch.bfloat16
    check_gradients(model, out)


@pytest.mark.parametrize("name", NAMES)
def test_the_name_gives_equal_weights_and_inputs(name: str) -> None:
    (model, inputs), (again, same) = build(name, seed=7), build(name, seed=7)
    state, other = model.state_dict(), again.state_dict()
    assert state.keys() == other.keys()
    assert all(torch.equal(value, other[key]) for key, value in state.items())
    assert all(torch.equal(a, b) for a, b in zip(inputs, same, strict=True))
    with torch.no_grad():
        assert torch.equal(model(*inputs), again(*inputs))


@pytest.mark.parametrize("name", NAMES)
def test_dynamo_makes_one_graph(name: str) -> None:
    graphs: list[fx.GraphModule] = []

    def backend(gm: fx.GraphModule, _inputs: list[Tensor]) -> Callable[..., Any]:
        graphs.append(gm)
        return gm.forward

    model, inputs = build(name)
    torch.compiler.reset()
    with torch.no_grad():
        compiled = torch.compile(model, backend=backend, fullgraph=True)(*inputs)
        torch.testing.assert_close(compiled, model(*inputs))
    assert len(graphs) == 1


@pytest.mark.parametrize("name", NAMES)
def test_every_input_counts(name: str) -> None:
    model, inputs = build(name)
    with torch.no_grad():
        out = model(*inputs)
        for place, value in enumerate(inputs):
            # Another row's value: valid as an id, too.
            changed = [*inputs]
            changed[place] = value.roll(1, dims=0)
            assert not torch.equal(model(*changed), out), place


def _widths(model: nn.Module) -> set[int]:
    return {m.embedding_dim for m in model.modules() if isinstance(m, nn.Embedding)}


@pytest.mark.parametrize("name", ["dlrm", "dhen", "wukong", "interformer", "coffee", "hstu"])
def test_width_is_that_of_the_embeddings(name: str) -> None:
    sizes = "" if name == "hstu" else "fields=4,"
    model, _ = build(f"own:{name}?{sizes}width=12")
    assert _widths(model) - {1} == {12}  # HSTU's biases are look-ups of width 1


@pytest.mark.parametrize("name", ["dlrm", "dhen", "wukong", "interformer", "coffee"])
def test_fields_are_the_columns_of_ids_and_floats(name: str) -> None:
    _, inputs = build(f"own:{name}?fields=6,width=8")
    columns = [value.shape[1] for value in inputs if value.ndim == 2 and value.shape[1] != 20]
    bags = [value.shape[1] for value in inputs if value.ndim == 3 and name == "dlrm"]
    assert sum(columns) + sum(bags) == 6


@pytest.mark.parametrize(
    ("name", "layers"),
    [
        ("own:dhen?fields=4", "layers"),
        ("own:wukong?fields=4", "layers"),
        ("own:interformer?fields=4", "layers"),
        ("own:hstu?width=8", "layers"),
        ("own:inception?width=4", "blocks"),
        ("own:multi_branch_attention?fields=3", "layers"),
        ("own:unrolled_lstm?fields=3", "cells"),
        ("own:unrolled_gru?fields=3", "cells"),
        ("own:illustrative?width=8", "layers"),
    ],
)
def test_layers_are_as_many_as_asked_for(name: str, layers: str) -> None:
    model, _ = build(f"{name},layers=5")
    assert len(getattr(model, layers)) == 5


def test_layers_of_dlrm_and_coffee_are_those_of_their_mlps() -> None:
    for name in ("own:dlrm", "own:coffee"):
        counts = [
            sum(isinstance(module, nn.Linear) for module in model.modules())
            for model in (build(f"{name}?fields=4,layers={n}")[0] for n in (1, 2, 3))
        ]
        # One more in each of DLRM's two MLPs, or of COFFEE's three towers of events and one of fields.
        step = {"own:dlrm": 2, "own:coffee": 4}[name]
        assert [b - a for a, b in itertools.pairwise(counts)] == [step, step]


def test_fields_of_a_recurrence_are_its_steps() -> None:
    _, (x,) = build("own:unrolled_gru?fields=7,width=8")
    assert x.shape == (BATCH, 7, 8)

"""Random graphs as workloads: of any size, rebuilt exactly, refused where they are none."""

import pytest
import torch

from passwright.passes.errors import WorkloadError
from passwright.passes.graph import GraphView
from passwright.training.workloads import random_workloads
from passwright.training.workloads.capture import captured
from passwright.training.workloads.random_workloads import (
    RandomName,
    build_random,
    random_names,
)

BATCH = 32


@pytest.fixture(scope="module")
def names() -> list[str]:
    return random_names(3, batch=BATCH, train=True)


def test_a_name_rebuilds_exactly(names: list[str]) -> None:
    for name in names:
        module, inputs = build_random(name, batch=BATCH, train=True)
        random_workloads._scaled.cache_clear()
        again, same = build_random(name, batch=BATCH, train=True)
        torch.testing.assert_close(same, inputs, rtol=0, atol=0)
        torch.testing.assert_close(again.state_dict(), module.state_dict(), rtol=0, atol=0)
        prints = [
            GraphView(captured(m, x, train=True)[0].graph).fingerprint
            for m, x in ((module, inputs), (again, same))
        ]
        assert prints[0] == prints[1]


def test_they_have_the_rows_that_were_asked_for(names: list[str]) -> None:
    for name in names:
        module, inputs = build_random(name, batch=BATCH, train=True)
        assert inputs
        assert all(BATCH in value.shape for value in inputs)
        tensors = (*inputs, *module.parameters())
        assert {t.dtype for t in tensors if t.is_floating_point()} == {torch.float32}
        assert any(t.requires_grad for t in tensors)


def test_the_seed_draws_the_rows(names: list[str]) -> None:
    (_, one), (_, other) = (
        build_random(names[0], batch=BATCH, seed=seed, train=True) for seed in (0, 1)
    )
    assert any(not torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_in_inference_no_input_requires_a_gradient(names: list[str]) -> None:
    module, inputs = build_random(names[0], batch=BATCH)
    assert not module.training
    assert not any(value.requires_grad for value in inputs)


def test_a_size_may_be_asked_for() -> None:
    (name,) = random_names(1, batch=BATCH, calls=60)
    assert name.endswith("?calls=60")
    graph = captured(*build_random(name, batch=BATCH), train=False)[0].graph
    assert sum(node.op.startswith("call") for node in graph.nodes) > 40


def test_what_is_no_workload_is_refused(names: list[str]) -> None:
    taken = [RandomName.parse(name).seed for name in names]
    left_out = next(seed for seed in range(taken[-1]) if seed not in taken)
    with pytest.raises(WorkloadError, match=f"^random:{left_out} "):
        build_random(f"random:{left_out}", batch=BATCH, train=True)


def test_names() -> None:
    for name in (RandomName(17), RandomName(17, 60)):
        assert RandomName.parse(str(name)) == name
    for wrong in ("random:", "random:x", "random:1?calls=0", "own:mmoe", "random:1?fields=3"):
        with pytest.raises(WorkloadError, match="names no random graph"):
            RandomName.parse(wrong)

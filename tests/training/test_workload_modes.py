"""What every workload can do: be sized as it says, train, and run in bfloat16 or say why not."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

from passwright.passes.errors import WorkloadError
from passwright.scheduler.steps import inference_step, training_step
from passwright.training import workloads
from passwright.training.workloads.capture import captured
from passwright.training.workloads.cuts import cuts_of
from passwright.training.workloads.exact import build_exact
from passwright.training.workloads.spec import Spec
from passwright.training.workloads.workload import SMALLEST, Workload, quiet

CPU = torch.device("cpu")
OWN = [*workloads.names("own"), *workloads.names("case")]
#: They only move data, do pointwise ops, or attend to what they are given.
WITHOUT_PARAMETERS = {
    "own:split_cat",
    "own:split_cat_sigmoid",
    "own:split_cat_reversed",
    "case:D9",
    "case:D10",
    "case:D11",
    "own:attention",
    "own:qk_norm_attention",
}
#: Those whose numerical fields their package casts to float32 before a product.
FLOAT32_ONLY = {
    f"zoo:rechub/{name}"
    for name in (
        "WideDeep",
        "DeepFM",
        "DCN",
        "DCNv2_mix",
        "AutoInt",
        "SharedBottom",
        "MMOE",
        "AITM",
    )
}
needs_zoo = pytest.mark.skipif(
    importlib.util.find_spec("torch_rechub") is None,
    reason="the public models are in the extra `zoo`",
)
PUBLIC = [name for name in workloads.names() if name.startswith("zoo:")]


def sizes_of(workload: Workload) -> dict[str, int]:
    """The sizes that can be chosen, each as small as can be."""
    usual = {
        "fields": workload.size,
        "experts": workload.experts,
        "width": workload.width,
        "layers": workload.layers,
    }
    step = workload.width_multiple
    smallest = SMALLEST | {
        "width": -(-SMALLEST["width"] // step) * step,
        "experts": workload.fewest_experts,
    }
    return {what: smallest[what] for what, number in usual.items() if number is not None}


def small(name: str) -> Workload:
    workload = workloads.find(name)
    return workload.sized(**sizes_of(workload))


def tensors(value: Any) -> Iterator[torch.Tensor]:
    return (leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor))


def shapes(workload: Workload) -> list[tuple[int, ...]]:
    """Of parameters, inputs and outputs."""
    module, inputs = workload.build(batch=2)
    with torch.no_grad():
        out = module(*inputs)
    found = (*module.parameters(), *tensors(inputs), *tensors(out))
    return [tuple(tensor.shape) for tensor in found]


@pytest.mark.parametrize("name", OWN)
def test_no_size_is_taken_and_ignored(name: str) -> None:
    workload, sizes = small(name), sizes_of(workloads.find(name))
    before = shapes(workload)
    for what, number in sizes.items():
        more = number + (workload.width_multiple if what == "width" else 1)
        assert shapes(workload.sized(**{what: more})) != before, what


@needs_zoo
@pytest.mark.parametrize("name", [n for n in PUBLIC if workloads.find(n).experts])
def test_public_models_have_as_many_experts_as_are_asked_for(name: str) -> None:
    workload = small(name)
    fewest = workload.fewest_experts
    assert shapes(workload.sized(experts=fewest + 1)) != shapes(workload)
    with pytest.raises(WorkloadError, match=f"needs {fewest} experts or more"):
        workload.sized(experts=fewest - 1)


def test_a_size_that_a_model_does_not_take_is_to_be_left_out() -> None:
    with pytest.raises(WorkloadError, match=r"leave fields=8 out \(it takes no sizes\)"):
        workloads.find("own:mmoe?fields=8")
    with pytest.raises(
        WorkloadError, match=r"leave fields=8 out \(what it takes is width, layers\)"
    ):
        workloads.find("own:hstu?fields=8")
    with pytest.raises(WorkloadError, match="case:D9 has no number of fields to choose"):
        workloads.find("case:D9?fields=5")


# ---- training


@pytest.mark.parametrize("name", OWN)
def test_a_training_step_reaches_what_there_is(name: str) -> None:
    """Every parameter; and the inputs, which stand for what comes from a layer below, of those without."""
    module, inputs = small(name).build(batch=3, train=True)
    leaves = list(module.parameters())
    assert not (leaves and name in WITHOUT_PARAMETERS)
    asked = [t for t in tensors(inputs) if t.requires_grad]
    assert bool(asked) == (not leaves)
    training_step(module, inputs)()
    for leaf in [*leaves, *asked]:
        assert leaf.grad is not None
        assert torch.isfinite(leaf.grad).all()
    if asked:
        assert all(leaf.grad is not None and leaf.grad.any() for leaf in asked)


@pytest.mark.parametrize("name", sorted(WITHOUT_PARAMETERS))
def test_what_has_no_parameters_needs_no_gradient_in_inference(name: str) -> None:
    _, inputs = small(name).build(batch=3)
    assert not any(t.requires_grad for t in tensors(inputs))


def test_training_by_exact_name_has_gradients_too() -> None:
    for precision in ("fp32", "bf16"):
        module, (x,) = build_exact(
            str(Spec("own:split_cat?fields=3", 4, precision, train=True)), CPU
        )
        training_step(module, (x,))()
        assert x.is_leaf
        assert x.grad is not None
        assert x.grad.any()
        [graph] = captured(module, (x,), train=True)
        [node] = graph.graph.find_nodes(op="placeholder")
        assert node.meta["example_value"].requires_grad


def test_nothing_to_train_is_refused() -> None:
    bare = Workload("own:bare", "bare", None, lambda _: torch.nn.Identity(), lambda d: (d.ids(),))
    module, (ids,) = bare.build(batch=2)
    assert torch.equal(module(ids), ids)
    with pytest.raises(WorkloadError, match=r"own:bare has no parameters .* run it in inference"):
        bare.build(batch=2, train=True)


# ---- bfloat16


def run_in_bfloat16(name: str, train: bool) -> None:
    spec = Spec(small(name).name, 64, "bf16", train)
    module, inputs = spec.build(workloads.build, CPU)
    with quiet():
        (training_step if train else inference_step)(module, inputs)()
        assert captured(module, inputs, train=train)


def check_bfloat16(name: str, train: bool) -> None:
    if name in FLOAT32_ONLY:
        with pytest.raises(WorkloadError, match=r"does not run in bfloat16: .*; use fp32 or tf32"):
            run_in_bfloat16(name, train)
    else:
        run_in_bfloat16(name, train)


TRAIN = pytest.mark.parametrize("train", [False, True], ids=["inference", "training"])


@needs_zoo
@TRAIN
@pytest.mark.parametrize("name", ["zoo:rechub/MMOE", "zoo:torchfm/FFM"])
def test_a_public_model_runs_in_bfloat16_or_says_why_not(name: str, train: bool) -> None:
    check_bfloat16(name, train)


@needs_zoo
@pytest.mark.slow
@TRAIN
@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_model_runs_in_bfloat16_or_says_why_not(name: str, train: bool) -> None:
    check_bfloat16(name, train)


@needs_zoo
@pytest.mark.parametrize("name", sorted(FLOAT32_ONLY))
def test_models_that_are_refused_in_bfloat16_do_not_run_in_it(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or else they should not be refused."""
    monkeypatch.setattr("passwright.training.workloads.spec.refuse_bfloat16", lambda _: None)
    module, inputs = Spec(small(name).name, 64, "bf16").build(workloads.build, CPU)
    with pytest.raises(RuntimeError, match="same dtype"), torch.no_grad():
        module(*inputs)


@needs_zoo
def test_a_refused_model_is_refused_before_it_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Workload, "build", lambda *_, **__: pytest.fail("was built"))
    name = "rechub:MMOE?fields=5,experts=2@batch=64,precision=bf16"
    with pytest.raises(WorkloadError, match="zoo:rechub/MMOE does not run in bfloat16"):
        build_exact(name, CPU)


@needs_zoo
def test_cuts_of_a_refused_model_run_in_bfloat16() -> None:
    """The cast is in few of them."""
    spec = Spec("zoo:rechub/MMOE?fields=4,experts=2", 4, "bf16")
    (name,) = cuts_of(spec, count=1)
    module, inputs = build_exact(name, CPU)
    out = pytree.tree_leaves(inference_step(module, inputs)())
    assert {value.dtype for value in out} == {torch.bfloat16}

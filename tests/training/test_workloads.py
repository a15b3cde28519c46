"""The workloads: complete, rebuilt exactly from a seed, and clear in their errors."""

import random
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree

from passwright.passes.errors import WorkloadError
from passwright.training import workloads
from passwright.training.workloads.branching import SharedLinears, SplitCat

BATCH = 4
PUBLIC = [name for name in workloads.names() if name.startswith("zoo:")]
OWN = workloads.names("own")

# Its bridge averages over 416 columns in each layer, so that little of the input is left.
NEARLY_CONSTANT = {"zoo:rechub/EDCN"}


def outputs(name: str, seed: int = 0) -> list[torch.Tensor]:
    model, inputs = workloads.build(name, batch=BATCH, seed=seed)
    with torch.no_grad():
        return pytree.tree_leaves(model(*inputs))


def parameter_sum(model: nn.Module) -> float:
    return sum(p.double().abs().sum().item() for p in model.parameters())


def test_the_table_is_complete() -> None:
    counts = {source: len(workloads.names(source)) for source in workloads.sources()}
    own = {"own": 22, "case": 15}
    assert counts == {"rechub": 14, "deepctr": 18, "torchfm": 3, "rtdl": 1, **own}
    assert len(PUBLIC) == 36
    assert {"own:split_cat", "own:norm_branches", "own:mmoe", "own:shared_linears"} <= set(OWN)


@pytest.mark.parametrize("name", workloads.names())
def test_a_name_rebuilds_exactly(name: str) -> None:
    first, again = outputs(name), outputs(name)
    assert first
    for a, b in zip(first, again, strict=True):
        assert a.shape[0] == BATCH
        assert torch.isfinite(a).all()
        assert torch.equal(a, b)
        # The rows must differ, or the model could not tell a right rewrite from a wrong one.
        assert a.double().std(dim=0).max() > (1e-9 if name in NEARLY_CONSTANT else 1e-5)


@pytest.mark.parametrize("name", ["zoo:rechub/AutoInt", "zoo:deepctr/DIN", "own:mmoe"])
def test_the_seed_decides_weights_and_inputs(name: str) -> None:
    workload = workloads.find(name)
    (model, inputs), (other, other_inputs) = (workload.build(batch=2, seed=s) for s in (0, 1))
    assert parameter_sum(model) != parameter_sum(other)
    leaves, other_leaves = pytree.tree_leaves(inputs), pytree.tree_leaves(other_inputs)
    assert all(not torch.equal(a, b) for a, b in zip(leaves, other_leaves, strict=True))


def test_what_was_built_before_does_not_matter() -> None:
    # rechub writes into the settings that it is given, so shared ones would leak into later builds.
    sequence = ["rechub:DIN", "rechub:SharedBottom", "rechub:AutoInt"]
    forward = [parameter_sum(workloads.build(name, batch=1)[0]) for name in sequence]
    backward = [parameter_sum(workloads.build(name, batch=1)[0]) for name in reversed(sequence)]
    assert forward == backward[::-1]


def test_building_leaves_the_random_state_alone() -> None:
    before = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()
    workloads.build("zoo:deepctr/WDL", batch=2, seed=3)
    after = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()
    assert torch.equal(before[0], after[0])
    assert before[1:] == after[1:]


def test_building_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    for name in ("rechub:BST", "deepctr:DCN_matrix", "torchfm:xDeepFM", "rtdl:FTTransformer"):
        workloads.build(name, batch=2)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("train", [True, False])
def test_mode_is_as_asked(train: bool) -> None:
    model, _ = workloads.build("zoo:rechub/MMOE", batch=2, train=train)
    assert all(module.training is train for module in model.modules())


def test_batch_defaults_to_the_workloads_own() -> None:
    _, (x,) = workloads.build("own:split_cat")
    assert x.shape == (256, 64 * 32)


@pytest.mark.parametrize(
    ("short", "name"),
    [
        ("rechub:MMOE", "zoo:rechub/MMOE"),
        ("zoo:rechub/MMOE", "zoo:rechub/MMOE"),
        ("rtdl/FTTransformer", "zoo:rtdl/FTTransformer"),
        ("own:mmoe", "own:mmoe"),
        ("zoo:own/mmoe", "own:mmoe"),
    ],
)
def test_spellings(short: str, name: str) -> None:
    assert workloads.find(short).name == name


@pytest.mark.parametrize(
    ("wrong", "suggestion"),
    [
        ("rechub:MMoE", "zoo:rechub/MMOE"),
        ("zoo:deepctr/PLEE", "zoo:deepctr/PLE"),
        ("MMOE", "zoo:deepctr/MMOE"),
        ("own:splitcat", "own:split_cat"),
        ("q", "known are zoo:rechub/WideDeep"),
    ],
)
def test_an_unknown_name_is_answered_with_known_ones(wrong: str, suggestion: str) -> None:
    with pytest.raises(WorkloadError, match="unknown workload") as caught:
        workloads.build(wrong)
    assert suggestion in str(caught.value)


@pytest.mark.parametrize(
    ("name", "inputs", "layers"),
    [
        ("zoo:rechub/MMOE?fields=6,experts=2", 6, 2),
        ("zoo:rechub/ESMM?fields=9", 9, None),
        ("zoo:deepctr/MMOE?experts=3,fields=6", 6, None),
        ("zoo:deepctr/PLE?experts=1", 39, None),
        ("zoo:torchfm/FFM?fields=5", 5, None),
        ("zoo:rtdl/FTTransformer?fields=6", 6, None),
        ("own:split_cat?fields=4", 4 * 32, None),
        ("own:norm_branches?fields=5", 5 * 32, 5),
        ("case:D1?fields=4", None, None),
    ],
)
def test_a_size_may_follow_a_name(name: str, inputs: int | None, layers: int | None) -> None:
    assert workloads.find(name).name.partition("?")[0] == name.partition("?")[0]
    model, arguments = workloads.build(name, batch=BATCH)
    whole, _ = workloads.build(name.partition("?")[0], batch=BATCH)
    model(*arguments)
    leaves = pytree.tree_leaves(arguments)
    if inputs is not None:
        columns = sum(leaf.numel() // BATCH for leaf in leaves)
        assert columns == inputs
    if parameter_sum(whole):
        assert parameter_sum(model) < parameter_sum(whole)
    if layers is not None:
        assert any(isinstance(m, nn.ModuleList) and len(m) == layers for m in model.modules())


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("own:mmoe?fields=8", "has no number of fields to choose"),
        ("zoo:rechub/DCN?experts=8", "has no number of experts to choose"),
        ("zoo:rechub/DCN?fields=2", "needs 3 fields or more"),
        ("zoo:rechub/MMOE?experts=0", "needs 1 experts or more"),
        ("zoo:rechub/DCN?layers=2", "has no number of layers to choose"),
        ("own:hstu?fields=8", "own:hstu has no number of fields to choose"),
        ("own:mmoe?width=8", "own:mmoe has no width to choose"),
        ("own:dlrm?width=3", "own:dlrm needs a width of 4 or more"),
        ("own:dlrm?layers=0", "own:dlrm needs 1 layers or more"),
        ("own:dhen?width=30", "own:dhen needs a width that is a multiple of 4"),
        ("own:dhen?heads=2", "heads=2 is not understood; fields=NUMBER, .* width=NUMBER"),
        ("own:dhen?width=", "is not understood"),
        ("zoo:rechub/DCN?fields=-3", "is not understood"),
        ("zoo:rechub/DCM?fields=3", "did you mean zoo:rechub/DCN"),
    ],
)
def test_a_size_that_does_not_fit_is_refused(name: str, reason: str) -> None:
    with pytest.raises(WorkloadError, match=reason):
        workloads.find(name)


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        (
            "own:dhen?layers=1,width=64,fields=16",
            "own:dhen?fields=16,width=64,layers=1",
        ),
        ("zoo:deepctr/MMOE?experts=3,fields=6", "zoo:deepctr/MMOE?fields=6,experts=3"),
        ("own:hstu?layers=3", "own:hstu?layers=3"),
        ("own:hstu", "own:hstu"),
    ],
)
def test_a_model_has_one_name_whichever_size_is_said_first(asked: str, name: str) -> None:
    assert workloads.find(asked).name == name
    assert workloads.find(name).name == name


def test_sizes_are_kept_when_another_is_chosen() -> None:
    wide = workloads.find("own:dhen?fields=6,width=64").sized(layers=1).sized(fields=5)
    assert wide.name == "own:dhen?fields=5,width=64,layers=1"
    assert (wide.size, wide.width, wide.layers) == (5, 64, 1)


def test_codings_of_one_architecture_share_a_family() -> None:
    families = {workload.name: workload.family for workload in workloads.workloads()}
    assert len(set(families.values())) >= 12
    assert families["own:mmoe"] == families["zoo:rechub/MMOE"] == families["zoo:deepctr/MMOE"]


def test_an_unknown_source_is_an_error() -> None:
    with pytest.raises(WorkloadError, match="unknown source 'criteo'; known are rechub"):
        workloads.names("criteo")


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("zoo:rechub/DCN", "torch_rechub"),
        ("zoo:deepctr/DCN_matrix", "deepctr_torch"),
        ("zoo:torchfm/FFM", "torchfm"),
        ("zoo:rtdl/FTTransformer", "rtdl_revisiting_models"),
    ],
)
def test_a_missing_package_is_named_with_its_cure(
    name: str, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for loaded in [m for m in sys.modules if m.partition(".")[0] == module]:
        monkeypatch.setitem(sys.modules, loaded, None)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(WorkloadError, match=r"not installed.*pip install 'passwright\[zoo\]'"):
        workloads.build(name, batch=2)


def test_listing_names_imports_no_model_package() -> None:
    code = (
        "import sys; from passwright.training import workloads; workloads.names();"
        "packages = {'torch_rechub', 'deepctr_torch', 'torchfm', 'rtdl_revisiting_models',"
        " 'pandas', 'sklearn'}; print(sorted(packages & sys.modules.keys()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("reverse", [False, True])
def test_split_cat_computes_what_it_says(reverse: bool) -> None:
    x = torch.randn(3, 10)
    model = SplitCat(pieces=5, width=2, layers=3, op="tanh", reverse=reverse)
    pieces = x.tanh().tanh().tanh().reshape(3, 5, 2)
    expected = pieces.flip(1) if reverse else pieces
    assert torch.equal(model(x), expected.reshape(3, 10))


def test_shared_linears_take_unequal_widths_and_mixed_biases() -> None:
    model = SharedLinears(inputs=8, widths=(960, 320, 8), biases=(True, False, True))
    assert model(torch.randn(2, 8)).shape == (2, 1)
    assert [linear.bias is None for linear in model.linears] == [False, True, False]

"""Fitting that ends early, is stopped and goes on, or is shared by processes."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from fit_workers import fit_and_write

from passwright.passes.errors import SettingsError
from passwright.scheduler.gain_network import NetworkConfig
from passwright.training import checkpoint, gain_fit
from passwright.training.devices import fabric_for, together
from passwright.training.early_stop import Best, Watched, set_apart, watch
from passwright.training.gain_fit import Epoch, Fit, fit
from passwright.training.prepared import Prepared, prepare, vocabulary
from tests.support.gains import samples

SMALL = NetworkConfig((), (), width=8, trunk=16, blocks=1, layers=1)


def given(workloads: int = 12) -> tuple[list[Prepared], NetworkConfig]:
    found = samples(workloads)
    config = vocabulary(found, SMALL)
    return prepare(found, config), config


def same(one: torch.nn.Module, other: torch.nn.Module) -> bool:
    mine, theirs = one.state_dict(), other.state_dict()
    return all(torch.equal(mine[name], theirs[name]) for name in mine)


# ---- early stopping


def test_whole_families_are_set_apart_others_for_each_seed() -> None:
    prepared, _ = given(24)
    apart = []
    for seed in range(6):
        learned, watched = set_apart(prepared, seed)
        assert len(learned) + len(watched) == 24
        families = {one.family for one in watched}
        assert not families & {one.family for one in learned}
        apart += sorted(families)
    assert sorted(apart) == sorted({one.family for one in prepared})
    with pytest.raises(SettingsError, match="one family alone"):
        set_apart(prepared[:1], 0)


def test_fitting_ends_when_nothing_gets_better_and_the_best_epoch_is_kept() -> None:
    prepared, config = given(24)
    seen: list[Epoch] = []
    # A rate so high that it comes to nothing.
    how = Fit(epochs=40, patience=2, together=8, learning_rate=0.5)
    network = fit(prepared, config, how, seed=1, epoch=seen.append)
    losses = [one.watched.loss for one in seen if one.watched]
    assert 3 <= len(losses) == len(seen) < 40
    assert min(losses) == losses[-3]
    _, watched = set_apart(prepared, 1)
    assert watch(network, watched).loss == losses[-3]


def test_without_patience_all_epochs_are_done_and_all_families_learned_from() -> None:
    prepared, config = given()
    seen: list[Epoch] = []
    fit(prepared, config, Fit(epochs=3, together=2), epoch=seen.append)
    assert [one.number for one in seen] == [0, 1, 2]
    assert [one.watched for one in seen] == [None] * 3
    assert seen[-1].learning_rate < 0.1 * max(one.learning_rate for one in seen)


def test_the_best_is_the_first_of_equal_ones() -> None:
    best, network = Best(), torch.nn.Linear(1, 1)
    start = network.bias.detach().clone()
    for value in (2.0, 1.0, 1.0, float("nan")):
        best.see(Watched(value, 0.0), network)
        with torch.no_grad():
            network.bias += 1.0
    assert (best.loss, best.since) == (1.0, 2)
    assert torch.equal(best.weights["bias"], start + 1.0)


# ---- checkpoints


def test_trees_come_back_to_the_bit(tmp_path: Path) -> None:
    shared = torch.randn(3)
    tree = [0.1 + 0.2, float("inf"), None, {0: shared, "a": {"b": [shared, True]}}, {}]
    checkpoint.write(tree, tmp_path / "deep" / "tree.safetensors")
    number, infinite, nothing, found, empty = checkpoint.read(
        tmp_path / "deep" / "tree.safetensors"
    )
    assert (number, infinite, nothing, empty) == (0.1 + 0.2, float("inf"), None, {})
    assert list(found) == [0, "a"]
    assert torch.equal(found[0], shared)
    assert torch.equal(found["a"]["b"][0], shared)
    assert found["a"]["b"][1] is True
    assert checkpoint.read(tmp_path / "none") is None


@pytest.mark.parametrize("patience", [0, 5])
def test_stopped_fitting_goes_on_to_the_same_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, patience: int
) -> None:
    monkeypatch.setattr(gain_fit, "_EVERY", 0.0)
    prepared, config = given()
    how, file = Fit(epochs=6, patience=patience, together=4), tmp_path / "network.safetensors"
    whole = fit(prepared, config, how, seed=3)
    numbers: list[int] = []

    def stop(found: Epoch) -> None:
        numbers.append(found.number)
        if numbers == [0, 1, 2, 3]:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(prepared, config, how, seed=3, epoch=stop, file=file)
    again = fit(prepared, config, how, seed=3, epoch=stop, file=file)
    # The fourth epoch was not written yet.
    assert numbers == [0, 1, 2, 3, 3, 4, 5]
    assert same(whole, again)


def test_a_network_that_is_soon_done_writes_no_checkpoint(tmp_path: Path) -> None:
    prepared, config = given()
    fit(prepared, config, Fit(epochs=2), file=tmp_path / "network.safetensors")
    assert not list(tmp_path.iterdir())


# ---- devices


def test_two_processes_come_to_what_one_does(tmp_path: Path) -> None:
    prepared, config = given(11)  # the last step has three workloads, so that parts are unequal
    # Without what each process draws for itself.
    config = replace(config, dropout=0.0, around_dropout=0.0)
    how = Fit(epochs=3, together=4, forget_patterns=0.0, forget_words=0.0, patience=9)
    alone = fit(prepared, config, how, seed=2)
    together("cpu", 2, fit_and_write, prepared, config, how, tmp_path / "network")
    first, second = (checkpoint.read(tmp_path / f"network{rank}") for rank in (0, 1))
    for name, value in alone.state_dict().items():
        assert torch.equal(first[name], second[name])
        torch.testing.assert_close(first[name], value, rtol=1e-3, atol=1e-4)


def test_training_imports_fabric_late_and_leaves_torch_as_it_was() -> None:
    code = (
        "import sys, torch\n"
        "own = torch.compile\n"
        "import passwright.training.train_tools\n"
        "assert 'lightning_fabric' not in sys.modules\n"
        "assert 'optuna' not in sys.modules\n"
        "from passwright.training.devices import fabric_for\n"
        "fabric_for()\n"
        "assert 'lightning_fabric' in sys.modules\n"
        "assert torch.compile is own\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_a_workload_without_plans_teaches_nothing_and_is_no_error() -> None:
    prepared, config = given(2)
    found = samples(1)[0]
    none = prepare([replace(found, plans=())], config)
    fit(none, config, Fit(epochs=1))
    fit([*prepared, *none], config, Fit(epochs=1, together=1))


@pytest.mark.gpu
@pytest.mark.parametrize("device", ["cuda", "cuda:0"])
def test_a_gpu_comes_to_what_a_cpu_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: str
) -> None:
    monkeypatch.setattr(gain_fit, "_EVERY", 0.0)
    prepared, config = given()
    config = replace(config, dropout=0.0, around_dropout=0.0)
    how = Fit(epochs=4, together=4, forget_patterns=0.0, forget_words=0.0, patience=9)
    alone = fit(prepared, config, how)
    file = tmp_path / "network"
    fit(prepared, config, how, fabric=fabric_for(device), file=file)
    # From the checkpoint of the last epoch.
    network = fit(prepared, config, how, fabric=fabric_for(device), file=file)
    for name, value in alone.state_dict().items():
        torch.testing.assert_close(network.state_dict()[name], value, rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize(
    ("device", "devices", "says"),
    [
        ("tpu", 1, "not on 'tpu'"),
        ("cuda:x", 1, "not on 'cuda:x'"),
        ("cuda:0", 2, "one GPU"),
        ("cuda:99", 1, "GPUs"),
        ("cuda", 99, "GPUs"),
    ],
)
def test_devices_that_there_are_not(device: str, devices: int, says: str) -> None:
    with pytest.raises(SettingsError, match=says):
        fabric_for(device, devices)

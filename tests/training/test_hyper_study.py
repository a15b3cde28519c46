"""A study of settings: what it writes, that it goes on, and that bad trials end early."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from passwright.passes.errors import SettingsError
from passwright.scheduler.gain_network import NetworkConfig
from passwright.training import hyper_study, train_settings
from passwright.training.gain_fit import Fit
from passwright.training.hyper_study import JOURNAL, SETTINGS, study
from tests.support.gains import samples

FIRST = (Fit(epochs=20, patience=3), NetworkConfig((), (), width=32, trunk=64, layers=1))


def made_up(gained: dict[int, float], seen: list[int]) -> Any:
    """Taus of twelve workloads in three parts that differ from those of the first trial by `gained`."""

    def taus(*_: object) -> Any:
        number = len(seen)
        seen.append(0)
        for part in range(3):
            seen[number] += 1
            yield {str(4 * part + k): 0.2 * part + 0.01 * k + gained[number] for k in range(4)}

    return taus


def test_worse_trials_end_early_and_the_best_settings_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    gained = {0: 0.0, 1: -0.3, 2: 0.1, 3: 0.05}
    monkeypatch.setattr(hyper_study, "_taus", made_up(gained, seen))
    found = study(samples(12), tmp_path, FIRST, trials=4)
    # The second is found out in the first part; so is the last, which is worse than the third alone.
    assert seen == [3, 1, 3, 1]
    assert found["tau_gained"] == pytest.approx(0.1)
    assert (found["trials"], found["ended_early"]) == (4, 2)
    how, network = train_settings.read(tmp_path / SETTINGS)
    assert train_settings.to_json(how, network) == found["settings"]
    assert how.patience == 3
    assert how != FIRST[0]


def test_a_study_goes_on_where_it_was_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    taus = made_up(dict.fromkeys(range(9), 0.0), seen)

    def stopped(*arguments: Any) -> Any:
        if len(seen) == 2:
            seen.append(0)
            raise KeyboardInterrupt
        return taus(*arguments)

    monkeypatch.setattr(hyper_study, "_taus", stopped)
    with pytest.raises(KeyboardInterrupt):
        study(samples(12), tmp_path, FIRST, trials=3)
    assert (tmp_path / JOURNAL).exists()
    found = study(samples(12), tmp_path, FIRST, trials=3)
    assert seen == [3, 3, 0, 3]
    assert found["trials"] == 3
    # Of other data it is another study.
    study(samples(12, seed=1), tmp_path, FIRST, trials=1)
    assert len(seen) == 5


def test_trials_learn_and_predict(tmp_path: Path) -> None:
    found = study(samples(12), tmp_path, FIRST, trials=2, parts=2)
    assert found["trials"] == 2
    assert found["tau_gained"] >= 0.0
    assert json.loads((tmp_path / SETTINGS).read_text(encoding="utf-8")) == found["settings"]


def test_settings_come_back_and_what_is_left_out_is_the_default(tmp_path: Path) -> None:
    found = json.loads(json.dumps(train_settings.to_json(*FIRST)))
    assert train_settings.from_json(found, "here") == FIRST
    file = tmp_path / "settings.json"
    file.write_text('{"network": {"blocks": 2, "dropout": 0}}', encoding="utf-8")
    assert train_settings.read(file) == (Fit(), NetworkConfig((), (), blocks=2, dropout=0))
    assert train_settings.read(None) == (Fit(), NetworkConfig((), ()))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[", "cannot be read"),
        ("[]", "a JSON object"),
        ('{"fits": {}}', "'fits' is none of fit, network"),
        ('{"fit": {"epoch": 3}}', "fit: 'epoch' is none of epochs, patience"),
        ('{"fit": {"epochs": "3"}}', "epochs is '3', and no int"),
        ('{"fit": {"epochs": 3.5}}', "epochs is 3.5, and no int"),
        ('{"network": {"words": ["relu"]}}', "'words' is none of"),
    ],
)
def test_wrong_settings_are_told(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "settings.json"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(SettingsError, match=says):
        train_settings.read(file)

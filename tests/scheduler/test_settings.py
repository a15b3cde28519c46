"""Settings: where values come from, and that a misspelt one never passes unnoticed."""

from __future__ import annotations

import pytest

from passwright.passes.errors import SettingsError
from passwright.scheduler.backend import split_options
from passwright.scheduler.inductor import known_options
from passwright.scheduler.settings import Settings


def test_options_win_over_environment_over_defaults() -> None:
    environment = {"PASSWRIGHT_MODE": "off", "PASSWRIGHT_MIN_GAIN": "0.5", "HOME": "anything"}
    settings = Settings.resolve({"mode": "tune"}, environment)
    assert (settings.mode, settings.min_gain, settings.seed) == ("tune", 0.5, 0)


@pytest.mark.parametrize(
    ("text", "expected"), [("1", True), ("true", True), ("False", False), ("0", False)]
)
def test_booleans_from_the_environment(text: str, expected: bool) -> None:
    assert Settings.resolve({}, {"PASSWRIGHT_RELAXED": text}).relaxed is expected


def test_lists_from_text_and_from_sequences() -> None:
    assert Settings.resolve({"without": "a, b,"}, {}).without == ("a", "b")
    assert Settings.resolve({"without": ["a", "b"]}, {}).without == ("a", "b")


@pytest.mark.parametrize(
    ("options", "environment", "message"),
    [
        ({"vrify": "numeric"}, {}, "did you mean 'verify'"),
        ({"mode": "fast"}, {}, "predict, tune, replay, off"),
        ({"max_steps": "many"}, {}, "is no int"),
        ({"relaxed": "perhaps"}, {}, "is no bool"),
        ({}, {"PASSWRIGHT_MODES": "off"}, "PASSWRIGHT_MODES: there is no setting 'modes'"),
    ],
)
def test_wrong_names_and_values_are_errors(
    options: dict[str, str], environment: dict[str, str], message: str
) -> None:
    with pytest.raises(SettingsError, match=message):
        Settings.resolve(options, environment)


def test_every_field_has_a_meaning() -> None:
    assert all(text and text.endswith(".") for _, _, text in Settings.describe())


def test_no_setting_shares_its_name_with_an_option_of_inductor() -> None:
    assert not set(Settings.names()) & known_options()


def test_backend_options_go_to_whom_they_belong() -> None:
    settings, theirs = split_options({"mode": "off", "max_autotune": True})
    assert settings.mode == "off"
    assert theirs == {"max_autotune": True}


def test_an_option_nobody_knows_is_an_error_with_a_suggestion() -> None:
    with pytest.raises(SettingsError, match="'max_autotune'"):
        split_options({"max_autotun": True})

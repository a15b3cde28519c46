"""Settings of Inductor as steps: which exist where, what they gain, and which are taken."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
import torch

from passwright.passes.pattern import Exactness
from passwright.scheduler import choice_gains
from passwright.scheduler import choices as module
from passwright.scheduler.choice_gains import ChoiceGains
from passwright.scheduler.choices import (
    UNKNOWN,
    Choice,
    all_choices,
    choose,
    find,
    patches,
    worth_measuring,
)
from passwright.scheduler.device import describe_cpu, describe_gpu
from passwright.scheduler.plan import SETTING, Plan
from passwright.scheduler.settings import Settings

H200 = describe_gpu("NVIDIA H200")
CPU = describe_cpu("AVX2", threads=2, name="two cores", cache_bytes=32 << 20)
#: Not in torch 2.11.
LATER = {"combo_kernels_small", "combo_kernels_large"}


def rows(name: str, *gains: float, cost: float = 1.0, mode: str = "infer") -> list[dict[str, Any]]:
    return [
        {"choice": name, "mode": mode, "model": f"m{n}", "gain": gain, "compile_cost": cost}
        for n, gain in enumerate(gains)
    ]


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Any:
    """What was measured on the device."""

    def use(*found: list[dict[str, Any]]) -> None:
        gains = ChoiceGains([row for some in found for row in some])
        monkeypatch.setattr(module, "gains_on", lambda _: gains)

    use()
    return use


def chosen(device: Any = H200, **settings: Any) -> list[str]:
    training = settings.pop("training", False)
    given = settings.pop("given", ())
    steps, _ = choose(
        all_choices(), device, training=training, settings=Settings(**settings), given=given
    )
    return [step.pattern for step in steps]


@pytest.mark.parametrize("choice", all_choices(), ids=lambda c: c.name)
def test_each_choice_is_one_of_inductors(choice: Choice) -> None:
    assert choice.meaning.endswith(".")
    assert choice.exactness in (Exactness.BITWISE, Exactness.REASSOCIATING)
    assert find(choice.step(UNKNOWN)) == choice
    if choice.name not in LATER or torch.__version__ >= "2.13":
        assert choice.exists()


def test_names_are_told_apart() -> None:
    names = [choice.name for choice in all_choices()]
    assert len(set(names)) == len(names)


def test_an_option_that_this_torch_lacks_is_no_candidate() -> None:
    ghost = Choice("ghost", {"no_such_option": True}, "Nothing.")
    assert (
        ghost.why_not("cuda", training=False, settings=Settings()) == "not in this version of torch"
    )


def test_nothing_is_taken_that_was_never_measured(measured: Any) -> None:
    assert chosen() == []
    assert chosen(CPU) == []


def test_a_sure_gain_is_taken(measured: Any) -> None:
    measured(rows("plain_loops", 0.05, 0.06, 0.055), rows("looped_reductions", 0.3, -0.2, 0.1))
    assert chosen() == ["plain_loops"]
    assert chosen(training=True) == []


def test_two_models_are_too_few(measured: Any) -> None:
    measured(rows("plain_loops", 0.05, 0.05))
    assert chosen() == []


def test_compile_time_is_bounded(measured: Any) -> None:
    measured(rows("coordinate_descent", 0.05, 0.06, 0.055, cost=2.0))
    assert chosen() == []
    assert chosen(max_compile_cost=2.5) == ["coordinate_descent"]


def test_rivals_are_not_taken_together(measured: Any) -> None:
    measured(rows("wide_cats", 0.05, 0.06, 0.055), rows("narrow_cats", 0.15, 0.16, 0.155))
    assert chosen() == ["narrow_cats"]


def test_what_the_user_has_set_stays(measured: Any) -> None:
    measured(rows("wide_cats", 0.05, 0.06, 0.055))
    assert chosen(given=["max-pointwise-cat-inputs"]) == []


@pytest.mark.parametrize("name", ["cuda_graphs", "freezing"])
def test_what_changes_more_than_speed_must_be_allowed(measured: Any, name: str) -> None:
    measured(rows(name, 0.5, 0.6, 0.55))
    assert chosen() == []
    _, left = choose(all_choices(), H200, training=False, settings=Settings(), given=())
    assert any(item.label.startswith(name) and "allow" in item.reason for item in left)
    assert chosen(allow=(name,)) == [name]


def test_freezing_is_for_inference(measured: Any) -> None:
    measured(rows("freezing", 0.5, 0.6, 0.55, mode="train"))
    assert chosen(allow=("freezing",), training=True) == []


def test_tune_tries_the_likeliest_first_and_no_losers(measured: Any) -> None:
    measured(rows("wide_cats", -0.5, -0.51, -0.5), rows("plain_loops", 0.1, -0.1, 0.2))
    found = worth_measuring(all_choices(), H200, training=False, settings=Settings(), given=())
    names = [choice.name for choice in found]
    assert names[0] == "plain_loops"
    assert "wide_cats" not in names
    assert "cuda_graphs" not in names
    taken = [find(step) for step in (found[0].step(UNKNOWN),)]
    again = worth_measuring(
        all_choices(),
        H200,
        training=False,
        settings=Settings(),
        given=(),
        taken=[c.step(UNKNOWN) for c in taken if c is not None],
    )
    assert "plain_loops" not in [choice.name for choice in again]


def test_setting_steps_survive_text_and_json() -> None:
    steps = tuple(choice.step(UNKNOWN) for choice in all_choices()[:3])
    plan = Plan("a1b2c3", steps=steps)
    for again in (Plan.from_text(plan.to_text()), Plan.from_json(plan.to_json())):
        assert [s.label for s in again.settings] == [s.label for s in steps]
        assert patches(again.steps) == patches(steps)
        assert again.rewrites == ()
    assert all(step.anchor == SETTING for step in steps)
    assert patches([replace(steps[0], key="0" * 12)]) == {}


def test_the_measured_file_is_read(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "devices"
    folder.mkdir()
    data = {"device": "toy", "rows": rows("wide_cats", 0.1, 0.1, 0.11)}
    (folder / "choices-toy.json").write_text(json.dumps(data), encoding="utf-8")
    monkeypatch.setattr(choice_gains.resources, "files", lambda _: tmp_path)
    choice_gains.gains_on.cache_clear()
    try:
        found = choice_gains.gains_on("toy").of("wide_cats", training=False)
        assert found is not None
        assert 0.0 < found.interval.lower < found.interval.mean < found.interval.upper
        assert choice_gains.gains_on("another").of("wide_cats", training=False) is None
    finally:
        choice_gains.gains_on.cache_clear()

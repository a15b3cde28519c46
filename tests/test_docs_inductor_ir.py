"""docs/inductor-ir.md names every pattern and every setting of the third level, as they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from passwright.passes.inductor.pattern import KernelPattern
from passwright.passes.inductor.table import kernel_patterns
from passwright.scheduler.choices import Choice, all_choices, choose
from passwright.scheduler.device import describe_gpu
from passwright.scheduler.settings import Settings

PAGE = (Path(__file__).resolve().parent.parent / "docs" / "inductor-ir.md").read_text("utf-8")


@pytest.mark.parametrize("pattern", kernel_patterns(), ids=lambda p: p.name())
def test_patterns(pattern: KernelPattern) -> None:
    assert f"| `{pattern.name()}` |" in PAGE


@pytest.mark.parametrize("choice", all_choices(), ids=lambda c: c.name)
def test_settings(choice: Choice) -> None:
    sets = ", ".join(f"`{name}={value}`" for name, value in choice.patch.items())
    assert f"| `{choice.name}` | {sets} | {choice.meaning} |" in PAGE


def test_no_other_settings_are_listed() -> None:
    section = PAGE.partition("| choice | sets |")[2].partition("\n\n")[0]
    assert section.count("\n| `") == len(all_choices())


@pytest.mark.parametrize("training", [False, True])
def test_no_setting_is_certain_enough_as_the_page_says(training: bool) -> None:
    assert "none is certain enough for predict mode" in PAGE
    steps, left = choose(
        all_choices(), describe_gpu("NVIDIA H200"), training=training, settings=Settings()
    )
    assert steps == []
    assert any(item.reason == "gain not certain enough" for item in left)

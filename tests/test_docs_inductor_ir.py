"""docs/inductor-ir.md names every pattern and every setting of the third level, as they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from passwright.passes.inductor.pattern import KernelPattern
from passwright.passes.inductor.table import kernel_patterns
from passwright.scheduler.choices import Choice, all_choices

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

"""Curves as Markdown: what was measured again counts, and what is not complete is told."""

from __future__ import annotations

import math
from typing import Any

from passwright.training.search.curves_table import markdown


def row(model: str, sampler: str, again: float | None, **of: Any) -> dict[str, Any]:
    confirmed = (
        {} if again is None else {"2": {"gain": math.log(again), "gains": [math.log(again)] * 3}}
    )
    return {
        "workload": f"{model}@batch=8",
        "sampler": sampler,
        "together": 3,
        "trials": 2,
        "complete": True,
        "gains": [math.log(1.5), math.log(2.0)],
        "confirmed": confirmed,
        "device": "NVIDIA H200",
        "torch": "2.11.0+cu130",
        **of,
    }


WHILE_IT_WENT_ON = {"2": {"gain": 0.0}, "300": {"gain": math.log(2.0)}}
FOUND = {
    "rows": [
        row("a", "tpe", 1.5),
        row("a", "local", 1.8),
        row("b", "local", 2.0, trials=300, gains=[0.0, math.log(4.0)]),
        row("b", "tpe", 2.0),
    ]
}
LONG = {
    "rows": [
        row("a", "local", None, complete=False, gains=[math.log(3.0)] * 7),
        row("b", "local", 2.1, confirmed=WHILE_IT_WENT_ON),
    ]
}


def test_a_table_of_what_was_measured_again() -> None:
    lines = markdown(FOUND, LONG).splitlines()
    assert lines[0] == "| model | local, 2 trials | tpe, 2 trials | local, more trials |"
    assert lines[2:4] == [
        "| a | 1.80x | 1.50x | 3.00x in 7, measured once |",
        "| b | 2.00x | 2.00x | 2.00x in 2 |",
    ]


def test_compiles_that_differ_much_are_told() -> None:
    again = {"2": {"gain": math.log(2.0), "gains": [math.log(x) for x in (2.0, 2.2, 1.9)]}}
    rows = [row("a", "local", None, confirmed=again), row("a", "tpe", 1.9)]
    assert "| a | 2.00x (1.90 to 2.20) | 1.90x | - |" in markdown({"rows": rows}, {"rows": []})


def test_notes_compare_samplers_and_more_trials() -> None:
    text = markdown(FOUND, LONG)
    assert "Ours against tpe: 1.095x as fast" in text
    assert "faster on 1 of 2 models, slower on 0" in text
    # log 1.8 of log 3 on one, all of it on the other
    assert "at least 95% on 1 of 2 models; least on a, 54%" in text
    assert "NVIDIA H200, torch 2.11.0, 3 trials" in text
    # of a, both found all that was found after two trials; of b, ours at once and twice as much
    assert "local 100.0%, 100.0%" in text
    assert "tpe 75.0%, 75.0%" in text


def test_what_was_not_measured_again_has_no_figure() -> None:
    rows = [
        row("a", "local", 1.8),
        row("a", "tpe", None),
        row("b", "local", 1.5),
        row("b", "tpe", 1.2),
    ]
    text = markdown({"rows": rows}, {"rows": []})
    assert "| a | 1.80x | - | - |" in text
    assert "faster on 1 of 1 models" in text

"""The last comparison of one model: default and ours, with and without combo kernels, in one process."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from passwright.scheduler.plan import Plan
from passwright.training.headroom.bound import profile
from passwright.training.headroom.propose import rewritten
from passwright.training.headroom.worker import Model
from passwright.training.macros import NOTHING, State
from passwright.training.variants import Facts, Maker, compared, of_model

DEFAULT, DEFAULT_COMBO = "default", "default + combo"
OURS, OURS_COMBO = "ours", "ours + combo"


def final(model: Model, plans: Sequence[Plan], ours: State, ours_combo: State) -> dict[str, Any]:
    """Everything about the four variants; one that would be default compile again is left out.

    Raises what default compile raises. Another variant that fails is left out with the reason.
    """
    wanted = {DEFAULT: (NOTHING, False), DEFAULT_COMBO: (NOTHING, True)}
    wanted |= {OURS: (ours, False)} if ours != NOTHING else {}
    wanted |= {OURS_COMBO: (ours_combo, True)} if ours_combo != NOTHING else {}

    def maker(state: State, combo: bool) -> Maker:
        return lambda: _made(model, state, plans, combo)

    makers = {name: maker(state, combo) for name, (state, combo) in wanted.items()}
    made = of_model(model, makers, baseline=DEFAULT)
    for name, (state, _) in wanted.items():
        made.described[name]["state"] = state.label
    with model.lock.alone():
        comparison = compared(model, made)
        side = [name for name in (OURS, OURS_COMBO) if name in comparison.gains] or [DEFAULT]
        fastest = min(side, key=lambda name: comparison.timings[name].median)
        times = profile(made.steps[fastest], model.device)
    return {
        "variants": made.described,
        "measured": json.loads(comparison.to_json()),
        "profiled": fastest,
        "profile": times,
        "estimates": {
            name: rewritten(model.captured(), model.task, state, plans).seconds()._asdict()
            for name, (state, combo) in wanted.items()
            if name in made.steps and not combo
        },
    }


def _made(model: Model, state: State, plans: Sequence[Plan], combo: bool) -> tuple[Any, Facts]:
    made = model.compile(state, plans, combo=combo)
    return made.run, {
        "steps": list(made.steps),
        "kernels": made.kernels,
        "cached_compile_seconds": round(made.seconds, 2),
    }

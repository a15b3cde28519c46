"""The last comparison of one model: default and ours, with and without combo kernels, in one process."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from passwright.scheduler.plan import Plan
from passwright.scheduler.timing import compare, peak_memory
from passwright.training.agreement import Observation, agreement, observe, oracle, shaken
from passwright.training.bench_bound import profile
from passwright.training.bench_macros import NOTHING, State
from passwright.training.bench_propose import rewritten
from passwright.training.bench_worker import Made, Model

DEFAULT, DEFAULT_COMBO = "default", "default + combo"
OURS, OURS_COMBO = "ours", "ours + combo"
_BLOCKS = 20
#: Variants that are slower by more than this are not measured to the end.
_HOPELESS = 10.0


def final(model: Model, plans: Sequence[Plan], ours: State, ours_combo: State) -> dict[str, Any]:
    """Everything about the four variants; one that would be default compile again is left out.

    Raises what default compile raises. Another variant that fails is left out with the reason.
    """
    wanted = {DEFAULT: (NOTHING, False), DEFAULT_COMBO: (NOTHING, True)}
    wanted |= {OURS: (ours, False)} if ours != NOTHING else {}
    wanted |= {OURS_COMBO: (ours_combo, True)} if ours_combo != NOTHING else {}
    judge = Judge(model)
    made: dict[str, Made] = {}
    variants: dict[str, dict[str, Any]] = {}
    for name, (state, combo) in wanted.items():
        try:
            made[name] = model.compile(state, plans, combo=combo)
            variants[name] = _described(model, state, made[name], judge)
        except Exception as error:
            if name == DEFAULT:
                raise
            made.pop(name, None)
            variants[name] = {"state": state.label, "why": f"{type(error).__name__}: {error}"}
    steps = {name: model.subject.step(each.run) for name, each in made.items()}
    with model.lock.alone():
        comparison = compare(
            steps,
            baseline=DEFAULT,
            device=model.device,
            blocks=_BLOCKS,
            time_limit=model.task.final_seconds,
            seed=model.task.seed,
            timeout_factor=_HOPELESS,
            wall=False,
        )
        side = [name for name in (OURS, OURS_COMBO) if name in comparison.gains] or [DEFAULT]
        fastest = min(side, key=lambda name: comparison.timings[name].median)
        times = profile(steps[fastest], model.device)
    return {
        "variants": variants,
        "measured": json.loads(comparison.to_json()),
        "profiled": fastest,
        "profile": times,
        "estimates": {
            name: rewritten(model.captured(), model.task, state, plans).seconds()._asdict()
            for name, (state, combo) in wanted.items()
            if name in made and not combo
        },
    }


def _described(model: Model, state: State, made: Made, judge: Judge) -> dict[str, Any]:
    with model.lock.shared():
        return {
            "state": state.label,
            "steps": list(made.steps),
            "kernels": made.kernels,
            "cached_compile_seconds": round(made.seconds, 2),
            "agreement": judge.verdict(made),
            "peak_bytes": peak_memory(model.subject.step(made.run), model.device),
        }


class Judge:
    """Compares outputs and gradients of variants with eager and a float64 run."""

    def __init__(self, model: Model) -> None:
        self.model = model
        # First, since a module that keeps a tensor of its last run cannot be copied any more.
        with model.lock.shared():
            self.oracle = oracle(model.subject.module, self._inputs, **self._how)
            self.expected = self._observed(model.subject.module)
        self._shaken: list[Observation] | None = None

    @property
    def _inputs(self) -> tuple[Any, ...]:
        inputs = self.model.subject.inputs
        if not isinstance(inputs, (tuple, list)):
            raise TypeError("the benchmark takes models with positional inputs")
        return tuple(inputs)

    @property
    def _how(self) -> dict[str, Any]:
        return {"train": self.model.task.train, "seed": self.model.task.seed}

    def _observed(self, run: Any) -> Observation:
        return observe(self.model.subject.module, run, self._inputs, **self._how)

    def verdict(self, made: Made) -> dict[str, Any]:
        """Of a compiled variant of the search."""
        return self.observed_verdict(made.run)

    def observed_verdict(self, run: Any) -> dict[str, Any]:
        """Of anything that is called as the module is."""
        actual = self._observed(run)
        return asdict(agreement(self.expected, actual, self.oracle, self._shake))

    def _shake(self) -> list[Observation]:
        if self._shaken is None:
            self._shaken = shaken(self.model.subject.module, self._inputs, **self._how)
        return self._shaken

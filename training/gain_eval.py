"""Leave-one-family-out evaluation of what predicts gains: every family is predicted by models that never
saw it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from passwright.scheduler.familiar import Familiar
from passwright.scheduler.predictor import Predictor, sum_of
from passwright.training.gain_loss import plans_in, target_of
from passwright.training.gain_metrics import Plans
from passwright.training.samples import WorkloadSamples
from passwright.training.splits import folds

#: What is held out: all of a family, which is the test that counts, or single workloads.
FAMILY, WORKLOAD = "family", "workload"
#: Learns from samples, by a seed.
Learn = Callable[[Sequence[WorkloadSamples], int], Predictor]


def plans_of(samples: WorkloadSamples, predictor: Predictor) -> Plans:
    """Measured and predicted gains of the plans of one workload."""
    target = target_of(samples)
    forecast = predictor.forecast([step.example for step in samples.steps])
    sums = [sum_of(forecast.gain[np.flatnonzero(row)]) for row in target.sums.numpy()]
    proposed = {plan.steps: plan.proposed_by for plan in reversed(samples.plans)}
    names = [step.example.pattern for step in samples.steps]
    plans = list(plans_in(samples))
    to_go = target.to_go.double().numpy()
    known = ~np.isnan(to_go)
    predicted, lower, upper = np.array(sums, np.float64).reshape(-1, 3).T
    return Plans(
        samples.workload,
        samples.family,
        target.gains.double().numpy(),
        target.floors.double().numpy(),
        predicted,
        lower,
        upper,
        by=tuple(proposed.get(steps, "nothing") for steps in plans),
        patterns=tuple(frozenset(names[step] for step in steps) for steps in plans),
        counts=tuple(map(len, plans)),
        caution=predictor.caution,
        to_go=to_go[known],
        to_go_forecast=forecast.to_go[known],
    )


def _unlike(samples: WorkloadSamples, seen: Familiar) -> tuple[bool, ...]:
    """Of each plan, doing nothing first: one of its steps is unlike all that was seen."""
    strange = [bool(one.why) for one in seen.strange(step.example for step in samples.steps)]
    return tuple(any(strange[step] for step in steps) for steps in plans_in(samples))


def held_out(
    samples: Sequence[WorkloadSamples],
    learn: Learn,
    *,
    count: int = 5,
    seed: int = 0,
    by: str = FAMILY,
    done: Callable[[int, int], None] = lambda *_: None,
) -> list[Plans]:
    """Predictions of every workload by a model that learned from other families alone (`by` WORKLOAD: from
    other workloads, of which some differ in nothing but sizes), in the order of the samples.

    What is held out is so in `count` groups; `done` is told how many of these are through.
    """
    found: dict[int, Plans] = {}
    names = [one.family if by == FAMILY else one.workload for one in samples]
    parts = folds(names, count)
    for number, part in enumerate(parts):
        known = [one for one, name in zip(samples, names, strict=True) if name not in part]
        predictor = learn(known, seed)
        seen = Familiar.of([step.example for one in known for step in one.steps])
        for place, (one, name) in enumerate(zip(samples, names, strict=True)):
            if name in part:
                plans = plans_of(one, predictor)
                strange = tuple(bool(used - seen.patterns) for used in plans.patterns)
                found[place] = replace(plans, strange=strange, unlike=_unlike(one, seen))
        done(number + 1, len(parts))
    return [found[place] for place in range(len(samples))]

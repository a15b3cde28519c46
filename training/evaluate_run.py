"""Compares what predicts gains on families that were held out, over several seeds, in one run."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from passwright.scheduler.commands.console import progress
from passwright.scheduler.gain_network import NetworkConfig
from passwright.training.baselines import BASELINES
from passwright.training.conformal import calibrated, held_out_coverage
from passwright.training.ensembles import Ensembles
from passwright.training.failures import by_family, by_novelty, by_pattern
from passwright.training.gain_eval import FAMILY, Learn, held_out
from passwright.training.gain_fit import Fit
from passwright.training.gain_metrics import Plans, regret, scores, tau
from passwright.training.interval_coverage import by_steps
from passwright.training.kept import Kept
from passwright.training.policy import choices, controls, of_whole_models, risk_coverage
from passwright.training.samples import WorkloadSamples

NETWORK = "network"
_FLIPS = 20_000
#: Names of all that can be compared, the one that is ours first.
MODELS = (NETWORK, *BASELINES)
#: Whose answer does not depend on a seed.
FIXED = ("trees", "ridge", "pattern mean", "analytic")


def evaluate(
    samples: Sequence[WorkloadSamples],
    models: Sequence[str] = MODELS,
    *,
    seeds: int = 5,
    folds: int = 5,
    members: int = 5,
    how: Fit | None = None,
    config: NetworkConfig | None = None,
    split: str = FAMILY,
    kept: Kept | None = None,
) -> dict[str, Any]:
    """JSON: of every model its scores by seed, their means with 95 % intervals, and how its tau and its
    top-1 slow-down differ from the first model's, paired by workload.

    Every model is asked of the same families (`split`: or workloads) with the same others to learn from.
    Networks that are `kept` are not fitted again.
    """
    ensembles = Ensembles(members, how or Fit(), config or NetworkConfig((), ()), kept)
    runs = {name: 1 if name in FIXED else seeds for name in models}
    rows: dict[str, list[list[Plans]]] = {}
    with progress(sum(runs.values()) * folds) as reporter:
        for name in models:
            learn = learner(name, ensembles.telling(reporter.working_on))
            rows[name] = []
            for seed in range(runs[name]):

                def done(number: int, of: int, name: str = name, seed: int = seed) -> None:
                    reporter.finished(f"{name}, seed {seed}: {number} of {of}")

                rows[name].append(
                    held_out(samples, learn, count=folds, seed=seed, by=split, done=done)
                )
    first = rows[models[0]]
    return {
        **about(samples, folds=folds, split=split, members=members),
        "models": [
            {"model": name, **_summary(found), **_against(found, first)}
            for name, found in rows.items()
        ],
        "controls": {name: one.to_json() for name, one in controls(first[0]).items()},
        "failures": {
            "families": by_family(first[0]),
            "patterns": by_pattern(first[0]),
            "novelty": by_novelty(first[0]),
        },
        "risk over coverage": risk_coverage(calibrated(first[0])),
    }


def about(
    samples: Sequence[WorkloadSamples], *, folds: int, split: str, members: int
) -> dict[str, Any]:
    """What models were asked of, and how."""
    return {
        "device": samples[0].device,
        "workloads": len(samples),
        "plans": sum(len(one.plans) for one in samples),
        "families": len({one.family for one in samples}),
        "folds": folds,
        "split": split,
        "members": members,
    }


def learner(name: str, ensembles: Ensembles) -> Learn:
    """Of the model of that name."""
    if name == NETWORK:
        return ensembles
    return lambda samples, seed: BASELINES[name](seed).fit(samples)


def _summary(found: Sequence[Sequence[Plans]]) -> dict[str, Any]:
    each = [scores(plans).to_json() for plans in found]
    shares = [share for plans in found for share in held_out_coverage(plans).values()]
    widened = [calibrated(plans) for plans in found]
    return {
        **over_seeds(each),
        "calibrated_coverage": statistics.fmean(shares) if shares else None,
        "coverage by steps": by_steps(widened),
        "choices": [choices(plans).to_json() for plans in widened],
        "whole models": [
            choices(whole).to_json() for whole in map(of_whole_models, widened) if whole
        ],
    }


def over_seeds(each: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """Figures of each seed, the means of those that all have, and half of their 95 % intervals."""
    names = sorted(set.intersection(*(set(one) for one in each)))
    return {
        "seeds": [*each],
        "mean": {name: statistics.fmean(one[name] for one in each) for name in names},
        "interval": {name: half_interval([one[name] for one in each]) for name in names},
    }


def _against(
    found: Sequence[Sequence[Plans]], first: Sequence[Sequence[Plans]]
) -> dict[str, Mapping[str, float]]:
    """Mean differences from the first model over workloads (means over seeds), tested in two ways. Of tau
    more is better, of regret less."""
    if found is first:
        return {}
    measures: dict[str, Callable[[Plans], float]] = {
        "tau": tau,
        "regret": lambda plans: regret(plans, 1),
    }
    return {
        f"{name}_difference": paired(
            _by_workload(found, of), _by_workload(first, of), [plans.family for plans in first[0]]
        )
        for name, of in measures.items()
    }


def _by_workload(found: Sequence[Sequence[Plans]], of: Callable[[Plans], float]) -> list[float]:
    return [statistics.fmean(of(plans) for plans in over) for over in zip(*found, strict=True)]


def paired(
    mine: Sequence[float], theirs: Sequence[float], families: Sequence[str]
) -> dict[str, float]:
    """The mean difference over workloads. `p`: that their order is chance, by Wilcoxon's signed-rank test,
    which looks at how often one is ahead more than at by how much. `p_mean`: that the mean is chance, by
    flipping the signs of whole families, whose workloads err together (Fisher's permutation test)."""
    from scipy.stats import permutation_test, wilcoxon

    rows = [(a - b, family) for a, b, family in zip(mine, theirs, families, strict=True)]
    rows = [row for row in rows if math.isfinite(row[0])]
    apart = np.array([difference for difference, _ in rows])
    if not apart.any():
        return {"mean": 0.0, "p": 1.0, "p_mean": 1.0, "workloads": len(apart)}
    names = sorted({family for _, family in rows})
    sums = np.array([sum(x for x, family in rows if family == name) for name in names])
    flipped = 1.0
    if len(sums) > 1:
        test = permutation_test(
            (sums,), np.mean, permutation_type="samples", n_resamples=_FLIPS, rng=0
        )
        flipped = float(test.pvalue)
    return {
        "mean": float(apart.mean()),
        "p": float(wilcoxon(apart).pvalue),
        "p_mean": flipped,
        "workloads": len(apart),
    }


def half_interval(values: Sequence[float]) -> float | None:
    """Half of a 95 % interval of the mean, by Student; None of a single value."""
    if len(values) < 2:
        return None
    from scipy.stats import t

    point = float(t.ppf(0.975, len(values) - 1))
    return point * statistics.stdev(values) / math.sqrt(len(values))

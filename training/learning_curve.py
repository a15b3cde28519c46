"""How well gains are predicted by how much there is to learn from, on families that were held out.

The families that are asked of stay the same; of the graphs of all others a part is learned from. A smaller
part lies within every larger one, and which graphs it has depends on a hash of their names and the seed.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

from passwright.passes.address import digest
from passwright.passes.errors import WorkloadError
from passwright.scheduler.commands.console import progress
from passwright.scheduler.gain_network import NetworkConfig
from passwright.scheduler.predictor import Predictor
from passwright.training.conformal import calibrated
from passwright.training.ensembles import Ensembles
from passwright.training.evaluate_run import FIXED, NETWORK, about, learner, over_seeds
from passwright.training.gain_eval import FAMILY, Learn, held_out
from passwright.training.gain_fit import Fit
from passwright.training.gain_metrics import Plans, scores
from passwright.training.interval_coverage import mean_width
from passwright.training.kept import Kept
from passwright.training.samples import WorkloadSamples

#: Parts of the graphs.
SHARES = (0.125, 0.25, 0.5, 1.0)


def part_of(
    samples: Sequence[WorkloadSamples], share: float, seed: int = 0
) -> list[WorkloadSamples]:
    """So large a share of the graphs, one at least, in the order of the samples."""
    by_hash = sorted(samples, key=lambda one: digest("curve", seed, one.workload))
    chosen = {one.workload for one in by_hash[: math.ceil(share * len(by_hash))]}
    return [one for one in samples if one.workload in chosen]


def learning_curve(
    samples: Sequence[WorkloadSamples],
    models: Sequence[str] = (NETWORK,),
    *,
    seeds: int = 5,
    folds: int = 5,
    members: int = 2,
    how: Fit | None = None,
    config: NetworkConfig | None = None,
    split: str = FAMILY,
    kept: Kept | None = None,
    shares: Sequence[float] = SHARES,
) -> dict[str, Any]:
    """JSON: of every model and share the scores by seed, and their means with 95 % intervals over seeds,
    each of which draws other graphs and other weights.

    `coverage` and `width` (of log gains, from mean to lower bound) are those of intervals that other
    families scaled. Networks that are `kept` are not fitted again. Raises WorkloadError if a part of the
    graphs has no measured step.
    """
    ensembles = Ensembles(members, how or Fit(), config or NetworkConfig((), ()), kept)
    runs = {
        (name, share): 1 if name in FIXED and share == 1.0 else seeds
        for name in models
        for share in shares
    }
    points = []
    with progress(sum(runs.values()) * folds) as reporter:
        for (name, share), count in runs.items():
            of = f"{name} from {share:.1%}"

            def working_on(what: str, of: str = of) -> None:
                reporter.working_on(f"{of}: {what}")

            learn = _Part(learner(name, ensembles.telling(working_on)), share)
            each = []
            for seed in range(count):

                def done(number: int, total: int, of: str = of, seed: int = seed) -> None:
                    reporter.finished(f"{of}, seed {seed}: {number} of {total}")

                each.append(held_out(samples, learn, count=folds, seed=seed, by=split, done=done))
            points.append({"model": name, **learn.size(), **over_seeds(list(map(_scores, each)))})
    return {**about(samples, folds=folds, split=split, members=members), "points": points}


class _Part:
    """Learns from a part of what it is given, and counts how much that was."""

    def __init__(self, learn: Learn, share: float) -> None:
        self._learn, self._share = learn, share
        self._graphs: list[int] = []
        self._plans: list[int] = []

    def __call__(self, samples: Sequence[WorkloadSamples], seed: int) -> Predictor:
        part = part_of(samples, self._share, seed)
        if not any(one.steps for one in part):
            raise WorkloadError(
                f"{self._share:.1%} of the graphs have no measured step to learn from: measure more of"
                " them with `passwright collect`"
            )
        self._graphs.append(len(part))
        self._plans.append(sum(len(one.plans) for one in part))
        return self._learn(part, seed)

    def size(self) -> dict[str, float]:
        """The share, and means over all that were learned from."""
        return {
            "share": self._share,
            "graphs": statistics.fmean(self._graphs),
            "plans": statistics.fmean(self._plans),
        }


def _scores(found: Sequence[Plans]) -> dict[str, float]:
    widened = calibrated(found)
    coverage = scores(widened).to_json().get("coverage")
    return {
        **scores(found).to_json(),
        **({} if coverage is None else {"coverage": coverage, "width": mean_width(widened)}),
    }
